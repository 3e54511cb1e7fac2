// generator/norm/rows.cpp -- The family of norms: a few threads for each row, all of it in
// registers.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <iterator>

#include "core/checked.h"
#include "core/format.h"
#include "generator/config_text.h"
#include "generator/norm/kernel_spec.h"
#include "generator/norm/operator.h"

namespace vitune {
namespace {

constexpr char kEntry[] = "vitune_norm";
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

// Registers of a thread's values and of the weight and bias of their columns.
std::int64_t registers_of(const NormProblem& problem, const Config& config) {
  const std::int64_t vectors = (problem.weight ? 1 : 0) + (problem.bias ? 1 : 0);
  const std::int64_t values = values_of(problem, config);
  return values + values * vectors * element_bytes(problem.parameters) / 4;
}

// True if some threads would have no columns although fewer could hold the row.
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

// The choice of a default was read off the trials of 27 problems on an H100 and an H200
// (docs/lab/2026-11-23-norms.md).

// True if L2 has room for all tensors, but not for much beside them: what is written should go
// first, and CTAs that stay hide one row's loads behind the row before.
bool fills_l2(const NormProblem& problem, const DeviceInfo& device) {
  const double l2 = static_cast<double>(device.l2_bytes), bytes = problem.min_bytes();
  return bytes > l2 / 4 && bytes <= l2;
}

// True if the device knows early starts (programmatic dependent launch).
bool starts_early(const DeviceInfo& device) { return device.cc_major >= 9; }

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

bool rows_lie_side_by_side(const NormProblem& p) {
  const auto dense = [&](bool given, std::int64_t row) { return !given || row == p.d; };
  return dense(true, p.x_row) && dense(true, p.out_row) && dense(p.residual, p.residual_row) &&
         dense(p.sum, p.sum_row) && dense(p.second.has_value(), p.second_row);
}

KernelNeeds kernel_of(const Config& config) {
  const std::int64_t row_threads = config.at("kRowThreads"), rows = config.at("kRows");
  // Two sums of a row, a word for each of its warps (templates/norm/row_sum.cuh).
  const std::int64_t shared = row_threads > 32 ? 2 * 4 * (row_threads / 32) * rows : 0;
  return {kEntry, static_cast<int>(row_threads * rows), shared};
}

class NormRows final : public Family {
 public:
  std::string_view name() const override { return "norm"; }
  std::vector<Parameter> parameters(const Problem& problem) const override;
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const override;
  ConfigWords words(const Problem&, const Config& config) const override {
    const auto value = [&](const char* name) { return config.find(name).value_or(0); };
    return {formatted("{} rows {}t v{}", value("kRows"), value("kRowThreads"), value("kVector")),
            {"kRows", "kRowThreads", "kVector"}};
  }
  std::string templates() const override { return "#include \"norm/rows.cuh\"\n"; }
  std::string source(const Problem& problem, const Config& config) const override;
  std::vector<KernelNeeds> kernels(const Problem&, const Config& config) const override {
    return {kernel_of(config)};
  }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
};

std::vector<Parameter> NormRows::parameters(const Problem& problem) const {
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
      {"kVector", vectors_of(norm_of(problem)), "elements of an access", false, true},
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

std::vector<Constraint> NormRows::rules(const Problem& asked, const DeviceInfo& device) const {
  const NormProblem& problem = norm_of(asked);
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
      // Five of 56 winners on two devices do not start early, with such tensors all of them.
      {"CTAs start early, but where tensors are more than L2 holds",
       [always =
            starts_early(device) && problem.min_bytes() <= static_cast<double>(device.l2_bytes),
        bytes = problem.min_bytes()](const Config& c) -> std::optional<std::string> {
         if (!always || c.at("kEarlyStart") != 0) return std::nullopt;
         return formatted("kEarlyStart = 0 with {:.1f} MB", bytes / 1e6);
       },
       {"kEarlyStart"}},
  };
}

std::optional<double> NormRows::rank(const Problem& asked, const Config& config,
                                     const DeviceInfo& device) const {
  const NormProblem& problem = norm_of(asked);
  const std::int64_t walks = fills_l2(problem, device) ? 1 : 0;
  const bool may_serve = config.at("kPersistent") == walks && config.at("kStreaming") == walks &&
                         config.at("kEarlyStart") == (starts_early(device) ? 1 : 0) &&
                         config.at("kVector") == norm_vector(problem);
  if (!may_serve) return std::nullopt;
  return static_cast<double>(distance_of(problem, config, wanted_values(problem, device)));
}

std::string NormRows::source(const Problem& problem, const Config& config) const {
  const NormProblem& p = norm_of(problem);
  const KernelNeeds needs = kernel_of(config);
  std::string text = "namespace vitune {\nstruct Config {\n";
  text += config_number("kInput", judge_type(p.type));
  text += config_number("kOutput", judge_type(p.out));
  text += config_number("kParameters", judge_type(p.parameters));
  text += config_number("kSecond", p.second ? judge_type(*p.second) : -1);
  text += config_number("kColumns", p.d);
  text += config_number("kVector", config.at("kVector"));
  text += config_flag("kSideBySide", rows_lie_side_by_side(p));
  text += config_flag("kRms", p.rms);
  text += config_flag("kWeight", p.weight);
  text += config_flag("kBias", p.bias);
  text += config_flag("kResidual", p.residual);
  text += config_flag("kSum", p.sum);
  text += config_flag("kStatistics", p.statistics);
  text += config_number("kRowThreads", config.at("kRowThreads"));
  text += config_number("kRows", config.at("kRows"));
  text += config_number("kStreaming", config.at("kStreaming"));
  text += config_flag("kPersistent", config.at("kPersistent") != 0);
  const std::string bounds =
      formatted("{}, {}", needs.threads, config.at("kSmWarps") * 32 / needs.threads);
  return text + "};\n}  // namespace vitune\n\n" + templates() +
         entry_text(bounds, kEntry, "NormParams", "norm_rows");
}

LaunchPlan NormRows::plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                          std::span<const int> resident) const {
  const NormProblem& p = norm_of(problem);
  const KernelNeeds needs = kernel_of(config);
  const std::int64_t ctas = ceil_div(p.rows, config.at("kRows"));
  const std::int64_t room =
      std::int64_t{std::max(device.sm_count, 1)} * std::max(resident.front(), 1);
  KernelLaunch launch;
  // wait_for_earlier_grids() in templates; it takes each CTA a while even if there is nothing to
  // wait for, as long as the launch asked for an early start.
  launch.shape.waits_for_earlier = starts_early(device) && config.at("kEarlyStart") != 0;
  launch.shape.grid[0] =
      static_cast<std::uint32_t>(config.at("kPersistent") != 0 ? std::min(ctas, room) : ctas);
  launch.shape.block[0] = static_cast<std::uint32_t>(needs.threads);
  launch.shape.shared_bytes = static_cast<std::uint32_t>(needs.shared_bytes);
  launch.params = parameter_bytes(norm_params(p));
  launch.pointers = norm_pointers();
  LaunchPlan plan;
  plan.kernels.push_back(std::move(launch));
  return plan;
}

}  // namespace

const Family& norm_rows() {
  static const NormRows instance;
  return instance;
}

}  // namespace vitune
