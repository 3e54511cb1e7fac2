// benchmarks/bench_dispatch.cpp -- What a prepared call costs: the look-up, and the call beside a
// bare launch.
//
// Percentiles are those of single calls (call_times.h); real_time is the mean processor time of
// calls back to back. On a machine without a GPU the mock driver takes the launches.
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>
#include <vector>

#include "benchmarks/call_times.h"
#include "core/cuda_driver_api.h"
#include "generator/prepared_plan.h"
#include "runtime/api/descriptor.h"
#include "runtime/context/entry.h"
#include "runtime/context/kernel_table.h"

// Behind the library's own headers: vitune.hpp has a Problem too.
#include "benchmarks/dispatch_fixture.h"

namespace vitune::bench {
namespace {

constexpr int kCalls = 400'000;
constexpr std::size_t kHot = 8;  // problems of a model in use

void report(benchmark::State& state, const CallTimes& times) {
  state.SetIterationTime(times.mean_ns * 1e-9);
  state.counters["p50_ns"] = times.p50_ns;
  state.counters["p99_ns"] = times.p99_ns;
  state.counters["p999_ns"] = times.p999_ns;
}

// --- the look-up: description and pointers to what serves them

// Fills in what differs between problems, as a program does before a call.
void describe(std::size_t index, vitune_attention_desc& desc) {
  desc.nq = desc.nk = 16 + static_cast<std::int64_t>(index / 4 % 250);
  desc.heads = desc.kv_heads = 1 + static_cast<std::int64_t>(index / 1000);
  desc.dtype = index % 4 == 1 ? VITUNE_FP16 : VITUNE_BF16;
  desc.d = std::array<std::int64_t, 4>{64, 64, 32, 80}[index % 4];
  desc.q = desc.k = desc.v = vitune_packed_strides(desc.heads, desc.nq, desc.d);
  desc.o = vitune_bnhd_strides(desc.heads, desc.nq, desc.d);
}

// 10,000 problems in the table of the library, each with something to serve it.
struct FilledTable {
  KernelTable table;
  std::deque<Entry> entries;
  Plan plan;
  Tensors tensors{.q = 4096, .k = 5120, .v = 6144, .o = std::uintptr_t{1} << 30};

  FilledTable() {
    vitune_attention_desc desc = VITUNE_ATTENTION_DESC_INIT;
    for (std::size_t i = 0; i < WinnerDatabase::kWinners; ++i) {
      describe(i, desc);
      const Alignments alignments = call_alignments(desc, tensors);
      const AttentionProblem problem = problem_from(desc, alignments);
      entries.emplace_back(problem);
      table.insert(key_of(desc, alignments).value(), &plan);
    }
  }
  const Plan* look_up(const vitune_attention_desc& desc) const {
    PlanKey key;
    set_key(key, desc, call_alignments(desc, tensors));
    return table.find(key)->plan.load(std::memory_order_acquire);
  }
};

const FilledTable& filled_table() {
  static const FilledTable table;
  return table;
}

// index_of(thread, i) is the number of the problem that the call asks for. The percentiles are
// those of looking up a description that was filled in just before. Filling it in is the program's
// work and this benchmark's arithmetic; both_p50_ns and real_time have it too.
template <typename IndexOf>
void look_up(benchmark::State& state, IndexOf&& index_of) {
  struct alignas(128) Own {
    vitune_attention_desc desc = VITUNE_ATTENTION_DESC_INIT;
  };
  const FilledTable& filled = filled_table();
  const int threads = static_cast<int>(state.range(0));
  std::vector<Own> own(static_cast<std::size_t>(threads));
  const auto fill_in = [&](int thread, int i) {
    const auto number = static_cast<std::size_t>(thread);
    describe(index_of(number, static_cast<std::size_t>(i)), own[number].desc);
    benchmark::ClobberMemory();
  };
  const auto find = [&](int thread, int) {
    benchmark::DoNotOptimize(filled.look_up(own[static_cast<std::size_t>(thread)].desc));
  };
  const auto both = [&](int thread, int i) {
    fill_in(thread, i);
    find(thread, i);
  };
  for (auto _ : state) {
    report(state, time_calls(threads, kCalls, fill_in, find));
    state.counters["both_p50_ns"] = time_calls(threads, kCalls, both).p50_ns;
  }
}

// Every thread asks for the problems of one model in turn.
void look_up_hot(benchmark::State& state) {
  look_up(state, [](std::size_t thread, std::size_t i) { return 1000 * (thread % 8) + i % kHot; });
}

// Every call asks for another of the 10,000, so that none is in the processor's nearest caches.
void look_up_any(benchmark::State& state) {
  look_up(state, [](std::size_t thread, std::size_t i) {
    return (7919 * i + 613 * thread) % WinnerDatabase::kWinners;
  });
}

// --- whole calls

struct Serving {
  Driver driver = Driver::open();
  WinnerDatabase database{driver};
  TensorMemory memory{driver};
  CudaStream stream{*driver.cuda};
  Context context{database.options()};

  // The same launch without the library: its kernel, loaded once more.
  // The kernel of a problem with its parameters set.
  BoundPlan bare_launch(int index) {
    const Attention attention = WinnerDatabase::problem(index);
    const ProblemPtr problem = parse_problem(attention.text());
    const auto winner =
        Store::open(database.path(), Access::kReadOnly)
            ->find_winner(driver.device, {"attention", problem->text()}, Objective::kCold);
    const AttentionTensors t = memory.tensors(attention);
    const auto address = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data); };
    const Tensors tensors{.q = address(t.q.data()),
                          .k = address(t.k.data()),
                          .v = address(t.v.data()),
                          .o = address(t.out.data())};
    const CudaModule module(*driver.cuda, database.kernel(index).image);
    return BoundPlan(prepare_plan(module, *problem, winner.value().config, driver.device),
                     tensors.addresses(), 0);
  }
};

Serving& serving() {
  static Serving the_serving;
  return the_serving;
}

// Launches in groups that fit the driver's queue, and waits between them outside the times.
constexpr int kGroup = 256;

template <typename Launch>
double group_ns(Serving& s, Launch&& launch) {
  using Clock = std::chrono::steady_clock;
  s.stream.synchronize();
  const Clock::time_point began = Clock::now();
  for (int i = 0; i < kGroup; ++i) launch();
  return std::chrono::duration<double, std::nano>(Clock::now() - began).count() / kGroup;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// vitune_attention_forward beside cuLaunchKernel of the same kernel with the same parameters, in
// turns; over_ns is the median of the differences.
void time_against_launch(benchmark::State& state) {
  Serving& s = serving();
  const Attention attention = WinnerDatabase::problem(0);
  const AttentionTensors tensors = s.memory.tensors(attention);
  const BoundPlan bare = s.bare_launch(0);
  s.context.forward(attention, tensors, s.stream.get());
  int failures = 0;
  std::vector<double> calls, launches, differences;
  for (auto _ : state) {
    for (int round = 0; round < 200; ++round) {
      launches.push_back(
          group_ns(s, [&] { failures += bare.launch(s.stream.get()).result != kCuSuccess; }));
      calls.push_back(group_ns(s, [&] {
        failures += s.context.try_forward(attention, tensors, s.stream.get()) != VITUNE_OK;
      }));
      differences.push_back(calls.back() - launches.back());
    }
    state.SetIterationTime(median(calls) * 1e-9);
  }
  state.counters["call_ns"] = median(calls);
  state.counters["launch_ns"] = median(launches);
  state.counters["over_ns"] = median(differences);
  if (failures > 0) state.SkipWithError("a launch failed");
}

// Single calls, each thread with a problem of its own; on a GPU their launches share its queue.
void time_forward(benchmark::State& state) {
  Serving& s = serving();
  const int threads = static_cast<int>(state.range(0));
  std::vector<Attention> problems;
  for (int thread = 0; thread < threads; ++thread) {
    problems.push_back(WinnerDatabase::problem(4 * thread));
    s.context.forward(problems.back(), s.memory.tensors(problems.back()), s.stream.get());
  }
  // A thread that uses CUDA has the context current; one that has not pays for two more driver
  // calls.
  const DriverApi& api = s.driver.cuda->api();
  CuContextTag* context = nullptr;
  api.ctx_get_current(&context);
  std::atomic<int> failures{0};
  for (auto _ : state) {
    report(state, time_calls(threads, s.driver.is_mock ? kCalls : 20'000, [&](int thread, int) {
             thread_local const int ready = api.ctx_set_current(context);
             benchmark::DoNotOptimize(ready);
             const Attention& attention = problems[static_cast<std::size_t>(thread)];
             if (s.context.try_forward(attention, s.memory.tensors(attention), s.stream.get()) !=
                 VITUNE_OK) {
               ++failures;
             }
           }));
  }
  s.stream.synchronize();
  if (failures > 0) state.SkipWithError("a call failed");
}

template <typename Body>
void or_say_why(benchmark::State& state, Body&& body) {
  try {
    body(state);
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}
void forward_over_launch(benchmark::State& state) { or_say_why(state, time_against_launch); }
void forward(benchmark::State& state) { or_say_why(state, time_forward); }

BENCHMARK(look_up_hot)->Arg(1)->Arg(16)->ArgName("threads")->UseManualTime()->Iterations(1);
BENCHMARK(look_up_any)->Arg(1)->Arg(16)->ArgName("threads")->UseManualTime()->Iterations(1);
BENCHMARK(forward_over_launch)->UseManualTime()->Iterations(1);
BENCHMARK(forward)->Arg(1)->Arg(16)->ArgName("threads")->UseManualTime()->Iterations(1);

}  // namespace
}  // namespace vitune::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  try {
    vitune::bench::add_report_context(vitune::bench::Driver::open());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_dispatch: %s\n", error.what());
    return 3;
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
