// generator/linear/sm90_space.cpp -- Which problems the family sm90 serves, its tunables, and good
// values without tuning.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/checked.h"
#include "core/format.h"
#include "generator/linear/kernel_spec.h"
#include "generator/linear/sm90.h"

namespace vitune {
namespace {

using Rule = std::optional<std::string>;
using Shape = LinearSm90Shape;

constexpr std::int64_t kMostBoxStride = std::int64_t{1} << 40;  // bytes, exclusive
constexpr std::int64_t kFewerStages = 1;  // than fit: more are never left unused
constexpr std::int64_t kMostStages = 8;
constexpr std::int64_t kWidestTile = 256;

// A config of some of the family's tunables, as far as rules have them.
Shape shape_of(const LinearProblem& p, const Config& c) { return {p, c}; }

Rule check_groups(const LinearProblem& p, const Config& c) {
  const Shape shape = shape_of(p, c);
  if (shape.schedule == Shape::kPingPong && shape.groups == 1) {
    return std::string("one warpgroup has nobody to take turns with");
  }
  if (shape.schedule == Shape::kPingPong && shape.groups > 2) {
    return formatted("{} warpgroups take turns", shape.groups);
  }
  const std::int64_t rows = shape.schedule == Shape::kPingPong ? 64 : 64 * shape.groups;
  if (shape.block_m % rows != 0) {
    return formatted("{} rows for {} warpgroups", shape.block_m, shape.groups);
  }
  const std::int64_t most = shape.groups == 3 ? 96 : 192;
  if (shape.sums() > most) return formatted("{} sums of a thread", shape.sums());
  return std::nullopt;
}

Rule check_panels(const LinearProblem& p, const Config& c) {
  if (c.find("kWidePanels").value_or(0) == 0) return std::nullopt;
  if (p.moments > 0) return std::string("moments are of panels of 32 columns");
  if (p.out == ElementType::kFp32) return std::string("32 columns of fp32 are a line");
  if (c.at("kBlockN") % 64 == 0) return std::nullopt;
  return formatted("{} columns of a tile", c.at("kBlockN"));
}

Rule check_pair(const LinearProblem& p, const Config& c) {
  const std::int64_t pair = c.at("kPair");
  const bool has_two = pair == 0 || (pair == 1 ? p.n > c.at("kBlockN") : p.m > c.at("kBlockM"));
  if (has_two) return std::nullopt;
  return std::string("there is one tile that way");
}

Rule check_lead(const LinearProblem& p, const Config& c) {
  const Shape shape = shape_of(p, c);
  if (shape.lead == 0) return std::nullopt;
  if (shape.schedule != Shape::kShared || shape.groups == 1) {
    return std::string("these warpgroups do not share the steps of a tile");
  }
  if (shape.lead >= c.at("kStages")) {
    return formatted("a lead of {} steps in {} stages", shape.lead, c.at("kStages"));
  }
  return std::nullopt;
}

Rule check_stages(const LinearProblem& p, const Config& c, std::int64_t shared) {
  const Shape shape = shape_of(p, c);
  const std::int64_t most = shape.most_stages(shared);
  const std::int64_t wanted = std::min(most, kMostStages) - kFewerStages;
  if (shape.stages >= wanted && shape.stages <= most) return std::nullopt;
  return formatted("{} stages, {} fit", shape.stages, most);
}

// Forms worth weighing, each with as many stages as fit.
struct Form {
  std::int64_t m, n, groups, schedule, pair, lead;
};
constexpr Form kForms[] = {
    {192, 192, 3, Shape::kShared, 1, 1}, {128, 192, 2, Shape::kPingPong, 2, 0},
    {128, 256, 2, Shape::kShared, 2, 1}, {256, 176, 2, Shape::kShared, 1, 1},
    {256, 128, 2, Shape::kShared, 1, 1}, {128, 240, 2, Shape::kShared, 2, 1},
    {128, 160, 2, Shape::kShared, 1, 1}, {128, 128, 2, Shape::kShared, 1, 1},
    {128, 96, 2, Shape::kShared, 1, 1},  {128, 80, 2, Shape::kShared, 1, 1},
    {128, 64, 2, Shape::kShared, 1, 0},  {64, 256, 1, Shape::kShared, 0, 0},
    {64, 160, 1, Shape::kShared, 0, 0},  {64, 128, 1, Shape::kShared, 0, 0},
    {64, 96, 1, Shape::kShared, 0, 0},   {64, 80, 1, Shape::kShared, 0, 0},
    {64, 64, 1, Shape::kShared, 0, 0},   {64, 48, 1, Shape::kShared, 0, 0},
    {64, 32, 1, Shape::kShared, 0, 0},
};

Config config_of(const Form& form, std::int64_t pair, std::int64_t stages) {
  return {{"kBlockM", form.m},      {"kBlockN", form.n},  {"kStages", stages},
          {"kGroups", form.groups}, {"kPair", pair},      {"kSchedule", form.schedule},
          {"kWidePanels", 0},       {"kLead", form.lead}, {"kSplits", 1}};
}

}  // namespace

std::int64_t linear_sm90_sms(const DeviceInfo& device) {
  constexpr std::int64_t kUnknown = 132;
  return device.sm_count > 0 ? device.sm_count : kUnknown;
}

std::optional<std::string> check_linear_block(std::int64_t block, std::int64_t extent) {
  constexpr std::int64_t kLeast = 64;
  if (block <= kLeast || block < 2 * extent) return std::nullopt;
  return formatted("a block of {} for {}", block, extent);
}

std::optional<std::string> check_linear_panels(const LinearProblem& p, std::int64_t columns) {
  if (!p.transposed || columns % 64 == 0) return std::nullopt;
  return formatted("{} columns of a tile", columns);
}

std::optional<std::string> check_linear_moments(const LinearProblem& p, std::int64_t columns) {
  if (p.moments == 0 || columns % p.moments == 0) return std::nullopt;
  return formatted("{} columns of a tile, moments are of {}", columns, p.moments);
}

std::optional<std::string> linear_sm90_refusal(const LinearProblem& p, const DeviceInfo& device) {
  const auto fits = [](std::int64_t rows, std::int64_t stride, ElementType type) {
    const std::int64_t bytes = stride * element_bytes(type);
    return rows == 1 || (bytes % 16 == 0 && bytes < kMostBoxStride);
  };
  if (device.cc_major != 9 || device.cc_minor != 0) {
    return std::string("wgmma is of compute capability 9.0 alone");
  }
  if (p.aux && (p.moments > 0 || p.out_period > 0)) {
    return std::string("a second result is stored beside one without moments and gaps");
  }
  if (p.moments > kWidestTile) {
    return formatted("moments of {} columns: a tile has {} at most", p.moments, kWidestTile);
  }
  // Seen on an H200: a store by a tensor map writes the whole sixteen bytes that its last column is
  // in, and so what lies behind the row.
  if (p.n % 8 != 0) return formatted("{} columns: results are stored in a multiple of 8", p.n);
  if (p.alignment < 16) return formatted("tensor maps need 16-byte alignment, not {}", p.alignment);
  if (!fits(p.m, p.x_row, p.type) || !fits(p.w_rows(), p.w_row, p.type) ||
      (p.out_period == 0 && !fits(p.m, p.out_row, p.out)) ||
      (p.residual && p.residual_period == 0 && !fits(p.m, p.residual_row, p.out)) ||
      (p.aux && !fits(p.m, p.aux_row, p.type)) || (p.has_pre() && !fits(p.m, p.pre_row, p.type)) ||
      (p.post && !fits(p.m, p.post_row, p.type))) {
    return std::string(
        "tensor maps need rows of x, w, residual, pre and results that begin at 16 bytes");
  }
  if (p.out_period > 0 && p.out_row % 8 != 0) {
    return std::string("rows with gaps between them are stored by 16 bytes");
  }
  return std::nullopt;
}

std::vector<Parameter> LinearSm90::tunables() const {
  return {
      {"kBlockM", {64, 128, 192, 256}, "rows of a tile", false, true},
      {"kBlockN",
       {32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256},
       "columns of a tile",
       false,
       true},
      {"kStages", {2, 3, 4, 5, 6, 7, 8}, "steps in shared memory or on their way", false, true},
      // One value: configs that are stored have it.
      {"kSplits", {1}, "parts of k", false, true},
      {"kGroups", {1, 2, 3}, "warpgroups that compute", false, true},
      {"kSchedule", {0, 1}, "0 shared tiles, 1 ping-pong", true, true},
      {"kPair", {0, 1, 2}, "two CTAs share x (1) or w (2)", true, true},
      {"kWidePanels", {0, 1}, "64 columns are staged and stored at once, not 32", true, false},
      {"kLead", {0, 1, 2}, "steps by which a warpgroup leads the next one", false, true},
  };
}

std::vector<Constraint> LinearSm90::rules(const Problem& problem, const DeviceInfo& device) const {
  const std::int64_t shared = device.shared_per_block;
  const LinearProblem& p = linear_of(problem);
  return {
      {"kBlockM: fewer than twice the rows there are, or 64",
       [p](const Config& c) { return check_linear_block(c.at("kBlockM"), p.m); },
       {"kBlockM"}},
      {"kBlockN: fewer than twice the columns there are, or 64",
       [p](const Config& c) { return check_linear_block(c.at("kBlockN"), p.n); },
       {"kBlockN"}},
      {"warpgroups: multiples of 64 rows, at most 192 sums of a thread, 96 where there are three",
       [p](const Config& c) { return check_groups(p, c); },
       {"kBlockM", "kBlockN", "kGroups", "kSchedule"}},
      {"panels: wide ones of whole tiles, where no moments are written",
       [p](const Config& c) { return check_panels(p, c); },
       {"kBlockN", "kWidePanels"}},
      {"w as [k, n]: tiles of whole panels of 64 columns",
       [p](const Config& c) { return check_linear_panels(p, c.at("kBlockN")); },
       {"kBlockN"}},
      {"pair: two tiles side by side",
       [p](const Config& c) { return check_pair(p, c); },
       {"kBlockM", "kBlockN", "kPair"}},
      {"lead: of warpgroups that share tiles, less than the stages",
       [p](const Config& c) { return check_lead(p, c); },
       {"kBlockM", "kBlockN", "kGroups", "kSchedule", "kLead", "kStages"}},
      {"moments: whole blocks of a tile's columns",
       [p](const Config& c) { return check_linear_moments(p, c.at("kBlockN")); },
       {"kBlockN"}},
      {"stages: as many as fit, 8 at most, or one less",
       [p, shared](const Config& c) { return check_stages(p, c, shared); },
       {"kBlockM", "kBlockN", "kGroups", "kSchedule", "kStages", "kWidePanels"}},
  };
}

// Clocks, roughly: rounds of the device, each as long as a tile's products or its operands take,
// and what is left of its epilogue.
std::optional<double> LinearSm90::rank(const Problem& problem, const Config& c,
                                       const DeviceInfo& device) const {
  constexpr double kL2Bytes = 35, kStart = 2500, kResults = 24;
  const Shape shape(linear_of(problem), c);
  const double sms = static_cast<double>(linear_sm90_sms(device));
  const double m = static_cast<double>(shape.block_m), n = static_cast<double>(shape.block_n);
  const double x = shape.pair == 1 ? m / 2 : m, w = shape.pair == 2 ? n / 2 : n;
  const double steps = static_cast<double>(shape.steps());
  // 64 rows take as long as a whole instruction of their columns.
  const double step = std::max(m * n / 32, (x + w) * 128 / kL2Bytes);
  const double hidden = shape.schedule == Shape::kShared && shape.lead == 0 ? 1 : 0.6;
  const double tiles = static_cast<double>(shape.units() * shape.cluster());
  const double rounds = std::ceil(tiles / sms);
  return kStart + rounds * (steps * step + hidden * m * n / kResults);
}

std::vector<Config> LinearSm90::defaults(const Problem& problem, const DeviceInfo& device,
                                         const ParameterSpace& space) const {
  constexpr std::size_t kMost = 3;
  const LinearProblem& p = linear_of(problem);
  std::vector<Config> configs;
  const auto weigh = [&](const Form& form) {
    for (const std::int64_t pair : {form.pair, std::int64_t{0}}) {
      Config config = config_of(form, pair, 0);
      const std::int64_t fit = Shape(p, config).most_stages(device.shared_per_block);
      config.set("kStages", std::min(fit, kMostStages));
      config = whole(std::move(config));
      if (space.explain(config)) continue;
      configs.push_back(std::move(config));
      break;
    }
  };
  for (const Form& form : kForms) weigh(form);
  // Few rows with wide blocks of moments, which no form's tile has whole.
  if (configs.empty() && p.moments > 0) weigh({64, p.moments, 1, Shape::kShared, 0, 0});
  return cheapest(configs, kMost,
                  [&](const Config& config) { return rank(problem, config, device); });
}

}  // namespace vitune
