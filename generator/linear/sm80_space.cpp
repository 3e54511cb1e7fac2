// generator/linear/sm80_space.cpp -- Tunables of the family sm80, and good values without tuning.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>

#include "core/checked.h"
#include "core/format.h"
#include "generator/gemm/rules.h"
#include "generator/linear/kernel_spec.h"
#include "generator/linear/sm80.h"

namespace vitune {
namespace {

using Shape = LinearSm80Shape;

constexpr std::int64_t kMostCtas = 2147483647;
constexpr std::int64_t kSplitCtas = 4;  // of an SM: more are of no use
constexpr std::int64_t kLeastSplitColumns = 128;
constexpr std::int64_t kManySms = 1024;  // of a device that is known by its architecture alone

const Tunables<Shape>& tunables_of_sm80() {
  static const auto& all = *new Tunables<Shape>{
      {&Shape::block_m,
       {"kBlockM", {16, 32, 64, 128, 256}, "rows that a CTA computes", false, true}},
      {&Shape::block_n,
       {"kBlockN", {32, 64, 96, 128, 192, 256}, "columns that a CTA computes", false, true}},
      {&Shape::block_k, {"kBlockK", {32, 64}, "columns of x and w per step", false, true}},
      {&Shape::warp_m, {"kWarpM", {16, 32, 64}, "rows of a warp's part of these", false, true}},
      {&Shape::warp_n,
       {"kWarpN", {16, 32, 64, 128}, "columns of a warp's part of these", false, true}},
      {&Shape::stages,
       {"kStages", {2, 3, 4, 5, 6}, "steps in shared memory or on their way", false, true}},
      {&Shape::splits,
       {"kSplits",
        {1, 2, 3, 4, 6, 8, 12, 16},
        "parts of k, each with CTAs of its own; a second kernel adds them",
        false,
        true}},
      {&Shape::raster,
       {"kRaster", {1, 8}, "rows of tiles that are gone through column by column", false, true}},
  };
  return all;
}

bool suits_splits(const Shape& s, std::int64_t sms) {
  if (s.splits == 1) return true;
  const std::int64_t columns = s.split_columns();
  return columns >= kLeastSplitColumns && (s.splits - 1) * columns < s.k &&
         s.tiles() * s.splits <= kSplitCtas * sms;
}

bool suits_raster(const Shape& s, std::int64_t sms) {
  return s.raster == 1 || (s.m > s.block_m && s.n > s.block_n && s.tiles() > sms);
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

}  // namespace

LinearSm80Shape::LinearSm80Shape(const LinearProblem& p)
    : GemmSm80{}, splits(1), m(p.m), n(p.n), k(p.k) {
  b_across = p.transposed;
}

LinearSm80Shape::LinearSm80Shape(const LinearProblem& p, const Config& config)
    : LinearSm80Shape(read_tunables(tunables_of_sm80(), config, LinearSm80Shape(p))) {}

std::int64_t LinearSm80Shape::tiles() const { return ceil_div(m, block_m) * ceil_div(n, block_n); }

std::int64_t LinearSm80Shape::split_columns() const {
  return ceil_div(ceil_div(k, block_k), splits) * block_k;
}

std::vector<Parameter> LinearSm80::tunables() const { return parameters_of(tunables_of_sm80()); }

std::vector<Constraint> LinearSm80::rules(const Problem& problem, const DeviceInfo& device) const {
  const std::int64_t sms = sms_of(device, kManySms), shared = device.shared_per_block;
  const LinearProblem& p = linear_of(problem);
  const Tunables<Shape>& all = tunables_of_sm80();
  const Shape facts(p);
  std::vector<Constraint> rules = tile_rules(all, facts, p.m, p.n, 16);
  append(rules, geometry_rules(gemm_sm80_rules().all, all, facts));
  append(rules, memory_rules(all, facts, shared));
  rules.push_back(
      shape_rule<Shape>("splits: at least 128 columns each, none empty, at most 4 CTAs per SM", all,
                        facts, {&Shape::block_m, &Shape::block_n, &Shape::block_k, &Shape::splits},
                        [sms](const Shape& s) { return suits_splits(s, sms); }));
  rules.push_back(shape_rule<Shape>(
      "stages: no more than there are steps", all, facts,
      {&Shape::block_k, &Shape::stages, &Shape::splits}, [](const Shape& s) {
        return s.stages <= std::max<std::int64_t>(s.split_columns() / s.block_k, 2);
      }));
  rules.push_back(shape_rule<Shape>("raster: where there are more tiles than SMs, several each way",
                                    all, facts, {&Shape::block_m, &Shape::block_n, &Shape::raster},
                                    [sms](const Shape& s) { return suits_raster(s, sms); }));
  rules.push_back(shape_rule<Shape>(
      "grid: at most 2^31 - 1 CTAs", all, facts, {&Shape::block_m, &Shape::block_n, &Shape::splits},
      [](const Shape& s) { return s.tiles() * s.splits <= kMostCtas; }));
  return rules;
}

// Clocks, roughly: rounds of the device, each as long as a tile's products or its operands take,
// and what a split costs on top.
std::optional<double> LinearSm80::rank(const Problem& problem, const Config& c,
                                       const DeviceInfo& device) const {
  const LinearProblem& p = linear_of(problem);
  const Shape shape(p, c);
  const double sms = std::max(device.sm_count, 1);
  constexpr double kProducts = 1024, kOperandBytes = 32, kResults = 32, kStart = 1500;
  const double m = shape.block_m, n = shape.block_n;
  const double columns = static_cast<double>(shape.split_columns());
  const double ctas = static_cast<double>(shape.tiles() * shape.splits);
  const double column = std::max(m * n / kProducts, 2 * (m + n) / kOperandBytes);
  double cost = std::ceil(ctas / sms) * (columns * column + m * n / kResults + kStart);
  if (shape.splits > 1) {
    const double parts = static_cast<double>(p.m * p.n * (shape.splits + 1));
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
        const auto rastered = [&](std::int64_t raster) {
          return whole(
              config_of(tunables_of_sm80(), {form.block_m, form.block_n, form.block_k, form.warp_m,
                                             form.warp_n, stages, splits, raster}));
        };
        Config config = rastered(8);
        if (space.explain(config)) config = rastered(1);
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
