// probe/ceilings.cpp -- The parent's side of measuring ceilings, and the words between the two.
// SPDX-License-Identifier: Apache-2.0
#include "probe/ceilings.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/child_process.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kSlice{100};  // between two looks at the stop flag
constexpr milliseconds kSendLimit{2000};

// A rate, or a clock: nothing that a GPU does is negative or beyond this.
double plausible(const json& value, double least) {
  const double number = value.get<double>();
  if (!std::isfinite(number) || number < least || number > 1e9) {
    throw Error(ErrorCode::kFailure,
                formatted("the process that measures ceilings answered {}", number));
  }
  return number;
}

CeilingFigure figure_from(const std::string& name, const json& value) {
  CeilingFigure figure;
  figure.name = name;
  figure.median = plausible(value.at("median"), 1e-9);
  figure.low = plausible(value.at("low"), 1e-9);
  figure.high = plausible(value.at("high"), 1e-9);
  figure.clock_mhz = plausible(value.at("clock_mhz"), 0);
  if (figure.low > figure.median || figure.median > figure.high) {
    throw Error(ErrorCode::kFailure,
                formatted("the process that measures ceilings answered a median of {} that is "
                          "outside its extremes",
                          name));
  }
  return figure;
}

[[noreturn]] void throw_failure(const std::string& payload) {
  int code = 0;
  std::string what;
  try {
    const json failure = json::parse(payload);
    code = failure.at("code").get<int>();
    what = failure.at("what").get<std::string>().substr(0, 4000);
  } catch (const json::exception&) {
    what = "the process that measures ceilings failed without saying why";
  }
  const bool known = code >= 0 && code <= static_cast<int>(ErrorCode::kNoCompiler);
  throw Error(known ? static_cast<ErrorCode>(code) : ErrorCode::kFailure, what);
}

[[noreturn]] void throw_ended(ChildProcess& child, const std::string& phase) {
  const auto end = child.kill();
  const std::string said = last_line(child.output());
  throw Error(
      ErrorCode::kFailure,
      formatted("the process that measures ceilings ended while at '{}': {}{}", phase,
                end ? end->text() : "it could not be reaped", said.empty() ? "" : "; " + said));
}

}  // namespace

const std::vector<std::string>& ceiling_names() {
  static const std::vector<std::string> kNames = {"hbm_copy_tb_s", "hbm_read_tb_s", "l2_read_tb_s",
                                                  "mma_tflops",    "wgmma_tflops",  "exp2_gops",
                                                  "fma_tflops"};
  return kNames;
}

const CeilingFigure* Ceilings::find(std::string_view name) const {
  const auto found = std::find_if(figures.begin(), figures.end(),
                                  [&](const CeilingFigure& each) { return each.name == name; });
  return found == figures.end() ? nullptr : &*found;
}

std::string encode(const CeilingEffort& effort) {
  return json{{"launch_us", effort.launch_us}, {"samples", effort.samples}}.dump();
}

CeilingEffort decode_effort(std::string_view text) {
  try {
    const json request = json::parse(text);
    CeilingEffort effort;
    request.at("launch_us").get_to(effort.launch_us);
    request.at("samples").get_to(effort.samples);
    if (effort.samples >= 1 && effort.samples <= 1000 && effort.launch_us >= 1 &&
        effort.launch_us <= 1e6) {
      return effort;
    }
  } catch (const json::exception&) {
  }
  throw Error(ErrorCode::kFailure,
              "a request to measure ceilings needs launch_us of 1 to 1e6 and 1 to 1000 samples");
}

std::string encode(const Ceilings& ceilings) {
  json document = {{"clock_mhz", ceilings.clock_mhz},
                   {"compiler", ceilings.compiler},
                   {"contended", ceilings.contended},
                   {"figures", json::object()}};
  for (const CeilingFigure& each : ceilings.figures) {
    document["figures"][each.name] = {{"median", each.median},
                                      {"low", each.low},
                                      {"high", each.high},
                                      {"clock_mhz", each.clock_mhz}};
  }
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

Ceilings decode_ceilings(std::string_view text) {
  try {
    const json document = json::parse(text);
    Ceilings ceilings;
    ceilings.clock_mhz = plausible(document.at("clock_mhz"), 0);
    document.at("compiler").get_to(ceilings.compiler);
    document.at("contended").get_to(ceilings.contended);
    const json& figures = document.at("figures");
    for (const std::string& name : ceiling_names()) {
      if (figures.contains(name)) ceilings.figures.push_back(figure_from(name, figures.at(name)));
    }
    if (ceilings.figures.size() == figures.size()) return ceilings;
  } catch (const json::exception&) {
  }
  throw Error(ErrorCode::kFailure,
              "the answer of the process that measures ceilings cannot be read");
}

Ceilings measure_ceilings(const CeilingOptions& options,
                          const std::function<void(const std::string&)>& progress,
                          const std::atomic<bool>& stop) {
  using Clock = std::chrono::steady_clock;
  ChildOptions child_options;
  child_options.command = options.command;
  child_options.command.push_back(std::to_string(options.ordinal));
  ChildProcess child(child_options);
  std::string phase = "start";
  if (!child.send({kCeilingRequest, 1, encode(options.effort)}, kSendLimit)) {
    throw_ended(child, phase);
  }
  Frame frame;
  for (auto deadline = Clock::now() + options.phase_deadline; Clock::now() < deadline;) {
    if (stop) throw Error(ErrorCode::kInterrupted, "interrupted; nothing was measured");
    const auto received = child.receive(frame, kSlice);
    if (received == ChildProcess::Receive::kTimeout) continue;
    if (received != ChildProcess::Receive::kFrame) throw_ended(child, phase);
    if (frame.type == kCeilingResult) return decode_ceilings(frame.payload);
    if (frame.type == kCeilingFailure) throw_failure(frame.payload);
    if (frame.type != kCeilingPhase) throw_ended(child, phase);
    phase = frame.payload.substr(0, 100);
    progress(phase);
    deadline = Clock::now() + options.phase_deadline;
  }
  throw Error(ErrorCode::kFailure,
              formatted("the GPU gave no answer within {} s while at '{}'; see 'vitune doctor'",
                        options.phase_deadline.count() / 1000, phase));
}

}  // namespace vitune
