// generator/norm/space.cpp -- The norm kernel's tunables, and good values without tuning.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "core/checked.h"
#include "core/format.h"
#include "generator/fit.h"
#include "generator/norm/kernel_spec.h"

namespace vitune {
namespace {

constexpr std::int64_t kMostThreads = 1024, kMostValues = 64, kWarp = 32;
constexpr std::int64_t kOtherRegisters = 16;  // addresses, sums: at least
constexpr std::int64_t kRowThreads[] = {4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024};
constexpr std::int64_t kRows[] = {1, 2, 4, 8, 16, 32};

std::int64_t values_of(const NormProblem& problem, const Config& config) {
  const std::int64_t vector = config.at("kVector");
  return ceil_div(problem.d, vector * config.at("kRowThreads")) * vector;
}

// That a thread can have where an SM has so many warps.
std::int64_t thread_registers(std::int64_t warps) {
  return std::min<std::int64_t>(255, 65536 / kWarp / warps);
}

// Of a thread's values and of the weight and bias of their columns.
std::int64_t registers_of(const NormProblem& problem, const Config& config) {
  const std::int64_t vectors = (problem.weight ? 1 : 0) + (problem.bias ? 1 : 0);
  const std::int64_t values = values_of(problem, config);
  return values + values * vectors * element_bytes(problem.parameters) / 4;
}

// Whether some threads would have no columns although fewer could hold the row.
bool is_idle(const NormProblem& problem, const Config& config) {
  const std::int64_t vectors = ceil_div(problem.d, config.at("kVector"));
  const auto enough = std::lower_bound(std::begin(kRowThreads), std::end(kRowThreads), vectors);
  return enough != std::end(kRowThreads) && config.at("kRowThreads") > *enough;
}

// The widest access, and half of it: more threads with less each let memory serve fewer rows at
// once.
std::vector<std::int64_t> vectors_of(const NormProblem& problem) {
  const std::int64_t widest = norm_vector(problem);
  if (widest == 1) return {1};
  return {widest / 2, widest};
}

std::vector<Parameter> parameters_of(const NormProblem& problem) {
  return {
      {"kRowThreads",
       {std::begin(kRowThreads), std::end(kRowThreads)},
       "threads that share a row",
       false,
       true},
      {"kRows",
       {std::begin(kRows), std::end(kRows)},
       "rows that a CTA has at work at once",
       false,
       true},
      {"kVector", vectors_of(problem), "elements of an access", false, true},
      {"kPersistent",
       {0, 1},
       "CTAs go on to further rows; weight and bias stay in registers",
       false,
       true},
      {"kEarlyStart", {0, 1}, "CTAs may come onto the device while earlier grids end", false, true},
      {"kSmWarps", {8, 32, 48, 64}, "warps of an SM that registers leave room for", false, true},
      {"kStreaming",
       {0, 1, 2},
       "L2 need not keep: nothing, the outputs, the inputs too",
       true,
       true},
  };
}

std::vector<Constraint> rules_of(const NormProblem& problem) {
  return {
      {"threads: whole warps, at most 1024",
       [](const Config& c) -> std::optional<std::string> {
         const std::int64_t threads = c.at("kRowThreads") * c.at("kRows");
         if (threads <= kMostThreads && threads % kWarp == 0) return std::nullopt;
         return formatted("{} threads", threads);
       },
       {"kRowThreads", "kRows"}},
      {"registers: a thread holds at most 64 values of its row",
       [problem](const Config& c) -> std::optional<std::string> {
         const std::int64_t values = values_of(problem, c);
         if (values <= kMostValues) return std::nullopt;
         return formatted("{} values", values);
       },
       {"kRowThreads", "kVector"}},
      {"room for whole CTAs, and registers for the values of each thread",
       [problem](const Config& c) -> std::optional<std::string> {
         const std::int64_t warps = c.at("kSmWarps");
         const std::int64_t cta_warps = c.at("kRowThreads") * c.at("kRows") / kWarp;
         if (cta_warps > warps || warps % cta_warps != 0) {
           return formatted("CTAs of {} warps for {} warps", cta_warps, warps);
         }
         const std::int64_t registers = thread_registers(warps);
         const std::int64_t values = values_of(problem, c);
         if (values + kOtherRegisters <= registers) return std::nullopt;
         return formatted("{} values for {} registers", values, registers);
       },
       {"kRowThreads", "kRows", "kSmWarps", "kVector"}},
      {"each thread has columns, as far as threads come in these numbers",
       [problem](const Config& c) -> std::optional<std::string> {
         if (!is_idle(problem, c)) return std::nullopt;
         return formatted("{} threads for {} columns", c.at("kRowThreads"), problem.d);
       },
       {"kRowThreads", "kVector"}},
  };
}

// What a default is chosen by was read off the trials of 27 problems on an H100 and an H200
// (docs/lab/2026-11-23-norms.md).

// Whether L2 has room for all tensors, but not for much beside them: what is written should go
// first, and CTAs that stay hide one row's loads behind the row before.
bool fills_l2(const NormProblem& problem, const DeviceInfo& device) {
  const double l2 = static_cast<double>(device.l2_bytes), bytes = problem.min_bytes();
  return bytes > l2 / 4 && bytes <= l2;
}

// A thread has many values as long as there are rows for some warps on each SM, fewer where a
// second row comes to them; else a row has as many threads as it has accesses.
std::int64_t wanted_values(const NormProblem& problem, const DeviceInfo& device) {
  const std::int64_t sms = std::max(device.sm_count, 1);
  const std::int64_t many = problem.residual ? 16 : 24;
  return problem.rows >= 8 * sms ? many : norm_vector(problem);
}

// From a good config: registers for all that a thread holds, about the wanted values, rather fewer
// than more, CTAs of 128 threads, 32 warps to an SM.
std::int64_t distance_of(const NormProblem& problem, const Config& config, std::int64_t wanted) {
  const std::int64_t needed = registers_of(problem, config) + kOtherRegisters;
  const std::int64_t lacking =
      std::max<std::int64_t>(needed - thread_registers(config.at("kSmWarps")), 0);
  const std::int64_t over = values_of(problem, config) - wanted;
  const std::int64_t threads = config.at("kRowThreads") * config.at("kRows");
  return 1'000'000 * lacking + 1000 * std::max(3 * over, -over) + std::abs(threads - 128) +
         std::abs(config.at("kSmWarps") - 32);
}

}  // namespace

ParameterSpace norm_space(const NormProblem& problem) {
  return {parameters_of(problem), rules_of(problem)};
}

std::vector<Config> norm_defaults(const NormProblem& problem, const DeviceInfo& device,
                                  const ParameterSpace& space) {
  const std::int64_t walks = fills_l2(problem, device) ? 1 : 0;
  const std::int64_t starts_early = device.cc_major >= 9 ? 1 : 0;
  const std::int64_t wanted = wanted_values(problem, device);
  return cheapest(space.enumerate(), 2, [&](const Config& config) -> std::optional<double> {
    const bool may_serve = config.at("kPersistent") == walks && config.at("kStreaming") == walks &&
                           config.at("kEarlyStart") == starts_early &&
                           config.at("kVector") == norm_vector(problem);
    if (!may_serve) return std::nullopt;
    return static_cast<double>(distance_of(problem, config, wanted));
  });
}

std::optional<std::string> norm_prune(const NormProblem&, const Config& config,
                                      const CompileFacts& facts, const DeviceInfo& device) {
  constexpr int kHarmlessSpillBytes = 32;
  const KernelNeeds needs = norm_kernel(config);
  return misfit(facts, {&needs, 1}, device, kHarmlessSpillBytes);
}

}  // namespace vitune
