// benchmarks/bench_variants.cpp -- What a change of a kernel is worth: races versions of templates/
// and configs against each other on a GPU, after the tuner's judge has found them right.
//
// Usage: vitune_bench_variants --templates NAME=FOLDER ... [--cases FILE] [--rounds N] [--unjudged]
//        vitune_bench_variants --templates NAME=FOLDER ... --compile sm_90 [--out FOLDER]
// A case is a line `GROUP[/NAME]; PROBLEM; CONFIG`, of any operator. All cases of a group, which
// have one problem, and all versions of the templates run in one race, so that their times compare;
// ratios are to the group's first.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <boost/program_options.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/compiled_support.h"
#include "core/env.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/operator.h"
#include "generator/problem.h"
#include "tuner/judge/verify.h"
#include "tuner/measure/gpu_lock.h"
#include "tuner/measure/gpu_timer.h"
#include "tuner/measure/measure.h"
#include "tuner/measure/statistics.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

// One version of templates/, read from a folder.
struct Version {
  std::string name;
  std::vector<std::string> paths, texts;

  std::vector<EmbeddedFile> files() const {
    std::vector<EmbeddedFile> result;
    for (std::size_t i = 0; i < paths.size(); ++i) result.push_back({paths[i], texts[i]});
    return result;
  }
};

struct Variant {
  std::string group, name;
  ProblemPtr problem;
  Config config;
  const Version* version = nullptr;
  CompileRequest request;
  CompileResult compiled;
};

Version read_version(const std::string& text) {
  const std::size_t at = text.find('=');
  const fs::path folder = at == std::string::npos ? "" : text.substr(at + 1);
  if (at == 0 || !fs::is_directory(folder)) {
    throw Error(ErrorCode::kUsage,
                formatted("--templates '{}': give NAME=FOLDER, a copy of templates/", text));
  }
  Version version{text.substr(0, at), {}, {}};
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".cuh") {
      version.paths.push_back(fs::relative(entry.path(), folder).generic_string());
    }
  }
  std::sort(version.paths.begin(), version.paths.end());
  for (const std::string& path : version.paths) {
    std::ifstream file(folder / path);
    version.texts.emplace_back(std::istreambuf_iterator<char>(file),
                               std::istreambuf_iterator<char>());
  }
  return version;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  return first == std::string::npos
             ? ""
             : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::vector<Variant> read_cases(std::istream& in, const std::vector<Version>& versions) {
  std::vector<Variant> variants;
  for (std::string line; std::getline(in, line);) {
    line = trimmed(line);
    if (line.empty() || line[0] == '#') continue;
    const std::size_t first = line.find(';'), second = line.find(';', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      throw Error(ErrorCode::kUsage,
                  formatted("'{}' is no case: give GROUP[/NAME]; PROBLEM; CONFIG", line));
    }
    const std::string name = trimmed(line.substr(0, first));
    for (const Version& version : versions) {
      variants.push_back({name.substr(0, name.find('/')),
                          name + " " + version.name,
                          parse_problem(trimmed(line.substr(first + 1, second - first - 1))),
                          Config::parse(trimmed(line.substr(second + 1))),
                          &version,
                          {},
                          {}});
    }
  }
  if (variants.empty()) throw Error(ErrorCode::kUsage, "there is no case to race");
  return variants;
}

// On all cores: NVRTC is thread safe. Throws what one of them threw.
void compile(std::vector<Variant>& variants, const Compiler& compiler, const std::string& arch) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto compile_one = [&](Variant& variant) {
    variant.request = variant.problem->op().request(*variant.problem, variant.config, arch);
    const std::vector<EmbeddedFile> files = variant.version->files();
    variant.request.source = assemble(variant.request.source.main, files);
    variant.compiled = compiler.compile(variant.request);
  };
  const auto work = [&] {
    try {
      for (std::size_t at = next++; at < variants.size(); at = next++) compile_one(variants[at]);
    } catch (...) {
      const std::lock_guard<std::mutex> hold(mutex);
      failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back(work);
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

using Group = std::vector<const Variant*>;

// In the order of their first cases.
std::vector<Group> groups_of(const std::vector<Variant>& variants) {
  std::vector<Group> groups;
  for (const Variant& variant : variants) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& each) {
      return each.front()->group == variant.group;
    });
    if (group == groups.end()) {
      groups.push_back({&variant});
    } else if ((*group).front()->problem->text() == variant.problem->text()) {
      group->push_back(&variant);
    } else {
      throw Error(ErrorCode::kUsage,
                  formatted("the cases of group '{}' have different problems: give each its own "
                            "group",
                            variant.group));
    }
  }
  return groups;
}

// Lists the compiler's figures of each, without a GPU; cubins go into the folder `out`, if it is
// not empty, for a disassembler. Whether all compile.
bool list_compiled(const std::vector<Variant>& variants, const fs::path& out) {
  bool all = true;
  std::error_code error;
  if (!out.empty()) fs::create_directories(out, error);
  if (error) {
    throw Error(ErrorCode::kUsage,
                formatted("--out '{}': {}: give a folder", out.string(), error.message()));
  }
  for (const Variant& variant : variants) {
    const CompileResult& result = variant.compiled;
    const bool ok = result.status == CompileStatus::kOk;
    std::cout << formatted("{:<28} {}\n", variant.name,
                           ok ? formatted("{} registers, {} bytes spilled", result.facts.registers,
                                          result.facts.spill_bytes)
                              : result.log);
    all &= ok;
    if (!ok || out.empty()) continue;
    std::string name = variant.name;
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == '/' || c == ' '; }, '_');
    std::ofstream file(out / (name + ".cubin"), std::ios::binary);
    file.write(reinterpret_cast<const char*>(result.cubin.data()),
               static_cast<std::streamsize>(result.cubin.size()));
    if (!file.flush()) throw Error(ErrorCode::kFailure, "cannot write into " + out.string());
  }
  return all;
}

// A variant that takes part in its group's race.
struct Contestant {
  const Variant* variant;
  CudaModule module;
  BoundPlan launch;
};

// Everything that lives on the device.
class Races {
 public:
  explicit Races(bool judged)
      : driver_(CudaDriver::open()),
        device_(driver_->device_info(0)),
        context_(driver_, 0),
        stream_(*driver_),
        support_(bench::support_kernels(*driver_, device_, stream_)),
        timer_(context_, stream_, *support_, device_),
        lock_path_(gpu_lock_path(device_)),
        judged_(judged) {
    timer_.warm_up();
  }
  const DeviceInfo& device() const { return device_; }

  // Prints a line per variant of one group.
  void run(const Group& group, int rounds) {
    Verifier verifier({context_, stream_, *support_, device_}, group.front()->problem);
    Workload& tensors = verifier.timing_workload();
    std::vector<Contestant> contestants;
    for (const Variant* variant : group) {
      if (auto ready = contestant(*variant, verifier, tensors))
        contestants.push_back(std::move(*ready));
    }
    if (contestants.empty()) return;
    verifier.timing_workload();  // the judge has drawn other inputs
    std::vector<Launch> launches;
    for (const Contestant& each : contestants) {
      launches.push_back([this, &each] { each.launch(stream_); });
    }
    const GpuLock lock(lock_path_, kGpuLockPatience);
    const RaceTimes times = race(timer_, launches, rounds, 1);
    timer_.clear();
    const double warm = median(times.warm_us[0]), cold = median(times.cold_us[0]);
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      const double warm_us = median(times.warm_us[i]), cold_us = median(times.cold_us[i]);
      std::cout << formatted(
          "{:<28} warm {:9.2f} us {:.3f}  cold {:9.2f} us {:.3f}  {} registers{}\n",
          contestants[i].variant->name, warm_us, warm_us / warm, cold_us, cold_us / cold,
          contestants[i].variant->compiled.facts.registers,
          times.low_confidence || lock.contended() ? ", something moved meanwhile" : "");
    }
    std::fflush(stdout);
  }

 private:
  std::optional<Contestant> contestant(const Variant& variant, Verifier& verifier,
                                       Workload& tensors) {
    const auto refuse = [&](const std::string& why) {
      std::cout << formatted("{:<28} {}\n", variant.name, why);
      return std::nullopt;
    };
    if (variant.compiled.status != CompileStatus::kOk) return refuse(variant.compiled.log);
    try {
      CudaModule module(*driver_, variant.compiled.cubin);
      if (judged_) {
        const Verdict verdict = verifier.verify(module, variant.config);
        if (verdict.status != TrialStatus::kOk) return refuse(verdict.reason);
      }
      BoundPlan launch =
          tensors.bind(prepare_plan(module, tensors.problem(), variant.config, device_));
      return Contestant{&variant, std::move(module), std::move(launch)};
    } catch (const CudaError& error) {
      if (error.sticky()) throw;
      return refuse(error.what());
    }
  }

  std::shared_ptr<const CudaDriver> driver_;
  DeviceInfo device_;
  CudaContext context_;
  CudaStream stream_;
  std::unique_ptr<SupportKernels> support_;
  GpuTimer timer_;
  fs::path lock_path_;
  bool judged_;
};

int run(int argc, char** argv) {
  po::options_description options("Options");
  options.add_options()("help,h", "print this and end")(
      "templates", po::value<std::vector<std::string>>()->required(),
      "NAME=FOLDER; may be repeated")("cases", po::value<std::string>()->default_value("-"),
                                      "a file, or - for standard input")(
      "rounds", po::value<int>()->default_value(15), "of each race")(
      "unjudged", po::bool_switch(), "race kernels without judging them: for leaving parts out")(
      "compile", po::value<std::string>(),
      "only compile, for this architecture, and print registers and spills; needs no GPU")(
      "out", po::value<std::string>()->default_value(""), "a folder for the cubins of --compile");
  po::variables_map values;
  po::store(po::parse_command_line(argc, argv, options), values);
  if (values.count("help") > 0) {
    std::cout << "Usage: vitune_bench_variants --templates NAME=FOLDER ... < cases\n" << options;
    return 0;
  }
  po::notify(values);
  const int rounds = values["rounds"].as<int>();
  if (rounds < 1) throw Error(ErrorCode::kUsage, "--rounds is 1 or more");
  std::vector<Version> versions;
  for (const std::string& text : values["templates"].as<std::vector<std::string>>()) {
    versions.push_back(read_version(text));
  }
  const std::string from = values["cases"].as<std::string>();
  std::ifstream file;
  if (from != "-") file.open(from);
  if (from != "-" && !file) {
    throw Error(ErrorCode::kUsage, formatted("--cases '{}' cannot be read", from));
  }
  std::vector<Variant> variants = read_cases(from == "-" ? std::cin : file, versions);
  const std::vector<Group> groups = groups_of(variants);
  const std::string out = values["out"].as<std::string>();
  if (!out.empty() && values.count("compile") == 0) {
    throw Error(ErrorCode::kUsage, "--out goes with --compile");
  }

  const auto compiler = Compiler::open(read_environment());
  if (values.count("compile") > 0) {
    compile(variants, *compiler, values["compile"].as<std::string>());
    return list_compiled(variants, out) ? 0 : 1;
  }
  Races races(!values["unjudged"].as<bool>());
  compile(variants, *compiler, races.device().arch());
  for (const Group& group : groups) races.run(group, rounds);
  return 0;
}

}  // namespace
}  // namespace vitune

int main(int argc, char** argv) {
  try {
    return vitune::run(argc, argv);
  } catch (const vitune::Error& error) {
    std::cerr << "vitune_bench_variants: " << error.what() << "\n";
    return vitune::exit_status(error.code());
  } catch (const std::exception& error) {
    std::cerr << "vitune_bench_variants: " << error.what() << "\n";
    return 2;
  }
}
