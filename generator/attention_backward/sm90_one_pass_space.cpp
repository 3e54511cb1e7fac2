// generator/attention_backward/sm90_one_pass_space.cpp -- Tunables of the family sm90_one_pass, and
// good values without tuning.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "generator/attention_backward/sm90_one_pass.h"

namespace vitune {
namespace {

using Shape = AttentionBackwardOnePass;

const Tunables<Shape>& tunables_of_one_pass() {
  static const auto& all = *new Tunables<Shape>{
      {&Shape::step, {"kQueryStep", {32, 48, 64, 80}, "queries of a step", false, true}},
      {&Shape::stages, {"kStages", {2, 3}, "steps in shared memory or on their way", false, true}},
      {&Shape::key_stages,
       {"kKeyStages", {1, 2}, "blocks of keys in shared memory or on their way", false, true}},
  };
  return all;
}

// Clocks, roughly, of a block of keys: of each step the tensor cores' for all warpgroups, at the
// share of their rate that they reach, or the way through it of a warpgroup with keys.
double block_clocks(const Shape& shape) {
  constexpr double kProductRate = 2048, kReached = 0.75, kExponentials = 16;
  constexpr double kStepOverhead = 350, kStepLatency = 900;
  constexpr double kBlockLatency = 900, kKeyLatency = 1500;
  const double head = Shape::up(shape.head_dim, 16), rows = Shape::kGroupRows;
  const auto step = [&](double width) {
    const double products = rows * width * head / kProductRate;
    const double dq = rows * std::max(width, head) * Shape::kBlockKeys / kProductRate;
    const double tensor = (Shape::kGroups * 4 * products + dq) / kReached;
    const double way = 4 * products + rows * width / kExponentials + kStepLatency;
    return kStepOverhead + std::max(tensor, way);
  };
  const double tail = shape.tail() > 0 ? step(Shape::up(shape.tail(), 16)) : 0;
  return shape.whole_steps() * step(shape.step) + tail + kBlockLatency +
         (shape.key_stages < 2 ? kKeyLatency : 0);
}

}  // namespace

AttentionBackwardOnePass attention_backward_one_pass_facts(const AttentionBackwardProblem& p) {
  Shape facts;
  facts.head_dim = static_cast<int>(p.forward.d);
  facts.queries = static_cast<int>(p.forward.nq);
  facts.keys = static_cast<int>(p.forward.nk);
  return facts;
}

AttentionBackwardOnePass attention_backward_one_pass_shape(const AttentionBackwardProblem& p,
                                                           const Config& config) {
  return read_tunables(tunables_of_one_pass(), config, attention_backward_one_pass_facts(p));
}

std::vector<Parameter> AttentionBackwardOnePassFamily::tunables() const {
  return parameters_of(tunables_of_one_pass());
}

std::vector<Constraint> AttentionBackwardOnePassFamily::rules(const Problem& problem,
                                                              const DeviceInfo&) const {
  const Tunables<Shape>& all = tunables_of_one_pass();
  const Shape facts = attention_backward_one_pass_facts(attention_backward_of(problem));
  std::vector<Constraint> rules =
      geometry_rules(attention_backward_one_pass_rules().all, all, facts);
  rules.push_back(shape_rule<Shape>(
      "steps of 32 queries where none of 48 fits", all, facts, {&Shape::step}, [](const Shape& s) {
        Shape wider = s;
        wider.step = 48;
        return s.step > 32 || wider.left_registers() < Shape::kCopyRegisters;
      }));
  rules.push_back(shape_rule<Shape>(
      "blocks of keys: 2 in shared memory, or 1 where there is no room for 2", all, facts,
      {&Shape::step, &Shape::stages, &Shape::key_stages}, [](const Shape& s) {
        Shape two = s;
        two.key_stages = 2;
        return s.key_stages == 2 || two.shared_bytes() > Shape::kCtaBytes;
      }));
  if (attention_backward_of(problem).forward.dropout != 0) {
    rules.push_back(shape_rule<Shape>(
        "registers: with dropout 16 more for its draws", all, facts, {&Shape::step},
        [](const Shape& s) { return s.compute_registers() >= s.needed_registers() + 16; }));
  }
  return rules;
}

// Where most SMs have a head in each round and both warpgroups have keys; else the two passes of
// the family sm90 come first.
std::optional<double> AttentionBackwardOnePassFamily::rank(const Problem& problem,
                                                           const Config& config,
                                                           const DeviceInfo& device) const {
  constexpr double kLeastShare = 0.65;
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const Shape shape = attention_backward_one_pass_shape(p, config);
  const auto sms = static_cast<double>(sms_of(device, kUsualSms));
  const auto heads = static_cast<double>(p.forward.batch * p.forward.heads);
  const double rounds = std::ceil(heads / sms);
  if (heads < kLeastShare * rounds * sms || shape.keys <= Shape::kGroupRows) {
    return std::nullopt;
  }
  const double stages = shape.stages >= 3 ? 1 : 1.13;
  return stages * rounds * shape.blocks() * block_clocks(shape);
}

}  // namespace vitune
