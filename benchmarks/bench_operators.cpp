// benchmarks/bench_operators.cpp -- Whole calls of libvitune: the shipped problems of every
// operator.
//
// Two benchmarks per problem, named by operator and problem, labelled with what people call it:
//
//   linear/bf16 m=6304 n=3072 k=768 bias act=gelu/cold        (ViT-B b32 fc1)
//   linear/bf16 m=6304 n=3072 k=768 bias act=gelu/warm
//
// Each repetition is one sample of a race. What serves a problem is what libvitune finds: tune
// first. `vitune compare` and `vitune report` read the JSON:
//
//   vitune_bench_operators --benchmark_filter=^linear/ --benchmark_out=FILE
//                          --benchmark_out_format=json
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <boost/program_options.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "benchmarks/operator_bench.h"
#include "catalogue/problem_set.h"
#include "core/data_dir.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/floor.h"
#include "vitune/vitune.h"

namespace vitune::bench {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

struct Options {
  std::vector<std::string> problems, files;
  int device = 0, rounds = 30;
};

po::options_description description(Options& options) {
  po::options_description all("bench_operators, beside Google Benchmark's own options");
  all.add_options()("problem", po::value(&options.problems)->value_name("TEXT"),
                    "a problem, \"bf16 b=32 h=12 n=197 d=64\"; may be repeated")(
      "from", po::value(&options.files)->value_name("FILE"),
      "the problems of a file; may be repeated; default: the shipped *_problems.json")(
      "device", po::value(&options.device)->value_name("N")->default_value(0),
      "ordinal of the GPU")(
      "rounds", po::value(&options.rounds)->value_name("N")->default_value(30),
      "samples per benchmark, 1 to 1000")("help", "this text, then Google Benchmark's");
  return all;
}

// Throws Error(kUsage).
Options parse_options(int argc, char** argv) {
  Options options;
  try {
    po::variables_map values;
    po::store(
        po::command_line_parser(argc, argv)
            .options(description(options))
            .positional({})
            .style(po::command_line_style::default_style & ~po::command_line_style::allow_guessing)
            .run(),
        values);
    po::notify(values);
  } catch (const po::error& error) {
    throw Error(ErrorCode::kUsage, formatted("{}; see --help", error.what()));
  }
  if (options.rounds < 1 || options.rounds > 1000) {
    throw Error(ErrorCode::kUsage, formatted("--rounds {} is not 1 to 1000", options.rounds));
  }
  return options;
}

// The files of the data folder, by name.
std::vector<std::string> shipped_files() {
  constexpr std::string_view kEnd = "_problems.json";
  const auto data = find_data_dir_near(fs::read_symlink("/proc/self/exe"));
  if (!data) {
    throw Error(ErrorCode::kUsage,
                "the shipped problems are not near this program; name a file with --from, or a "
                "problem with --problem");
  }
  std::set<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(*data)) {
    if (entry.path().filename().string().ends_with(kEnd)) files.insert(entry.path().string());
  }
  return {files.begin(), files.end()};
}

// Each problem once, with the first of its names.
std::vector<NamedProblem> requested(Options options) {
  std::vector<NamedProblem> problems;
  std::set<std::string> known;
  const auto add = [&](NamedProblem named) {
    if (known.insert(named.problem->text()).second) problems.push_back(std::move(named));
  };
  for (const std::string& text : options.problems) {
    NamedProblem named;
    named.problem = parse_problem(text);
    named.name = named.problem->text();
    add(std::move(named));
  }
  if (options.problems.empty() && options.files.empty()) options.files = shipped_files();
  for (const std::string& file : options.files) {
    for (NamedProblem& each : load_problem_file(file)) add(std::move(each));
  }
  return problems;
}

// "linear/bf16 m=6304 n=3072 k=768 bias act=gelu": the operator's name is not said twice.
std::string benchmark_name(const ProblemPtr& problem) {
  const std::string text = problem->text();
  return formatted("{}/{}", problem->operator_name(), text.substr(text.find(' ') + 1));
}

// One benchmark: hands out the samples of its race one by one.
struct Case {
  std::shared_ptr<OperatorBench> bench;
  NamedProblem problem;
  Objective kind;
  std::shared_ptr<bool> failed;  // of the whole program
  std::size_t next = 0;

  void run(benchmark::State& state);
  void note(benchmark::State& state, double us, const Samples& samples, bool low_confidence) const;
};

void Case::note(benchmark::State& state, double us, const Samples& samples,
                bool low_confidence) const {
  // Not where they are 0: their relative deviation would be written as NaN, which is no JSON.
  const auto count = [&](const char* name, double value) {
    if (value > 0) state.counters[name] = value;
  };
  const auto& asked = *problem.problem;
  const Demand demand = asked.op().demand(asked, bench->device());
  // Products are rated by their arithmetic, all else by its bytes.
  if (demand.tensor_flops > 0) {
    count("TFLOP/s", asked.op().flops(asked) / us / 1e6);
  } else {
    count("GB/s", asked.op().min_bytes(asked) / us / 1e3);
  }
  if (const auto floor = floor_of(demand, bench->device(),
                                  kind == Objective::kCold ? Residency::kCold : Residency::kWarm)) {
    count("floor_us", floor->us);
    count("floor_share", floor->us / us);
  }
  count("max_error", samples.max_error);
  count("rms_error", samples.rms_error);
  count("low_confidence", low_confidence ? 1 : 0);
  count("exact", samples.exact ? 1 : 0);
}

void Case::run(benchmark::State& state) {
  state.SetLabel(problem.name);
  try {
    const ProblemTimes& times = bench->times(problem.problem);
    const Samples& samples = times.contestants.at(kVitune);
    if (!samples.refused.empty()) {
      *failed = true;
      state.SkipWithError(samples.refused.c_str());
      return;
    }
    const auto& all = kind == Objective::kCold ? samples.cold_us : samples.warm_us;
    const double us = all[next++ % all.size()];
    for (auto _ : state) state.SetIterationTime(us * 1e-6);
    note(state, us, samples, times.low_confidence);
  } catch (const std::exception& error) {
    *failed = true;
    state.SkipWithError(error.what());
  }
}

void register_all(const std::shared_ptr<OperatorBench>& bench,
                  const std::vector<NamedProblem>& problems, int rounds,
                  const std::shared_ptr<bool>& failed) {
  for (const NamedProblem& problem : problems) {
    for (const Objective kind : {Objective::kCold, Objective::kWarm}) {
      const auto one = std::make_shared<Case>(Case{bench, problem, kind, failed});
      const std::string name =
          formatted("{}/{}", benchmark_name(problem.problem), objective_name(kind));
      benchmark::RegisterBenchmark(name.c_str(), [one](benchmark::State& s) { one->run(s); })
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond)
          ->Iterations(1)
          ->Repetitions(rounds)
          ->DisplayAggregatesOnly(true);
    }
  }
}

int run(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    Options ignored;
    if (std::string(argv[i]) == "--help") std::cout << description(ignored) << std::endl;
  }
  benchmark::Initialize(&argc, argv);
  const Options options = parse_options(argc, argv);
  const std::vector<NamedProblem> problems = requested(options);
  const auto bench = std::make_shared<OperatorBench>(options.device, options.rounds);
  benchmark::AddCustomContext("vitune_version", std::to_string(vitune_version()));
  benchmark::AddCustomContext("vitune_device", bench->device().name);
  benchmark::AddCustomContext("vitune_device_key", bench->device().key());
  benchmark::AddCustomContext("vitune_driver_version",
                              std::to_string(bench->device().driver_version));
  const auto failed = std::make_shared<bool>(false);
  register_all(bench, problems, options.rounds, failed);
  const bool any = benchmark::RunSpecifiedBenchmarks() > 0;
  // The cases hold what lives on the device: they go before the driver does.
  benchmark::ClearRegisteredBenchmarks();
  benchmark::Shutdown();
  return !any ? 2 : *failed ? 1 : 0;
}

}  // namespace
}  // namespace vitune::bench

int main(int argc, char** argv) {
  try {
    return vitune::bench::run(argc, argv);
  } catch (const vitune::Error& error) {
    std::fprintf(stderr, "bench_operators: %s\n", error.what());
    return vitune::exit_status(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_operators: %s\n", error.what());
    return 1;
  }
}
