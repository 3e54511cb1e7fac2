// cli/verbs/bench_model_file.cpp -- A row for each batch, and a table of its slowest steps.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/bench_model_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/arguments/model_inputs.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "cli/passes/opened_model.h"
#include "cli/passes/pass_times.h"
#include "core/error.h"
#include "core/format.h"
#include "core/primary_context.h"
#include "runtime/api/last_error.h"

namespace vitune {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMostShown = 10;  // steps of a batch; JSON has all

std::string megabytes(std::int64_t bytes) {
  return formatted("{:.1f}", static_cast<double>(bytes) / 1e6);
}

// A problem of a session, with the time of a call.
struct TimedStep {
  const ModelStep* step = nullptr;
  double us = 0;
  vitune_outcome outcome = VITUNE_DEFAULT;
};

class FileBench {
 public:
  FileBench(Session& session, const std::string& path)
      : session_(session), opened_(session, path, one_device(session)) {
    const Align right = Align::kRight;
    passes_.column("batch", right).column("pass us [95 %]", right, timing_titles("pass"));
    passes_.column("images/s", right).column("host us", right, {"host_us"});
    passes_.column("arena MB", right, {"arena_mb"}).column("weights MB", right, {"weights_mb"});
    passes_.column("in winners", right, {"winner_share"});
    steps_.column("batch", right).column("node").column("us", right);
    steps_.column("of steps", right, {"share"}).column("served").column("problem");
    document_["file"] = path;
    document_["device"] = device_json(opened_.context.driver().device_info(one_device(session)));
    document_["passes"] = ordered_json::array();
  }

  int run() {
    for (const std::int64_t batch : model_input(session_).images) {
      if (session_.stop) break;
      session_.console.progress(formatted("batch {}", batch));
      add(batch);
    }
    session_.console.end_progress();
    document_["interrupted"] = session_.stop.load();
    session_.console.show(passes_, document_, "nothing was measured");
    if (session_.console.format() == Format::kText && !steps_.empty()) {
      session_.console.print("\n");
      session_.console.show(steps_, document_, "");
    }
    return session_.stop ? exit_status(ErrorCode::kInterrupted) : 0;
  }

 private:
  void add(std::int64_t batch) {
    const CurrentContext current(opened_.context.primary());
    ModelSession pass(opened_.model, batch, false);
    const PassTimes times = time_pass(pass, session_.stop);
    const std::vector<TimedStep> steps = timed_steps(pass, times);
    const double sum = sum_of(steps, [](const TimedStep&) { return true; });
    const double in_winners =
        sum_of(steps, [](const TimedStep& step) { return step.outcome == VITUNE_EXACT; });
    const double share = sum > 0 ? in_winners / sum : 0;
    const double images_s = 1e6 * static_cast<double>(batch) / times.pass.median_us;
    const std::int64_t weights = opened_.model.weight_bytes_loaded();
    passes_.row({formatted("{}", batch), timing_cell(times.pass), formatted("{:.0f}", images_s),
                 formatted("{:.1f}", times.host_us), megabytes(pass.arena_bytes()),
                 megabytes(weights), share_cell(share)});
    document_["passes"].push_back({{"batch", batch},
                                   {"pass", timing_json(times.pass)},
                                   {"images_s", images_s},
                                   {"host_us", times.host_us},
                                   {"arena_bytes", pass.arena_bytes()},
                                   {"weight_bytes", weights},
                                   {"winner_share", share},
                                   {"steps", ordered_json::array()}});
    add_steps(batch, steps, sum);
  }

  std::vector<TimedStep> timed_steps(const ModelSession& pass, const PassTimes& times) {
    std::vector<TimedStep> steps;
    for (std::size_t i = 0; i < times.steps_us.size(); ++i) {
      const ModelStep& step = pass.bound().steps[i];
      vitune_selection selection = VITUNE_SELECTION_INIT;
      if (opened_.context.query(step.problem, &selection) != VITUNE_OK) {
        throw Error(ErrorCode::kFailure, last_error());
      }
      steps.push_back({&step, times.steps_us[i], selection.outcome});
    }
    std::ranges::stable_sort(steps, std::greater<>(), &TimedStep::us);
    return steps;
  }

  template <typename Counts>
  static double sum_of(const std::vector<TimedStep>& steps, const Counts& counts) {
    return std::accumulate(steps.begin(), steps.end(), 0.0, [&](double sum, const TimedStep& s) {
      return counts(s) ? sum + s.us : sum;
    });
  }

  static std::string served_by(vitune_outcome outcome) {
    if (outcome == VITUNE_EXACT) return "exact";
    if (outcome == VITUNE_NEAREST) return "nearest";
    return outcome == VITUNE_TRANSFERRED ? "transferred" : "default";
  }

  // The slowest first.
  void add_steps(std::int64_t batch, const std::vector<TimedStep>& steps, double sum) {
    ordered_json& all = document_["passes"].back()["steps"];
    for (const TimedStep& each : steps) {
      const std::string served = served_by(each.outcome), text = each.step->problem->text();
      all.push_back({{"node", each.step->at},
                     {"us", each.us},
                     {"served", served},
                     {"copy", each.step->is_copy},
                     {"problem", text}});
      if (all.size() > kMostShown) continue;
      steps_.row({formatted("{}", batch), each.step->at, microseconds_cell(each.us),
                  share_cell(sum > 0 ? each.us / sum : 0), served, text});
    }
  }

  Session& session_;
  OpenedModel opened_;
  Table passes_, steps_;
  ordered_json document_ = new_document("model_bench");
};

}  // namespace

int bench_model_file(Session& session) {
  session.refuse({"dtype", "as", "operator", "problem", "preset", "from", "objective", "jobs"},
                 "does not go with a model file, whose passes are measured whole");
  return FileBench(session, only_model_file(session)).run();
}

}  // namespace vitune
