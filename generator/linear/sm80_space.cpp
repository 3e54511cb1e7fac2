// generator/linear/sm80_space.cpp -- Tunables of the family sm80, and good values without tuning.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>

#include "core/checked.h"
#include "core/format.h"
#include "generator/linear/kernel_spec.h"
#include "generator/linear/sm80.h"

namespace vitune {
namespace {

using Rule = std::optional<std::string>;

constexpr std::int64_t kLeastWarps = 4, kMostWarps = 16, kMostCtas = 2147483647;
constexpr std::int64_t kMostSums = 128, kSmRegisterFile = 65536;
constexpr std::int64_t kOtherRegisters = 32;  // addresses, places in the ring: at least
constexpr std::int64_t kSplitCtas = 4;        // of an SM: more are of no use
constexpr std::int64_t kLeastSplitColumns = 128;

Rule check_warps(const Config& c) {
  const std::int64_t m = c.at("kBlockM"), n = c.at("kBlockN");
  if (m % c.at("kWarpM") != 0 || n % c.at("kWarpN") != 0) {
    return formatted("{}x{} of {}x{}", c.at("kWarpM"), c.at("kWarpN"), m, n);
  }
  const std::int64_t warps = linear_sm80_threads(c) / 32;
  if (warps >= kLeastWarps && warps <= kMostWarps) return std::nullopt;
  return formatted("{} warps", warps);
}

// Sums, and the operands of two steps of sixteen columns.
Rule check_registers(const Config& c) {
  const std::int64_t m = c.at("kWarpM"), n = c.at("kWarpN"), sums = m * n / 32;
  const std::int64_t registers = sums + 2 * (m / 4 + n / 4) + kOtherRegisters;
  const std::int64_t all = linear_sm80_threads(c) * registers;
  if (sums <= kMostSums && registers <= 255 && all <= kSmRegisterFile) return std::nullopt;
  return formatted("{} registers of {} threads", registers, linear_sm80_threads(c));
}

Rule check_block(std::int64_t block, std::int64_t least, std::int64_t extent) {
  if (block <= least || block < 2 * extent) return std::nullopt;
  return formatted("a block of {} for {}", block, extent);
}

Rule check_stages(const LinearProblem& p, const Config& c) {
  const std::int64_t steps = ceil_div(linear_sm80_split_columns(p, c), c.at("kBlockK"));
  if (c.at("kStages") <= std::max<std::int64_t>(steps, 2)) return std::nullopt;
  return formatted("{} stages for {} steps", c.at("kStages"), steps);
}

Rule check_splits(const LinearProblem& p, const Config& c, std::int64_t sms) {
  const std::int64_t splits = c.at("kSplits"), columns = linear_sm80_split_columns(p, c);
  if (splits == 1) return std::nullopt;
  if (columns < kLeastSplitColumns || (splits - 1) * columns >= p.k) {
    return formatted("{} parts of {} columns", splits, p.k);
  }
  const std::int64_t ctas = linear_sm80_tiles(p, c) * splits;
  if (ctas <= kSplitCtas * sms) return std::nullopt;
  return formatted("{} CTAs", ctas);
}

Rule check_raster(const LinearProblem& p, const Config& c, std::int64_t sms) {
  if (c.at("kRaster") == 1) return std::nullopt;
  const std::int64_t tiles = linear_sm80_tiles(p, c);
  const bool is_square = p.m > c.at("kBlockM") && p.n > c.at("kBlockN");
  if (is_square && tiles > sms) return std::nullopt;
  return formatted("{} tiles", tiles);
}

Rule check_grid(const LinearProblem& p, const Config& c) {
  const std::int64_t ctas = linear_sm80_tiles(p, c) * c.at("kSplits");
  if (ctas <= kMostCtas) return std::nullopt;
  return formatted("{} CTAs", ctas);
}

// Many for a device that is known by its architecture alone.
std::int64_t sms_of(const DeviceInfo& device) {
  constexpr std::int64_t kUnknown = 1024;
  return device.sm_count > 0 ? device.sm_count : kUnknown;
}

// A form that serves some problems well, to be weighed against the others.
struct Form {
  std::int64_t block_m, block_n, block_k, warp_m, warp_n, stages;
};
constexpr std::array<Form, 11> kForms = {{
    {256, 128, 32, 64, 64, 3},
    {128, 256, 32, 64, 64, 3},
    {128, 128, 64, 64, 32, 3},
    {128, 128, 32, 64, 32, 4},
    {128, 64, 64, 32, 32, 3},
    {64, 128, 64, 32, 32, 3},
    {64, 64, 64, 32, 32, 4},
    {32, 64, 64, 16, 32, 4},
    {16, 128, 64, 16, 32, 4},
    {16, 64, 64, 16, 16, 4},
    {32, 32, 32, 16, 16, 4},
}};

Config config_of(const Form& form, std::int64_t stages, std::int64_t splits, std::int64_t raster) {
  Config config;
  config.set("kBlockM", form.block_m);
  config.set("kBlockN", form.block_n);
  config.set("kBlockK", form.block_k);
  config.set("kWarpM", form.warp_m);
  config.set("kWarpN", form.warp_n);
  config.set("kStages", stages);
  config.set("kSplits", splits);
  config.set("kRaster", raster);
  return config;
}

}  // namespace

std::vector<Parameter> LinearSm80::tunables() const {
  return {
      {"kBlockM", {16, 32, 64, 128, 256}, "rows that a CTA computes", false, true},
      {"kBlockN", {32, 64, 96, 128, 192, 256}, "columns that a CTA computes", false, true},
      {"kBlockK", {32, 64}, "columns of x and w per step", false, true},
      {"kWarpM", {16, 32, 64}, "rows of a warp's part of these", false, true},
      {"kWarpN", {16, 32, 64, 128}, "columns of a warp's part of these", false, true},
      {"kStages", {2, 3, 4, 5, 6}, "steps in shared memory or on their way", false, true},
      {"kSplits",
       {1, 2, 3, 4, 6, 8, 12, 16},
       "parts of k, each with CTAs of its own; a second kernel adds them",
       false,
       true},
      {"kRaster", {1, 8}, "rows of tiles that are gone through column by column", false, true},
  };
}

std::vector<Constraint> LinearSm80::rules(const Problem& problem, const DeviceInfo& device) const {
  const std::int64_t sms = sms_of(device), shared = device.shared_per_block;
  const LinearProblem& p = linear_of(problem);
  return {
      {"kBlockM: fewer than twice the rows there are, or 16",
       [p](const Config& c) { return check_block(c.at("kBlockM"), 16, p.m); },
       {"kBlockM"}},
      {"kBlockN: fewer than twice the columns there are, or 64",
       [p](const Config& c) { return check_block(c.at("kBlockN"), 64, p.n); },
       {"kBlockN"}},
      {"warps: whole parts of the block, 4 to 16",
       check_warps,
       {"kBlockM", "kBlockN", "kWarpM", "kWarpN"}},
      {"registers: at most 128 sums of a thread, and 65536 registers of a CTA",
       check_registers,
       {"kBlockM", "kBlockN", "kWarpM", "kWarpN"}},
      {"shared memory: stages of x and w <= bytes per block",
       [p, shared](const Config& c) -> Rule {
         const std::int64_t bytes = linear_sm80_shared_bytes(p, c);
         if (bytes <= shared) return std::nullopt;
         return formatted("{} bytes, {} there are", bytes, shared);
       },
       {"kBlockM", "kBlockN", "kBlockK", "kWarpM", "kWarpN", "kStages"}},
      {"splits: at least 128 columns each, none empty, at most 4 CTAs per SM",
       [p, sms](const Config& c) { return check_splits(p, c, sms); },
       {"kBlockM", "kBlockN", "kBlockK", "kSplits"}},
      {"stages: no more than there are steps",
       [p](const Config& c) { return check_stages(p, c); },
       {"kBlockK", "kStages", "kSplits"}},
      {"raster: where there are more tiles than SMs, several each way",
       [p, sms](const Config& c) { return check_raster(p, c, sms); },
       {"kBlockM", "kBlockN", "kRaster"}},
      {"grid: at most 2^31 - 1 CTAs",
       [p](const Config& c) { return check_grid(p, c); },
       {"kBlockM", "kBlockN", "kSplits"}},
  };
}

// Clocks, roughly: rounds of the device, each as long as a tile's products or its operands take,
// and what a split costs on top.
std::optional<double> LinearSm80::rank(const Problem& problem, const Config& c,
                                       const DeviceInfo& device) const {
  const LinearProblem& p = linear_of(problem);
  const double sms = std::max(device.sm_count, 1);
  constexpr double kProducts = 1024, kOperandBytes = 32, kResults = 32, kStart = 1500;
  const double m = static_cast<double>(c.at("kBlockM")), n = static_cast<double>(c.at("kBlockN"));
  const double columns = static_cast<double>(linear_sm80_split_columns(p, c));
  const double ctas = static_cast<double>(linear_sm80_tiles(p, c) * c.at("kSplits"));
  const double column = std::max(m * n / kProducts, 2 * (m + n) / kOperandBytes);
  double cost = std::ceil(ctas / sms) * (columns * column + m * n / kResults + kStart);
  if (c.at("kSplits") > 1) {
    const double parts = static_cast<double>(p.m * p.n * (c.at("kSplits") + 1));
    cost += 2 * kStart + 4 * parts / sms / kOperandBytes;
  }
  return cost;
}

std::vector<Config> LinearSm80::defaults(const Problem& problem, const DeviceInfo& device,
                                         const ParameterSpace& space) const {
  constexpr std::size_t kMost = 3;
  const auto cost = [&](const Config& config) { return rank(problem, config, device); };
  std::vector<Config> best;  // of each form
  for (const Form& form : kForms) {
    std::vector<Config> fitting;
    for (const std::int64_t splits : {1, 2, 4, 8}) {
      for (std::int64_t stages = form.stages; stages >= 2; --stages) {
        Config config = whole(config_of(form, stages, splits, 8));
        if (space.explain(config)) config = whole(config_of(form, stages, splits, 1));
        if (space.explain(config)) continue;
        fitting.push_back(std::move(config));
        break;
      }
    }
    for (Config& config : cheapest(fitting, 1, cost)) best.push_back(std::move(config));
  }
  return cheapest(best, kMost, cost);
}

}  // namespace vitune
