// benchmarks/bench_reference.cpp -- The ladder of plain kernels beside libvitune's tuned one.
//
// For each problem every kernel is judged against fp64 and then raced, as bench_operators does. The
// default problems are those of data/reference_problems.json. Tune them first.
//
//   vitune_bench_reference [--problem TEXT]... [--out reference.json]
// SPDX-License-Identifier: Apache-2.0

#include <boost/program_options.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "benchmarks/operator_bench.h"
#include "catalogue/problem_set.h"
#include "core/data_dir.h"
#include "core/env.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/operator.h"
#include "probe/ladder.h"
#include "tuner/loop/tune_plan.h"
#include "tuner/measure/statistics.h"

namespace vitune::bench {
namespace {

namespace po = boost::program_options;
using nlohmann::ordered_json;

class ReferenceBench : public OperatorBench {
 public:
  ReferenceBench(int ordinal, int rounds)
      : OperatorBench(ordinal, rounds), compiler_(Compiler::open(read_environment())) {}

 protected:
  std::vector<Contestant> contestants(const Workload& workload, ProblemTimes& times) override {
    std::vector<Contestant> all = OperatorBench::contestants(workload, times);
    for (const std::string& name : ladder_names()) {
      try {
        all.push_back(rung(name, workload));
      } catch (const std::exception& error) {
        times.contestants[name].refused = error.what();
      }
    }
    return all;
  }

 private:
  Contestant rung(const std::string& name, const Workload& workload) {
    const AttentionProblem& problem = attention_of(workload.problem());
    const LadderKernel made = ladder_kernel(name, problem, device().arch());
    const CompileResult compiled = compiler_->compile(made.request);
    if (compiled.status != CompileStatus::kOk || !cubin_is_well_formed(compiled.cubin)) {
      throw Error(ErrorCode::kFailure, "it does not compile: " + compiled.log);
    }
    const auto kernel =
        std::make_shared<const CudaKernel>(driver(), compiled.cubin, made.request.entry);
    if (made.shape.shared_bytes > 0) kernel->reserve_shared(made.shape.shared_bytes);
    const AttentionParams params =
        attention_params(problem, Config(), attention_pointers(workload.addresses()), made.shape);
    return {name, [this, kernel, params, shape = made.shape] {
              kernel->launch(shape, &params, stream());
            }};
  }

  std::shared_ptr<const Compiler> compiler_;
};

struct Options {
  std::vector<std::string> problems;
  std::string out;
  int device = 0, rounds = 15;
};

// The texts of data/reference_problems.json.
std::vector<std::string> shipped_problems() {
  const auto data = find_data_dir_near(std::filesystem::read_symlink("/proc/self/exe"));
  if (!data) {
    throw Error(ErrorCode::kUsage,
                "reference_problems.json is not near this program; name problems with --problem");
  }
  std::vector<std::string> texts;
  for (const NamedProblem& named : load_problem_file(*data / "reference_problems.json")) {
    texts.push_back(named.problem->text());
  }
  return texts;
}

// Nothing if help was asked for. Throws Error(kUsage).
std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  po::options_description all("bench_reference");
  all.add_options()("problem", po::value(&options.problems)->value_name("TEXT"),
                    "a problem, \"bf16 b=32 h=12 n=197 d=64\"; may be repeated")(
      "out", po::value(&options.out)->value_name("FILE"), "write the JSON there; default: stdout")(
      "device", po::value(&options.device)->value_name("N"), "ordinal of the GPU; default 0")(
      "rounds", po::value(&options.rounds)->value_name("N"),
      "timed calls per kernel, 1 to 1000; default 15")("help", "this text");
  try {
    po::variables_map values;
    po::store(po::command_line_parser(argc, argv).options(all).positional({}).run(), values);
    po::notify(values);
    if (values.count("help") > 0) return std::cout << all, std::nullopt;
  } catch (const po::error& error) {
    throw Error(ErrorCode::kUsage, formatted("{}; see --help", error.what()));
  }
  if (options.rounds < 1 || options.rounds > 1000) {
    throw Error(ErrorCode::kUsage, formatted("--rounds {} is not 1 to 1000", options.rounds));
  }
  if (options.problems.empty()) options.problems = shipped_problems();
  return options;
}

// Bytes that a call allocates, as the peers count them: its output, since no kernel here has
// scratch memory.
std::int64_t call_bytes(const AttentionProblem& p) {
  return p.batch * p.heads * p.nq * p.d * element_bytes(p.dtype);
}

ordered_json row_of(const std::string& kernel, const AttentionProblem& problem,
                    const Samples& samples) {
  const Interval cold = median_interval(samples.cold_us);
  return {{"kernel", kernel},
          {"problem", problem.text()},
          {"tokens", problem.nk},
          {"us", cold.median},
          {"us_low", cold.low},
          {"us_high", cold.high},
          {"warm_us", median(samples.warm_us)},
          {"tflops", problem.flops() / cold.median / 1e6},
          {"gb_s", problem.min_bytes() / cold.median / 1e3},
          {"call_bytes", call_bytes(problem)},
          {"err_rms", samples.rms_error},
          {"err_max", samples.max_error}};
}

void show(const AttentionProblem& problem, const std::string& kernel, const std::string& result) {
  std::fprintf(stderr, "%-58s %-17s %s\n", problem.text().c_str(), kernel.c_str(), result.c_str());
}

// True if every kernel gave a time.
bool add_rows(ordered_json& document, const AttentionProblem& problem, const ProblemTimes& times) {
  std::vector<std::string> names = ladder_names();
  names.emplace_back(kVitune);
  bool complete = true;
  for (const std::string& name : names) {
    const Samples& samples = times.contestants.at(name);
    const std::string kernel = name == kVitune ? "tuned" : name;
    if (samples.refused.empty()) {
      ordered_json row = row_of(kernel, problem, samples);
      show(problem, kernel,
           formatted("{:12.1f} us {:8.1f} TFLOP/s", row["us"].get<double>(),
                     row["tflops"].get<double>()));
      if (name == kVitune) row["exact"] = samples.exact;
      document["rows"].push_back(std::move(row));
    } else {
      complete = false;
      show(problem, kernel, samples.refused);
      document["refused"].push_back(
          {{"kernel", kernel}, {"problem", problem.text()}, {"why", samples.refused}});
    }
  }
  return complete;
}

int run(const Options& options) {
  std::vector<AttentionProblem> problems;
  for (const std::string& text : options.problems) {
    problems.push_back(AttentionProblem::parse(text));
    if (const auto why = ladder_violation(problems.back())) {
      throw Error(ErrorCode::kUnsupported, problems.back().text() + ": " + *why);
    }
  }
  ReferenceBench bench(options.device, options.rounds);
  const DeviceInfo& device = bench.device();
  ordered_json document = {{"schema", 1},
                           {"device",
                            {{"name", device.name},
                             {"arch", device.arch()},
                             {"key", device.key()},
                             {"sm_count", device.sm_count},
                             {"driver_version", device.driver_version}}},
                           {"date", iso_utc_now()},
                           {"timing", "cold"},
                           {"rounds", options.rounds},
                           {"rows", ordered_json::array()},
                           {"refused", ordered_json::array()}};
  bool complete = true;
  for (const AttentionProblem& problem : problems) {
    complete &= add_rows(document, problem, bench.times(problem));
  }
  const std::string text = document.dump(1, ' ', false, ordered_json::error_handler_t::replace);
  if (options.out.empty()) {
    std::printf("%s\n", text.c_str());
  } else if (!(std::ofstream(options.out) << text << "\n").flush()) {
    throw Error(ErrorCode::kFailure, "--out '" + options.out + "' cannot be written");
  }
  return complete ? 0 : exit_status(ErrorCode::kFailure);
}

}  // namespace
}  // namespace vitune::bench

int main(int argc, char** argv) {
  using namespace vitune;
  try {
    const auto options = bench::parse_options(argc, argv);
    return options ? bench::run(*options) : 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "bench_reference: %s\n", error.what());
    return exit_status(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_reference: %s\n", error.what());
    return 1;
  }
}
