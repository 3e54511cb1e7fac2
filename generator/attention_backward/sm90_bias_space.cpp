// generator/attention_backward/sm90_bias_space.cpp -- Tunables of the family sm90_bias, and good
// values without tuning.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/checked.h"
#include "generator/attention/facts.h"
#include "generator/attention_backward/sm90_bias.h"

namespace vitune {
namespace {

using Shape = AttentionBackwardSm90Bias;

constexpr int kNarrowestStep = 32;  // of those that are tried
constexpr int kStepUnit = 16;
constexpr int kNarrowestTile = 64;  // of dbias, where there are several; half of it of wide heads

const Tunables<Shape>& tunables_of_sm90_bias() {
  static const auto& all = *new Tunables<Shape>{
      {&Shape::groups,
       {"kGroups", {1, 2, 3}, "warpgroups that compute, of 64 rows each", false, true}},
      {&Shape::key_step,
       {"kKeyStep", {32, 48, 64, 80, 96, 112, 128}, "dq: keys of a step", false, true}},
      {&Shape::query_step,
       {"kQueryStep", {32, 48, 64, 80, 96}, "dkv: queries of a step", false, true}},
      {&Shape::stages, {"kStages", {2, 3}, "steps in shared memory or on their way", false, true}},
      {&Shape::row_slots,
       {"kRowSlots", {1, 2}, "rows in shared memory or on their way", false, true}},
      {&Shape::keeps_bias,
       {"kKeepsBias", {0, 1}, "the bias of a CTA's rows stays in shared memory", false, true}},
      {&Shape::dbias_groups,
       {"kDbiasGroups", {0, 1, 2, 3}, "dbias: warpgroups that compute", false, true}},
      {&Shape::dbias_tiles,
       {"kDbiasTiles",
        {0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16},
        "dbias: tiles that the keys are cut into",
        false,
        true}},
      {&Shape::dbias_step, {"kDbiasStep", {0, 32, 48, 64}, "dbias: keys of a step", false, true}},
  };
  return all;
}

// True for the narrowest of the steps that go over `rows` in as many.
bool is_narrowest(int step, int rows) {
  return step <= kNarrowestStep || ceil_div(rows, step - kStepUnit) > ceil_div(rows, step);
}

// What the space has beyond the geometry's rules: nothing that is of no use.
constexpr Shape::Rule kSpaceRules[] = {
    {"warpgroups: 2 at most, or each has rows of queries or of keys",
     {&Shape::groups},
     [](const Shape& s) {
       return s.groups <= 2 || (s.groups - 1) * Shape::kGroupRows < std::max(s.queries, s.keys);
     }},
    {"steps: the narrowest of those that are as many",
     {&Shape::key_step, &Shape::query_step},
     [](const Shape& s) {
       return is_narrowest(s.key_step, s.keys) && is_narrowest(s.query_step, s.queries);
     }},
    {"dbias: 2 warpgroups at most, or each has rows of queries",
     {&Shape::dbias_groups},
     [](const Shape& s) {
       return s.dbias_groups <= 2 || (s.dbias_groups - 1) * Shape::kGroupRows < s.queries;
     }},
    {"dbias: one tile, or tiles of 64 keys at least, 32 of heads beyond 64, and steps no wider "
     "than "
     "a tile",
     {&Shape::dbias_groups, &Shape::dbias_tiles, &Shape::dbias_step},
     [](const Shape& s) {
       if (s.dbias_groups == 0) return true;
       const int least = s.head_dim > 64 ? kNarrowestTile / 2 : kNarrowestTile;
       return (s.dbias_tiles == 1 || s.tile_keys() >= least) &&
              (s.dbias_step == kNarrowestStep || s.dbias_step < s.tile_keys() + kStepUnit);
     }},
};

// True if `shape` obeys the rules, those alone that read dbias' tunables and no other ones, or all.
bool obeys(const Shape& shape, bool of_dbias_alone) {
  const auto holds = [&](const Shape::Rule& rule) {
    const bool is_of_dbias = rule.reads[0] == &Shape::dbias_groups;
    return (of_dbias_alone && !is_of_dbias) || rule.holds(shape);
  };
  return std::ranges::all_of(attention_backward_sm90_bias_rules().all, holds) &&
         std::ranges::all_of(kSpaceRules, holds);
}

// `shape` with all values of these tunables.
std::vector<Shape> shapes_of(const Shape& shape, const std::vector<int Shape::*>& members) {
  std::vector<Shape> shapes = {shape};
  for (const Tunable<Shape>& tunable : tunables_of_sm90_bias()) {
    if (std::ranges::find(members, tunable.member) == members.end()) continue;
    std::vector<Shape> more;
    for (Shape each : shapes) {
      for (const std::int64_t value : tunable.parameter.values) {
        each.*tunable.member = static_cast<int>(value);
        more.push_back(each);
      }
    }
    shapes = std::move(more);
  }
  return shapes;
}

// The `most` of least cost among those that have one.
std::vector<Shape> cheapest_shapes(const std::vector<Shape>& shapes, std::size_t most,
                                   const std::function<std::optional<double>(const Shape&)>& cost) {
  std::vector<std::pair<double, Shape>> costs;
  for (const Shape& shape : shapes) {
    if (const auto clocks = cost(shape)) costs.emplace_back(*clocks, shape);
  }
  std::ranges::stable_sort(costs, {}, &std::pair<double, Shape>::first);
  std::vector<Shape> best;
  for (const auto& [clocks, shape] : costs) {
    if (best.size() < most) best.push_back(shape);
  }
  return best;
}

// Clocks of a step of all that an SM works on at once, roughly: those of the tensor cores, of
// exponentials, of a warpgroup's way through it, or of its bytes from L2.
struct StepWork {
  double ctas, groups;
  double tensor, exponentials;  // clocks of a warpgroup's
  double bytes;                 // of a CTA

  double clocks() const {
    constexpr double kLatency = 500, kL2Bytes = 35;
    const double all = ctas * groups;
    return std::max({all * tensor, all * exponentials, tensor + exponentials + kLatency,
                     ctas * bytes / kL2Bytes});
  }
};

// Clocks of so many products of 64 rows by `width` columns over a head, and of such exponentials.
double product_clocks(const Shape& shape, int products, double width) {
  constexpr double kRate = 2048;
  return products * Shape::kGroupRows * width * Shape::up(shape.head_dim, 16) / kRate;
}
double exponential_clocks(double width) {
  constexpr double kRate = 16;
  return Shape::kGroupRows * width / kRate;
}

// Scores that the busiest CTA of a kernel with `blocks` CTAs in a unit has.
double scores_of_cta(const AttentionBackwardProblem& p, int blocks, int resident,
                     const DeviceInfo& device) {
  const std::int64_t units = score_units(p, blocks, resident, device);
  const std::int64_t room = sms_of(device, kUsualSms) * std::int64_t{resident};
  return static_cast<double>(ceil_div(p.forward.batch * p.forward.heads, units) *
                             ceil_div(units * blocks, std::max(room, std::int64_t{1})));
}

double pass_clocks(const AttentionBackwardProblem& p, const Shape& shape, bool of_keys,
                   const DeviceInfo& device) {
  constexpr double kItemLatency = 2500, kLoadLatency = 1000;  // of which the rows' copies
  constexpr double kSharedOperand = 1.25, kFewStages = 1.03;
  const AttentionBackwardSm90 passes = shape.passes();
  const Shape::Pass pass = shape.pass(of_keys);
  const int blocks = of_keys ? passes.key_blocks() : passes.query_blocks();
  const double operand = pass.in_registers() ? 1 : kSharedOperand;
  const auto step = [&](double width) {
    const double bias = shape.keeps_bias ? 0 : shape.groups * width / 16 * shape.fragment_bytes();
    return StepWork{static_cast<double>(passes.ctas()), static_cast<double>(shape.groups),
                    operand * product_clocks(shape, of_keys ? 4 : 3, width),
                    exponential_clocks(width), 2 * width * pass.row_bytes() + bias}
        .clocks();
  };
  double clocks = kItemLatency - (shape.row_slots == 2 ? kLoadLatency : 0);
  clocks += pass.whole_steps() * step(pass.step);
  if (pass.tail() > 0) clocks += step(Shape::up(pass.tail(), 8));
  return (pass.stages >= 3 ? 1 : kFewStages) * clocks *
         scores_of_cta(p, blocks, passes.ctas(), device);
}

double dbias_clocks(const AttentionBackwardProblem& p, const Shape& shape,
                    const DeviceInfo& device) {
  constexpr double kSharedOperand = 64.0, kNumberBytes = 4, kWideTile = 128, kSpills = 1.1;
  if (shape.dbias_groups == 0) return 0;
  const AttentionBackwardSm90 sums = shape.sums();
  const double keys = shape.tile_keys();
  // A's share of what products read of shared memory grows as steps become narrower.
  const double operand = std::max(1.0, (kSharedOperand / shape.dbias_step + 1) / 2);
  const StepWork tile{static_cast<double>(sums.ctas()), static_cast<double>(shape.dbias_groups),
                      operand * product_clocks(shape, 2, keys), exponential_clocks(keys),
                      static_cast<double>(shape.dbias_stage_bytes())};
  const int blocks = shape.row_tiles() * shape.key_tiles();
  const double flush = kNumberBytes * shape.tile_rows() * keys / 4;  // of a fourth of its clocks
  // Beyond that ptxas 13.0 spills some sums.
  const double spills = keys <= kWideTile ? 1 : kSpills;
  // Of equal ones the wider steps.
  const double narrow = 1 + (operand - 1) / 100;
  return narrow * spills * tile.clocks() * scores_of_cta(p, blocks, sums.ctas(), device) + flush;
}

}  // namespace

AttentionBackwardSm90Bias attention_backward_sm90_bias_facts(const AttentionBackwardProblem& p) {
  Shape facts;
  facts.head_dim = static_cast<int>(p.forward.d);
  facts.queries = static_cast<int>(p.forward.nq);
  facts.keys = static_cast<int>(p.forward.nk);
  facts.bias_bytes = p.forward.bias ? static_cast<int>(element_bytes(p.forward.bias->type)) : 2;
  return facts;
}

AttentionBackwardSm90Bias attention_backward_sm90_bias_shape(const AttentionBackwardProblem& p,
                                                             const Config& config) {
  return read_tunables(tunables_of_sm90_bias(), config, attention_backward_sm90_bias_facts(p));
}

std::vector<Parameter> AttentionBackwardSm90BiasFamily::tunables() const {
  return parameters_of(tunables_of_sm90_bias());
}

std::vector<Constraint> AttentionBackwardSm90BiasFamily::rules(const Problem& problem,
                                                               const DeviceInfo&) const {
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const Tunables<Shape>& all = tunables_of_sm90_bias();
  const Shape facts = attention_backward_sm90_bias_facts(p);
  const bool is_asked = p.dbias.has_value();
  std::vector<Constraint> rules =
      geometry_rules(attention_backward_sm90_bias_rules().all, all, facts);
  for (Constraint& rule : geometry_rules(kSpaceRules, all, facts)) {
    rules.push_back(std::move(rule));
  }
  rules.push_back(shape_rule<Shape>(
      "dbias: tunables where it is asked for, else 0", all, facts, {&Shape::dbias_groups},
      [is_asked](const Shape& s) { return (s.dbias_groups != 0) == is_asked; }));
  return rules;
}

// The two best of the passes, each with the best of dbias: neither depends on the other.
std::vector<Config> AttentionBackwardSm90BiasFamily::defaults(const Problem& problem,
                                                              const DeviceInfo& device,
                                                              const ParameterSpace& space) const {
  constexpr std::size_t kMost = 2;
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  std::vector<Shape> dbias = {attention_backward_sm90_bias_facts(p)};
  if (p.dbias) {
    dbias = cheapest_shapes(
        shapes_of(dbias[0], {&Shape::dbias_groups, &Shape::dbias_tiles, &Shape::dbias_step}), 1,
        [&](const Shape& s) -> std::optional<double> {
          if (s.dbias_groups == 0 || !obeys(s, true)) return std::nullopt;
          return dbias_clocks(p, s, device);
        });
  }
  if (dbias.empty()) return {};
  const std::vector<Shape> passes =
      cheapest_shapes(shapes_of(dbias[0], {&Shape::groups, &Shape::key_step, &Shape::query_step,
                                           &Shape::stages, &Shape::row_slots, &Shape::keeps_bias}),
                      kMost, [&](const Shape& s) -> std::optional<double> {
                        if (!obeys(s, false)) return std::nullopt;
                        return pass_clocks(p, s, false, device) + pass_clocks(p, s, true, device);
                      });
  std::vector<Config> configs;
  for (const Shape& shape : passes) {
    Config own;
    for (const Tunable<Shape>& tunable : tunables_of_sm90_bias()) {
      own.set(tunable.parameter.name, shape.*tunable.member);
    }
    configs.push_back(whole(std::move(own)));
    if (space.explain(configs.back())) configs.pop_back();
  }
  return configs;
}

std::optional<double> AttentionBackwardSm90BiasFamily::rank(const Problem& problem,
                                                            const Config& config,
                                                            const DeviceInfo& device) const {
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const Shape shape = attention_backward_sm90_bias_shape(p, config);
  return pass_clocks(p, shape, false, device) + pass_clocks(p, shape, true, device) +
         dbias_clocks(p, shape, device);
}

}  // namespace vitune
