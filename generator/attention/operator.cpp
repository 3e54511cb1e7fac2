// generator/attention/operator.cpp -- Attention behind the interface of every operator.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/operator.h"

#include "core/format.h"
#include "generator/attention/edge_shapes.h"
#include "generator/attention/facts.h"
#include "generator/attention/family.h"
#include "generator/attention/floor.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/problem_distance.h"
#include "generator/attention/same_work.h"
#include "generator/operator_of.h"

namespace vitune {
namespace {

class Attention final : public OperatorOf<AttentionProblem> {
 public:
  std::string_view name() const override { return "attention"; }
  std::string example() const override {
    return "attention bf16 b=1 h=12 nq=197 nk=197 d=64 layout=packed";
  }
  std::span<const Family* const> families() const override {
    static const Family* const all[] = {
        &attention_sm80(false), &attention_sm90(false), &attention_sm90_pipelined(false),
        &attention_sm80(true),  &attention_sm90(true),  &attention_sm90_pipelined(true)};
    return all;
  }

  std::vector<TensorSpec> tensors(const Problem& problem) const override {
    return attention_tensors(of(problem));
  }
  std::string sizes(const Problem& problem) const override {
    const AttentionProblem& p = of(problem);
    return formatted("b={} h={} nq={} nk={}", p.batch, p.heads, p.nq, p.nk);
  }
  Demand demand(const Problem& problem, const DeviceInfo& device) const override {
    return attention_demand(of(problem), device);
  }

  std::string kernel_class(const Problem& problem) const override {
    return attention_class(of(problem));
  }
  double distance(const Problem& a, const Problem& b) const override {
    return problem_distance(of(a), of(b));
  }
  bool is_load_alike(const Problem& a, const Problem& b, const DeviceInfo& device) const override {
    return vitune::is_load_alike(of(a), of(b), device);
  }
  bool is_before(const Problem& a, const Problem& b) const override {
    return is_tuned_before(of(a), of(b));
  }
  std::string work_form(const Problem& problem) const override {
    return vitune::work_form(of(problem)).text();
  }
  std::size_t work_hash(const Problem& problem) const override {
    return vitune::work_hash(of(problem));
  }

  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override {
    return default_attention_configs(of(problem), device, space);
  }
  Config carried(const Config& config, const Problem& from, const Problem& to,
                 const ParameterSpace& space) const override {
    return carried_attention_config(config, of(from), of(to), space);
  }
  std::int64_t carried_class(const Config& config, const Problem& from,
                             const ParameterSpace& space) const override {
    return carried_steps(config, of(from), space);
  }

  std::string judge_source() const override {
    return "#include \"reference/attention_entries.cuh\"\n";
  }
  std::vector<std::string> judge_entries() const override { return attention_judge_entries(); }
  LaunchPlan answer(const Problem& problem, Precision precision) const override {
    return attention_answer(of(problem), precision);
  }
  std::vector<JudgeCase> cases(const Problem& problem, const Config& config,
                               const DeviceInfo& device) const override {
    return attention_cases(of(problem), config, device);
  }
  std::optional<std::int64_t> cases_class(const Problem& problem, const Config& config,
                                          const DeviceInfo& device) const override {
    return edge_class(of(problem), config, device);
  }
  std::vector<Fill> inputs(const Problem& problem, const std::string& draw) const override {
    return attention_inputs(of(problem), draw);
  }
};

const Attention& instance() {
  static const Attention all;
  return all;
}

}  // namespace

const Operator& attention() { return instance(); }
const AttentionProblem& attention_of(const Problem& problem) { return instance().of(problem); }

std::vector<Config> AttentionFamily::defaults(const Problem& problem, const DeviceInfo& device,
                                              const ParameterSpace& space) const {
  std::vector<Config> configs = attention().defaults(problem, device, space);
  std::erase_if(configs, [&](const Config& config) { return !owns(config); });
  return configs;
}

AttentionProblem::operator ProblemPtr() const {
  validate();
  return instance().asked(*this);
}

}  // namespace vitune
