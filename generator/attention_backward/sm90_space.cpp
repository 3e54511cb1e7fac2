// generator/attention_backward/sm90_space.cpp -- Tunables of the family sm90, and good values
// without tuning.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "generator/attention_backward/sm90.h"

namespace vitune {
namespace {

using Shape = AttentionBackwardSm90;

constexpr int kStepUnit = 32;  // from a step's width to the next, mostly

const Tunables<Shape>& tunables_of_sm90() {
  static const auto& all = *new Tunables<Shape>{
      {&Shape::groups,
       {"kGroups", {1, 2, 3}, "warpgroups that compute, of 64 rows each", false, true}},
      {&Shape::key_step, {"kKeyStep", {32, 64, 96, 128}, "dq: keys of a step", false, true}},
      {&Shape::query_step, {"kQueryStep", {32, 48, 64, 96}, "dkv: queries of a step", false, true}},
      {&Shape::stages, {"kStages", {2, 3}, "steps in shared memory or on their way", false, true}},
  };
  return all;
}

// Clocks, roughly, of all of a pass's items on an SM: of each step the tensor cores' for all
// warpgroups, or one warpgroup's way through it, or its tiles' from L2.
double pass_clocks(const Shape& shape, const Shape::Pass& pass, double items, int products,
                   double sms) {
  constexpr double kProductRate = 2048, kExponentials = 16, kL2Bytes = 35;
  constexpr double kStepLatency = 500, kItemLatency = 2500, kSharedOperand = 1.25;
  const double width = pass.step, head = Shape::up(pass.head_dim, 16);
  const double tensor = products * Shape::kGroupRows * width * head / kProductRate *
                        (pass.in_registers() ? 1 : kSharedOperand);
  const double way = tensor + Shape::kGroupRows * width / kExponentials + kStepLatency;
  const double tiles = shape.ctas() * 2 * width * pass.row_bytes() / kL2Bytes;
  const double step = std::max({shape.ctas() * shape.groups * tensor, way, tiles});
  const double steps = static_cast<double>(Shape::up(pass.steps_of, 16)) / width;
  const double rounds = std::ceil(items / (sms * shape.ctas()));
  return rounds * (std::max(steps, 1.0) * step + kItemLatency);
}

}  // namespace

AttentionBackwardSm90 attention_backward_sm90_facts(const AttentionBackwardProblem& p) {
  Shape facts;
  facts.head_dim = static_cast<int>(p.forward.d);
  facts.queries = static_cast<int>(p.forward.nq);
  facts.keys = static_cast<int>(p.forward.nk);
  return facts;
}

AttentionBackwardSm90 attention_backward_sm90_shape(const AttentionBackwardProblem& p,
                                                    const Config& config) {
  return read_tunables(tunables_of_sm90(), config, attention_backward_sm90_facts(p));
}

std::vector<Parameter> AttentionBackwardSm90Family::tunables() const {
  return parameters_of(tunables_of_sm90());
}

std::vector<Constraint> AttentionBackwardSm90Family::rules(const Problem& problem,
                                                           const DeviceInfo&) const {
  const Tunables<Shape>& all = tunables_of_sm90();
  const Shape facts = attention_backward_sm90_facts(attention_backward_of(problem));
  std::vector<Constraint> rules = geometry_rules(attention_backward_sm90_rules().all, all, facts);
  rules.push_back(shape_rule<Shape>("warpgroups: 2 at most, or each has rows of queries or of keys",
                                    all, facts, {&Shape::groups}, [](const Shape& s) {
                                      return s.groups <= 2 || (s.groups - 1) * Shape::kGroupRows <
                                                                  std::max(s.queries, s.keys);
                                    }));
  rules.push_back(
      shape_rule<Shape>("steps: less than 32 rows wider than all there are, or the narrowest", all,
                        facts, {&Shape::key_step, &Shape::query_step}, [](const Shape& s) {
                          const auto suits = [](int step, int rows) {
                            return step <= kStepUnit || step - kStepUnit < rows;
                          };
                          return suits(s.key_step, s.keys) && suits(s.query_step, s.queries);
                        }));
  if (attention_backward_of(problem).forward.dropout != 0) {
    rules.push_back(shape_rule<Shape>("steps: with dropout registers for its draws", all, facts,
                                      {&Shape::key_step, &Shape::query_step}, [](const Shape& s) {
                                        constexpr int kMostKeys = 96, kMostQueries = 64;
                                        return s.key_step <= kMostKeys &&
                                               s.query_step <= kMostQueries;
                                      }));
  }
  return rules;
}

std::optional<double> AttentionBackwardSm90Family::rank(const Problem& problem,
                                                        const Config& config,
                                                        const DeviceInfo& device) const {
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const Shape shape = attention_backward_sm90_shape(p, config);
  const auto sms = static_cast<double>(sms_of(device, kUsualSms));
  const auto batch = static_cast<double>(p.forward.batch);
  const double query_items = batch * static_cast<double>(p.forward.heads) * shape.query_blocks();
  const double key_items = batch * static_cast<double>(p.forward.kv_heads) * shape.key_blocks();
  const auto per_kv =
      static_cast<double>(p.forward.heads) / static_cast<double>(p.forward.kv_heads);
  const double stages = shape.stages >= 3 ? 1 : 1.03;
  return stages * (pass_clocks(shape, shape.dq(), query_items, 3, sms) +
                   per_kv * pass_clocks(shape, shape.dkv(), key_items, 4, sms));
}

}  // namespace vitune
