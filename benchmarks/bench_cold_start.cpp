// benchmarks/bench_cold_start.cpp -- What the first calls cost: opening, first launch, first miss,
// memory.
//
// On a database of 10,000 winners whose pages the system has in memory. The driver's own start (or
// that of the mock) is not in the times: a program that uses the GPU has paid it before.
#include <benchmark/benchmark.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include "benchmarks/dispatch_fixture.h"

namespace vitune::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kProbe = "--memory-probe=";

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
void with_new_context(benchmark::State& state, bool with_opening, Body&& body) {
  Bench& b = bench();
  try {
    for (auto _ : state) {
      const Clock::time_point opening = Clock::now();
      Context context(b.database.options());
      const Clock::time_point opened = Clock::now();
      body(b, context);
      const Clock::time_point began = with_opening ? opening : opened;
      state.SetIterationTime(std::chrono::duration<double>(Clock::now() - began).count());
    }
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

// A context, and which kernel serves one problem.
void open_and_look_up(benchmark::State& state) {
  with_new_context(state, true, [](Bench&, Context& context) {
    const KernelSelection found = context.query(WinnerDatabase::problem(8));
    if (found.served != Served::kExact) throw std::runtime_error("no winner: " + found.reason);
  });
}

// The first call of a problem whose kernel is stored, up to the launch.
void first_launch(benchmark::State& state) {
  with_new_context(state, false, [](Bench& b, Context& context) {
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
  with_new_context(state, false, [](Bench& b, Context& context) {
    const Attention attention = WinnerDatabase::missing_problem();
    context.forward(attention, b.memory.tensors(attention));
    const vitune_stats stats = context.stats();
    if (stats.nearest_calls + stats.default_calls != 1) throw std::runtime_error("no miss");
  });
}

// --- memory: in a process of its own, since a peak never goes down

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
  Context context(
      {.read_only = true, .compile = false, .database = database, .shipped_database = ""});
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
  const std::string command = "/proc/" + std::to_string(getpid()) + "/exe";
  for (auto _ : state) {
    const Clock::time_point began = Clock::now();
    FILE* probe = popen((command + " " + kProbe + bench().database.path()).c_str(), "r");
    double before = 0, exact = 0, miss = 0;
    const bool read = probe && std::fscanf(probe, "%lf %lf %lf", &before, &exact, &miss) == 3;
    if (!probe || pclose(probe) != 0 || !read) {
      state.SkipWithError("the process that measures memory failed");
      return;
    }
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - began).count());
    state.counters["before_mb"] = before;
    state.counters["exact_mb"] = exact - before;
    state.counters["miss_mb"] = miss - before;
  }
}

BENCHMARK(open_and_look_up)->UseManualTime()->Unit(benchmark::kMicrosecond);
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
    if (first.starts_with(kProbe)) return probe_memory(first.substr(std::strlen(kProbe)));
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
