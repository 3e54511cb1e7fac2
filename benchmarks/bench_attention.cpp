// benchmarks/bench_attention.cpp -- Whole attention calls of the benchmark problems: vitune, and
// cuDNN where it was built in.
//
// One benchmark per peer, kind and problem, "vitune/cold/ViT-B/16@224 b32", labelled with the
// problem's text; each repetition is one sample of a race in which all peers take turns. What
// serves vitune is what libvitune finds: tune first. The JSON is for compare.py and `vitune
// compare`:
//
//   vitune_bench_attention --benchmark_out=FILE --benchmark_out_format=json
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <boost/program_options.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/attention_bench.h"
#include "catalogue/problem_set.h"
#include "core/data_dir.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/attention/floor.h"

namespace vitune::bench {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

struct Options {
  std::vector<std::string> problems, files;
  int device = 0, rounds = 30;
};

po::options_description description(Options& options) {
  po::options_description all("bench_attention, beside Google Benchmark's own options");
  all.add_options()("problem", po::value(&options.problems)->value_name("TEXT"),
                    "a problem, \"bf16 b=32 h=12 n=197 d=64\"; may be repeated")(
      "from", po::value(&options.files)->value_name("FILE"),
      "the problems of a file; may be repeated; default: bench_problems.json")(
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

std::string shipped_problems() {
  const auto data = find_data_dir_near(fs::read_symlink("/proc/self/exe"));
  if (data) return (*data / "bench_problems.json").string();
  throw Error(ErrorCode::kUsage,
              "bench_problems.json is not near this program; name a file with --from, or a problem "
              "with --problem");
}

std::vector<NamedProblem> requested(Options options) {
  std::vector<NamedProblem> problems;
  for (const std::string& text : options.problems) {
    NamedProblem named;
    named.problem = parse_problem(text);
    named.name = named.problem->text();
    problems.push_back(std::move(named));
  }
  if (options.problems.empty() && options.files.empty()) options.files = {shipped_problems()};
  for (const std::string& file : options.files) {
    for (NamedProblem& each : load_problem_file(file)) problems.push_back(std::move(each));
  }
  return problems;
}

// One benchmark: hands out the samples of its race one by one.
struct Case {
  std::shared_ptr<AttentionBench> bench;
  NamedProblem problem;
  std::string peer;
  Objective kind;
  std::shared_ptr<bool> failed;  // of the whole program
  std::size_t next = 0;

  void run(benchmark::State& state);
  void note(benchmark::State& state, const PeerSamples& samples, bool low_confidence) const;
};

void Case::note(benchmark::State& state, const PeerSamples& samples, bool low_confidence) const {
  // Not where they are 0: their relative deviation would be written as NaN, which is no JSON.
  const auto count = [&](const char* name, double value) {
    if (value > 0) state.counters[name] = value;
  };
  count("max_error", samples.max_error);
  count("rms_error", samples.rms_error);
  count("low_confidence", low_confidence ? 1 : 0);
  if (peer == "vitune") count("exact", samples.exact ? 1 : 0);
  const auto floor =
      attention_floor(attention_of(*problem.problem), bench->device(),
                      kind == Objective::kCold ? Residency::kCold : Residency::kWarm);
  if (floor) count("floor_us", floor->us);
}

void Case::run(benchmark::State& state) {
  state.SetLabel(problem.problem->text());
  try {
    const ProblemTimes& times = bench->times(problem.problem);
    const PeerSamples& samples = times.peers.at(peer);
    if (!samples.refused.empty()) {
      *failed |= peer == "vitune";  // what a peer cannot do is a result
      state.SkipWithError(samples.refused.c_str());
      return;
    }
    const auto& all = kind == Objective::kCold ? samples.cold_us : samples.warm_us;
    for (auto _ : state) state.SetIterationTime(all[next++ % all.size()] * 1e-6);
    note(state, samples, times.low_confidence);
  } catch (const std::exception& error) {
    *failed = true;
    state.SkipWithError(error.what());
  }
}

void register_all(const std::shared_ptr<AttentionBench>& bench,
                  const std::vector<NamedProblem>& problems, int rounds,
                  const std::shared_ptr<bool>& failed) {
  for (const NamedProblem& problem : problems) {
    for (const std::string& peer : peer_names()) {
      for (const Objective kind : {Objective::kCold, Objective::kWarm}) {
        const auto one = std::make_shared<Case>(Case{bench, problem, peer, kind, failed});
        const std::string name = formatted("{}/{}/{}", peer, objective_name(kind), problem.name);
        benchmark::RegisterBenchmark(name.c_str(), [one](benchmark::State& s) { one->run(s); })
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond)
            ->Iterations(1)
            ->Repetitions(rounds)
            ->DisplayAggregatesOnly(true);
      }
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
  const auto bench = std::make_shared<AttentionBench>(options.device, options.rounds);
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
    std::fprintf(stderr, "bench_attention: %s\n", error.what());
    return vitune::exit_status(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_attention: %s\n", error.what());
    return 1;
  }
}
