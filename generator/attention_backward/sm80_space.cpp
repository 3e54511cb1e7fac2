// generator/attention_backward/sm80_space.cpp -- Tunables of the family sm80, and good values
// without tuning.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>
#include <vector>

#include "core/checked.h"
#include "generator/attention/facts.h"
#include "generator/attention_backward/sm80.h"

namespace vitune {
namespace {

using Shape = AttentionBackwardSm80Shape;

const Tunables<Shape>& tunables_of_sm80() {
  static const auto& all = *new Tunables<Shape>{
      {&Shape::dq_warps, {"kDqWarps", {2, 4, 8}, "dq: warps, of 16 query rows each", false, true}},
      {&Shape::dq_keys, {"kDqKeys", {32, 64}, "dq: keys of a step", false, true}},
      {&Shape::dq_stages,
       {"kDqStages", {1, 2, 3}, "dq: steps in shared memory or on their way", false, true}},
      {&Shape::dq_in_registers,
       {"kDqInRegisters", {0, 1}, "dq: Q and dO stay in registers", false, true}},
      {&Shape::dkv_warps, {"kDkvWarps", {2, 4, 8}, "dkv: warps", false, true}},
      {&Shape::dkv_groups,
       {"kDkvGroups", {1, 2}, "dkv: groups of 16 keys of each warp", false, true}},
      {&Shape::dkv_rows, {"kDkvRows", {32, 64}, "dkv: query rows of a step", false, true}},
      {&Shape::dkv_stages,
       {"kDkvStages", {1, 2, 3}, "dkv: steps in shared memory or on their way", false, true}},
      {&Shape::dkv_in_registers,
       {"kDkvInRegisters", {0, 1}, "dkv: K and V stay in registers", false, true}},
      {&Shape::dbias_keys,
       {"kDbiasKeys", {0, 32, 64}, "dbias: keys of a tile, of 64 query rows", false, true}},
      {&Shape::dbias_stages,
       {"kDbiasStages", {0, 1, 2}, "dbias: tiles in shared memory or on their way", false, true}},
  };
  return all;
}

// Forms to try without tuning, the best first; with each of them the first of dbias that fits.
struct Form {
  std::int64_t dq_warps, dq_keys, dq_stages, dq_in_registers;
  std::int64_t dkv_warps, dkv_groups, dkv_rows, dkv_stages, dkv_in_registers;
};
constexpr std::array<Form, 6> kForms = {{
    {4, 64, 2, 1, 4, 2, 32, 2, 0},
    {4, 64, 2, 0, 4, 1, 64, 2, 1},
    {4, 32, 2, 1, 4, 1, 32, 2, 1},
    {4, 32, 2, 0, 4, 1, 32, 2, 0},
    {4, 32, 1, 0, 4, 1, 32, 1, 0},
    {2, 32, 1, 0, 2, 1, 32, 1, 0},
}};
struct DbiasForm {
  std::int64_t keys, stages;
};
constexpr std::array<DbiasForm, 3> kDbiasForms = {{{64, 2}, {64, 1}, {32, 1}}};

std::vector<Constraint> memory_rules(const Shape& facts, std::int64_t most) {
  const Tunables<Shape>& all = tunables_of_sm80();
  const auto fits = [&](const char* sentence, std::vector<int Shape::*> reads,
                        int (*bytes)(const Shape&)) {
    return shape_rule<Shape>(
        sentence, all, facts, reads, [=](const Shape& s) { return bytes(s) <= most; },
        [=](const Shape& s) { return formatted("{} of {} bytes", bytes(s), most); });
  };
  return {
      fits("dq: shared memory of a block", {&Shape::dq_warps, &Shape::dq_keys, &Shape::dq_stages},
           [](const Shape& s) { return s.dq_bytes(); }),
      fits("dkv: shared memory of a block",
           {&Shape::dkv_warps, &Shape::dkv_groups, &Shape::dkv_rows, &Shape::dkv_stages},
           [](const Shape& s) { return s.dkv_bytes(); }),
      fits("dbias: shared memory of a block", {&Shape::dbias_keys, &Shape::dbias_stages},
           [](const Shape& s) { return s.dbias().shared_bytes(); }),
  };
}

}  // namespace

AttentionBackwardSm80Shape::AttentionBackwardSm80Shape(const AttentionBackwardProblem& p)
    : AttentionBackwardSm80{} {
  const AttentionFacts known = attention_facts(p.forward);
  head_dim = static_cast<int>(p.forward.d);
  bias_words = known.bias == 0 ? 0 : known.bias == 1 ? 2 : 1;
  mask = known.mask ? 1 : 0;
}

AttentionBackwardSm80Shape::AttentionBackwardSm80Shape(const AttentionBackwardProblem& p,
                                                       const Config& config)
    : AttentionBackwardSm80Shape(
          read_tunables(tunables_of_sm80(), config, AttentionBackwardSm80Shape(p))) {}

std::vector<Parameter> AttentionBackwardSm80Family::tunables() const {
  return parameters_of(tunables_of_sm80());
}

std::vector<Constraint> AttentionBackwardSm80Family::rules(const Problem& problem,
                                                           const DeviceInfo& device) const {
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const Tunables<Shape>& all = tunables_of_sm80();
  const Shape facts(p);
  std::vector<Constraint> rules = geometry_rules(attention_backward_sm80_rules().all, all, facts);
  const bool is_asked = p.dbias.has_value();
  rules.push_back(shape_rule<Shape>(
      "dbias: tunables where it is asked for, else 0", all, facts,
      {&Shape::dbias_keys, &Shape::dbias_stages}, [is_asked](const Shape& s) {
        return (s.dbias_keys != 0) == is_asked && (s.dbias_stages != 0) == is_asked;
      }));
  for (Constraint& rule : memory_rules(facts, device.shared_per_block)) {
    rules.push_back(std::move(rule));
  }
  return rules;
}

std::vector<Config> AttentionBackwardSm80Family::defaults(const Problem& problem, const DeviceInfo&,
                                                          const ParameterSpace& space) const {
  constexpr std::size_t kMost = 2;
  const bool has_dbias = attention_backward_of(problem).dbias.has_value();
  std::vector<Config> configs;
  for (const Form& f : kForms) {
    for (const DbiasForm& dbias : kDbiasForms) {
      Config config = whole(config_of(
          tunables_of_sm80(), {f.dq_warps, f.dq_keys, f.dq_stages, f.dq_in_registers, f.dkv_warps,
                               f.dkv_groups, f.dkv_rows, f.dkv_stages, f.dkv_in_registers,
                               has_dbias ? dbias.keys : 0, has_dbias ? dbias.stages : 0}));
      if (space.explain(config)) continue;
      configs.push_back(std::move(config));
      break;
    }
    if (configs.size() == kMost) break;
  }
  return configs;
}

}  // namespace vitune
