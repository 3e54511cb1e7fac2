// benchmarks/bench_cold_start.cpp -- What the first calls cost: opening, first launch, first miss,
// memory.
//
// On a database of 10,000 winners whose pages the system has in memory. The driver's own start (or
// that of the mock) is not in the times: a program that uses the GPU has paid it before.
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include "benchmarks/call_times.h"
#include "benchmarks/dispatch_fixture.h"

namespace vitune::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kMemoryProbe = "--memory-probe=";
constexpr const char* kFirstProbe = "--first-probe=";

struct Bench {
  Driver driver = Driver::open();
  WinnerDatabase database{driver};
  TensorMemory memory{driver};
};

Bench& bench() {
  static Bench the_bench;
  return the_bench;
}

// Times body(context) with a new context each time; with `with_opening`, its opening too.
template <typename Body>
void with_new_context(benchmark::State& state, const ContextOptions& options, bool with_opening,
                      Body&& body) {
  try {
    for (auto _ : state) {
      const Clock::time_point opening = Clock::now();
      Context context(options);
      const Clock::time_point opened = Clock::now();
      body(bench(), context);
      const Clock::time_point began = with_opening ? opening : opened;
      state.SetIterationTime(std::chrono::duration<double>(Clock::now() - began).count());
    }
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

void look_up_first(Bench&, Context& context) {
  const KernelSelection found = context.query(WinnerDatabase::problem(8));
  if (found.served != Served::kExact) throw std::runtime_error("no winner: " + found.reason);
}

// A context, and which kernel serves one problem.
void open_and_look_up(benchmark::State& state) {
  with_new_context(state, bench().database.options(), true, look_up_first);
}

// The same where nothing was tuned yet: no database of the user's, and the winners are shipped.
void open_shipped_and_look_up(benchmark::State& state) {
  ContextOptions options = bench().database.options();
  options.shipped_database = bench().database.path();
  options.database = bench().database.path() + ".is_not_there";
  with_new_context(state, options, true, look_up_first);
}

// The first call of a problem whose kernel is stored, up to the launch.
void first_launch(benchmark::State& state) {
  with_new_context(state, bench().database.options(), false, [](Bench& b, Context& context) {
    const Attention attention = WinnerDatabase::problem(8);
    context.forward(attention, b.memory.tensors(attention));
  });
}

// The second problem of the same kernel: what a model with many shapes pays for each.
void next_launch(benchmark::State& state) {
  Bench& b = bench();
  try {
    Context context(b.database.options());
    int index = 0;
    for (auto _ : state) {
      const Attention attention = WinnerDatabase::problem(4 * index);
      const AttentionTensors tensors = b.memory.tensors(attention);
      index = (index + 1) % (WinnerDatabase::kWinners / 4);
      const Clock::time_point began = Clock::now();
      context.forward(attention, tensors);
      state.SetIterationTime(std::chrono::duration<double>(Clock::now() - began).count());
    }
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

// The first call of a problem without a winner: the rows of all winners are read for the nearest.
void first_miss(benchmark::State& state) {
  with_new_context(state, bench().database.options(), false, [](Bench& b, Context& context) {
    const Attention attention = WinnerDatabase::missing_problem();
    context.forward(attention, b.memory.tensors(attention));
    const vitune_stats stats = context.stats();
    if (stats.nearest_calls + stats.default_calls != 1) throw std::runtime_error("no miss");
  });
}

// --- in a process of its own: what is made once per process, and memory, whose peak never goes
// down

// The figures that this program prints when it is started with `probe` and the database's path.
struct ProbeFigures {
  double values[3] = {};
  bool read = false;
};
ProbeFigures run_probe(const char* probe) {
  const std::string command = "/proc/" + std::to_string(getpid()) + "/exe " + probe;
  ProbeFigures figures;
  FILE* child = popen((command + bench().database.path()).c_str(), "r");
  if (child == nullptr) return figures;
  auto& v = figures.values;
  const bool read = std::fscanf(child, "%lf %lf %lf", &v[0], &v[1], &v[2]) >= 1;
  figures.read = pclose(child) == 0 && read;
  return figures;
}

ContextOptions probe_options(const std::string& database) {
  return {.read_only = true, .compile = false, .database = database, .shipped_database = ""};
}

// Prints the seconds of open_and_look_up() as the first thing that a process does with the library,
// by the clock and of the processor.
int probe_first(const std::string& database) {
  const Driver driver = Driver::open();
  const TensorMemory memory(driver);
  const double worked = thread_ns();
  const Clock::time_point began = Clock::now();
  Context context(probe_options(database));
  const bool found = context.query(WinnerDatabase::problem(8)).served == Served::kExact;
  const double elapsed = std::chrono::duration<double>(Clock::now() - began).count();
  std::printf("%.9f %.9f\n", elapsed, (thread_ns() - worked) * 1e-9);
  return found ? 0 : 1;
}

// One process per iteration.
void open_and_look_up_in_new_process(benchmark::State& state) {
  for (auto _ : state) {
    const ProbeFigures figures = run_probe(kFirstProbe);
    if (!figures.read) return state.SkipWithError("the process that is timed failed");
    state.SetIterationTime(figures.values[0]);
    state.counters["cpu_us"] = figures.values[1] * 1e6;
  }
}

// "VmHWM: 1234 kB" of this process in megabytes (10^6).
double status_mb(const char* field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field, 0) == 0) {
      return std::strtod(line.c_str() + std::strlen(field), nullptr) * 1024e-6;
    }
  }
  return 0;
}

// Prints what the process held before and at most since then. The database was made by the parent.
int probe_memory(const std::string& database) {
  const Driver driver = Driver::open();
  const TensorMemory memory(driver);
  const double before = status_mb("VmRSS:");
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak counts from here
  Context context(probe_options(database));
  Attention attention = WinnerDatabase::problem(8);
  context.forward(attention, memory.tensors(attention));
  const double exact = status_mb("VmHWM:");
  attention = WinnerDatabase::missing_problem();
  context.forward(attention, memory.tensors(attention));
  const double miss = status_mb("VmHWM:");
  std::printf("%.3f %.3f %.3f\n", before, exact, miss);
  return 0;
}

// Peak resident memory that the library adds: with exact calls only, and after a miss.
void peak_memory(benchmark::State& state) {
  for (auto _ : state) {
    const Clock::time_point began = Clock::now();
    const ProbeFigures figures = run_probe(kMemoryProbe);
    const auto [before, exact, miss] = figures.values;
    if (!figures.read) return state.SkipWithError("the process that measures memory failed");
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - began).count());
    state.counters["before_mb"] = before;
    state.counters["exact_mb"] = exact - before;
    state.counters["miss_mb"] = miss - before;
  }
}

BENCHMARK(open_and_look_up)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(open_and_look_up_in_new_process)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(1)
    ->Repetitions(25)
    ->ReportAggregatesOnly();
BENCHMARK(open_shipped_and_look_up)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(first_launch)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(next_launch)->UseManualTime()->Unit(benchmark::kMicrosecond)->Iterations(2000);
BENCHMARK(first_miss)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(peak_memory)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace vitune::bench

int main(int argc, char** argv) {
  using namespace vitune::bench;
  try {
    const std::string first = argc == 2 ? argv[1] : "";
    if (first.starts_with(kMemoryProbe)) {
      return probe_memory(first.substr(std::strlen(kMemoryProbe)));
    }
    if (first.starts_with(kFirstProbe)) return probe_first(first.substr(std::strlen(kFirstProbe)));
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    add_report_context(Driver::open());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_cold_start: %s\n", error.what());
    return 3;
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
