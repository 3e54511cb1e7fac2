// generator/norm/operator.cpp -- LayerNorm and RMSNorm behind the interface of every operator.
// SPDX-License-Identifier: Apache-2.0
#include "generator/norm/operator.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "generator/norm/kernel_spec.h"

namespace vitune {
namespace {

class AskedNorm final : public Problem {
 public:
  explicit AskedNorm(NormProblem canonical)
      : Problem(norm(), canonical.text()), problem(std::move(canonical)) {}
  const NormProblem problem;
};

// A config that any norm has, for what holds of all of them.
Config plain_config(const NormProblem& problem) {
  Config config;
  config.set("kVector", norm_vector(problem));
  config.set("kRowThreads", 32);
  config.set("kRows", 1);
  config.set("kPersistent", 0);
  config.set("kEarlyStart", 0);
  config.set("kSmWarps", 8);
  config.set("kStreaming", 0);
  return config;
}

auto kernel_order(const NormProblem& p) {
  return std::tuple(p.type, p.d, p.rms, p.residual, p.sum, p.second, p.statistics, p.alignment,
                    p.rows);
}

class Norm final : public Operator {
 public:
  std::string_view name() const override { return "norm"; }
  ProblemPtr parse(std::string_view text) const override {
    return std::make_shared<AskedNorm>(NormProblem::parse(text));
  }
  std::string example() const override { return "norm bf16 m=6304 d=768 weight bias"; }

  std::vector<TensorSpec> tensors(const Problem& problem) const override {
    return norm_tensors(norm_of(problem));
  }
  std::string sizes(const Problem& problem) const override {
    return formatted("m={} d={}", norm_of(problem).rows, norm_of(problem).d);
  }
  double flops(const Problem& problem) const override { return norm_of(problem).flops(); }
  double min_bytes(const Problem& problem) const override { return norm_of(problem).min_bytes(); }
  Demand demand(const Problem& problem, const DeviceInfo&) const override {
    return norm_demand(norm_of(problem));
  }

  // The source of some kernel holds every compile-time fact of the problem.
  std::string kernel_class(const Problem& problem) const override {
    return norm_source(norm_of(problem), plain_config(norm_of(problem)));
  }
  double distance(const Problem& a, const Problem& b) const override {
    return std::abs(
        std::log(static_cast<double>(norm_of(a).rows) / static_cast<double>(norm_of(b).rows)));
  }
  bool is_load_alike(const Problem& a, const Problem& b, const DeviceInfo& device) const override {
    const auto rows = [&](const Problem& p) {
      return std::min(norm_of(p).rows, std::int64_t{64} * std::max(device.sm_count, 1));
    };
    return rows(a) <= 2 * rows(b) && rows(b) <= 2 * rows(a);
  }
  bool is_before(const Problem& a, const Problem& b) const override {
    return kernel_order(norm_of(a)) < kernel_order(norm_of(b));
  }
  std::string work_form(const Problem& problem) const override {
    NormProblem form = norm_of(problem);
    form.eps = default_eps(form.rms);
    return form.text();
  }
  std::size_t work_hash(const Problem& problem) const override {
    const NormProblem& p = norm_of(problem);
    return static_cast<std::size_t>(p.rows * 8209 + p.d * 2 + (p.residual ? 1 : 0));
  }

  ParameterSpace space(const Problem& problem, const DeviceInfo&) const override {
    return norm_space(norm_of(problem));
  }
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override {
    return norm_defaults(norm_of(problem), device, space);
  }
  ConfigWords words(const Problem&, const Config& config) const override {
    const auto value = [&](const char* name) { return config.find(name).value_or(0); };
    return {formatted("{} rows {}t v{}", value("kRows"), value("kRowThreads"), value("kVector")),
            {"kRows", "kRowThreads", "kVector"}};
  }

  std::string source(const Problem& problem, const Config& config) const override {
    return norm_source(norm_of(problem), config);
  }
  CompileRequest request(const Problem& problem, const Config& config,
                         const std::string& arch) const override {
    CompileRequest request;
    request.source = assemble(source(problem, config));
    request.arch = arch;
    request.entry = norm_entry();
    return request;
  }
  Source templates() const override { return assemble("#include \"norm/rows.cuh\"\n"); }
  std::optional<std::string> prune(const Problem& problem, const Config& config,
                                   const CompileFacts& facts,
                                   const DeviceInfo& device) const override {
    return norm_prune(norm_of(problem), config, facts, device);
  }

  std::vector<KernelNeeds> kernels(const Problem&, const Config& config) const override {
    return {norm_kernel(config)};
  }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override {
    return norm_plan(norm_of(problem), config, device, resident.front());
  }

  std::string judge_source() const override { return "#include \"reference/norm_entries.cuh\"\n"; }
  std::vector<std::string> judge_entries() const override { return norm_judge_entries(); }
  LaunchPlan answer(const Problem& problem, Precision precision) const override {
    return norm_answer(norm_of(problem), precision);
  }
  std::vector<JudgeCase> cases(const Problem& problem, const Config& config,
                               const DeviceInfo&) const override {
    return norm_cases(norm_of(problem), config);
  }
  std::vector<Fill> inputs(const Problem& problem, const std::string& draw) const override {
    return norm_inputs(norm_of(problem), draw);
  }
};

}  // namespace

const Operator& norm() {
  static const Norm instance;
  return instance;
}

const NormProblem& norm_of(const Problem& problem) {
  if (&problem.op() == &norm()) return static_cast<const AskedNorm&>(problem).problem;
  throw Error(ErrorCode::kFailure, "'" + problem.text() + "' is no problem of norm");
}

NormProblem::operator ProblemPtr() const {
  validate();
  return std::make_shared<AskedNorm>(canonical());
}

}  // namespace vitune
