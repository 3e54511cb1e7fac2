// generator/attention/operator.cpp -- Attention behind the interface of every operator.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/operator.h"

#include <array>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "generator/attention/edge_shapes.h"
#include "generator/attention/facts.h"
#include "generator/attention/floor.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/problem_distance.h"
#include "generator/attention/same_work.h"
#include "generator/attention/tensor_maps.h"

namespace vitune {
namespace {

class AskedAttention final : public Problem {
 public:
  explicit AskedAttention(AttentionProblem canonical)
      : Problem(attention(), canonical.text()), problem(std::move(canonical)) {}
  const AttentionProblem problem;
};

class Attention final : public Operator {
 public:
  std::string_view name() const override { return "attention"; }
  ProblemPtr parse(std::string_view text) const override {
    return std::make_shared<AskedAttention>(AttentionProblem::parse(text));
  }

  std::string example() const override {
    return "attention bf16 b=1 h=12 nq=197 nk=197 d=64 layout=packed";
  }

  std::vector<TensorSpec> tensors(const Problem& problem) const override {
    return attention_tensors(attention_of(problem));
  }
  std::string sizes(const Problem& problem) const override {
    const AttentionProblem& p = attention_of(problem);
    return formatted("b={} h={} nq={} nk={}", p.batch, p.heads, p.nq, p.nk);
  }
  double flops(const Problem& problem) const override { return attention_of(problem).flops(); }
  double min_bytes(const Problem& problem) const override {
    return attention_of(problem).min_bytes();
  }
  Demand demand(const Problem& problem, const DeviceInfo& device) const override {
    return attention_demand(attention_of(problem), device);
  }

  std::string kernel_class(const Problem& problem) const override {
    return attention_class(attention_of(problem));
  }
  double distance(const Problem& a, const Problem& b) const override {
    return problem_distance(attention_of(a), attention_of(b));
  }
  bool is_load_alike(const Problem& a, const Problem& b, const DeviceInfo& device) const override {
    return vitune::is_load_alike(attention_of(a), attention_of(b), device);
  }
  bool is_before(const Problem& a, const Problem& b) const override {
    return is_tuned_before(attention_of(a), attention_of(b));
  }
  std::string work_form(const Problem& problem) const override {
    return vitune::work_form(attention_of(problem)).text();
  }
  std::size_t work_hash(const Problem& problem) const override {
    return vitune::work_hash(attention_of(problem));
  }

  ParameterSpace space(const Problem& problem, const DeviceInfo& device) const override {
    return attention_space(attention_of(problem), device);
  }
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override {
    return default_attention_configs(attention_of(problem), device, space);
  }
  std::string family(const Config& config) const override { return attention_family(config); }
  ConfigWords words(const Problem& problem, const Config& config) const override {
    return attention_words(attention_of(problem), config);
  }
  Config carried(const Config& config, const Problem& from, const Problem& to,
                 const ParameterSpace& space) const override {
    return carried_attention_config(config, attention_of(from), attention_of(to), space);
  }
  std::int64_t carried_class(const Config& config, const Problem& from,
                             const ParameterSpace& space) const override {
    return carried_steps(config, attention_of(from), space);
  }
  std::unique_ptr<CostModel> cost_model(const DeviceInfo& device,
                                        Residency residency) const override {
    return attention_cost_model(device, residency);
  }

  std::string source(const Problem& problem, const Config& config) const override {
    return attention_source(attention_of(problem), config);
  }
  CompileRequest request(const Problem& problem, const Config& config,
                         const std::string& arch) const override {
    return attention_compile_request(attention_of(problem), config, arch);
  }
  Source templates() const override { return attention_templates(); }
  std::optional<std::string> prune(const Problem& problem, const Config& config,
                                   const CompileFacts& facts,
                                   const DeviceInfo& device) const override {
    return attention_prune(attention_of(problem), config, facts, device);
  }

  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override {
    const AttentionProblem& p = attention_of(problem);
    return {{attention_entry(), attention_threads(p, config), attention_shared_bytes(p, config)}};
  }
  bool reads_tensor_maps(const Config& config) const override {
    return vitune::reads_tensor_maps(config);
  }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override {
    return attention_plan(attention_of(problem), config, device, resident.front());
  }

  std::string judge_source() const override {
    return "#include \"reference/attention_entries.cuh\"\n";
  }
  std::vector<std::string> judge_entries() const override { return attention_judge_entries(); }
  LaunchPlan answer(const Problem& problem, Precision precision) const override {
    return attention_answer(attention_of(problem), precision);
  }
  std::vector<JudgeCase> cases(const Problem& problem, const Config& config,
                               const DeviceInfo& device) const override {
    return attention_cases(attention_of(problem), config, device);
  }
  std::optional<std::int64_t> cases_class(const Problem& problem, const Config& config,
                                          const DeviceInfo& device) const override {
    return edge_class(attention_of(problem), config, device);
  }
  std::vector<Fill> inputs(const Problem& problem, const std::string& draw) const override {
    return attention_inputs(attention_of(problem), draw);
  }
};

}  // namespace

const Operator& attention() {
  static const Attention instance;
  return instance;
}

const AttentionProblem& attention_of(const Problem& problem) {
  if (&problem.op() == &attention()) return static_cast<const AskedAttention&>(problem).problem;
  throw Error(ErrorCode::kFailure, "'" + problem.text() + "' is no problem of attention");
}

AttentionProblem::operator ProblemPtr() const {
  validate();
  return std::make_shared<AskedAttention>(canonical());
}

}  // namespace vitune
