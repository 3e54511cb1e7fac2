// generator/group_norm/operator.cpp -- GroupNorm behind the interface of every operator.
// SPDX-License-Identifier: Apache-2.0
#include "generator/group_norm/operator.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "generator/group_norm/kernel_spec.h"

namespace vitune {
namespace {

class AskedGroupNorm final : public Problem {
 public:
  explicit AskedGroupNorm(GroupNormProblem canonical)
      : Problem(group_norm(), canonical.text()), problem(std::move(canonical)) {}
  const GroupNormProblem problem;
};

// A config in which every group norm has a source, for what holds of all of them.
Config plain_config() {
  Config config;
  config.set("kChunks", 2);
  config.set("kGroups", 1);
  config.set("kThreads", 32);
  config.set("kPieces", 1);
  config.set("kEarlyStart", 0);
  config.set("kStreaming", 0);
  return config;
}

auto kernel_order(const GroupNormProblem& p) {
  return std::tuple(p.type, p.nhwc, p.channels, p.positions, p.groups, p.activation, p.alignment,
                    p.images);
}

class GroupNorm final : public Operator {
 public:
  std::string_view name() const override { return "group_norm"; }
  ProblemPtr parse(std::string_view text) const override {
    return std::make_shared<AskedGroupNorm>(GroupNormProblem::parse(text));
  }
  std::string example() const override {
    return "group_norm bf16 n=2 c=320 l=4096 g=32 weight bias silu";
  }

  std::vector<TensorSpec> tensors(const Problem& problem) const override {
    return group_norm_tensors(group_norm_of(problem));
  }
  std::string sizes(const Problem& problem) const override {
    const GroupNormProblem& p = group_norm_of(problem);
    return formatted("n={} c={} l={} g={}", p.images, p.channels, p.positions, p.groups);
  }
  double flops(const Problem& problem) const override { return group_norm_of(problem).flops(); }
  double min_bytes(const Problem& problem) const override {
    return group_norm_of(problem).min_bytes();
  }
  Demand demand(const Problem& problem, const DeviceInfo&) const override {
    return group_norm_demand(group_norm_of(problem));
  }

  // The source of some kernel holds every compile-time fact of the problem but how wide accesses
  // may be, which `align` decides.
  std::string kernel_class(const Problem& problem) const override {
    const GroupNormProblem& p = group_norm_of(problem);
    return group_norm_source(p, plain_config()) + formatted("// align={}\n", p.alignment);
  }
  double distance(const Problem& a, const Problem& b) const override {
    return std::abs(std::log(static_cast<double>(group_norm_of(a).images) /
                             static_cast<double>(group_norm_of(b).images)));
  }
  bool is_load_alike(const Problem& a, const Problem& b, const DeviceInfo& device) const override {
    const auto groups = [&](const Problem& p) {
      return std::min(group_norm_of(p).images * group_norm_of(p).groups,
                      std::int64_t{64} * std::max(device.sm_count, 1));
    };
    return groups(a) <= 2 * groups(b) && groups(b) <= 2 * groups(a);
  }
  bool is_before(const Problem& a, const Problem& b) const override {
    return kernel_order(group_norm_of(a)) < kernel_order(group_norm_of(b));
  }
  std::string work_form(const Problem& problem) const override {
    GroupNormProblem form = group_norm_of(problem);
    form.eps = kGroupNormEps;
    return form.text();
  }
  std::size_t work_hash(const Problem& problem) const override {
    const GroupNormProblem& p = group_norm_of(problem);
    return static_cast<std::size_t>((p.images * 8209 + p.channels) * 65599 + p.positions);
  }

  ParameterSpace space(const Problem& problem, const DeviceInfo& device) const override {
    return group_norm_space(group_norm_of(problem), device);
  }
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override {
    return group_norm_defaults(group_norm_of(problem), device, space);
  }

  std::string family(const Config& config) const override {
    if (config.find("kTurns").value_or(1) != 1) return "grid";
    return config.find("kCluster").value_or(0) != 0 ? "cluster" : std::string(name());
  }

  std::string source(const Problem& problem, const Config& config) const override {
    return group_norm_source(group_norm_of(problem), config);
  }
  CompileRequest request(const Problem& problem, const Config& config,
                         const std::string& arch) const override {
    CompileRequest request;
    request.source = assemble(source(problem, config));
    request.arch = arch;
    request.entry = kernels(problem, config).front().entry;
    return request;
  }
  Source templates() const override {
    return assemble(
        "#include \"group_norm/groups.cuh\"\n#include \"group_norm/clusters.cuh\"\n"
        "#include \"group_norm/grid.cuh\"\n");
  }
  std::optional<std::string> prune(const Problem& problem, const Config& config,
                                   const CompileFacts& facts,
                                   const DeviceInfo& device) const override {
    return group_norm_prune(group_norm_of(problem), config, facts, device);
  }

  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override {
    return group_norm_kernels(group_norm_of(problem), config);
  }
  bool runs_at_once(const Config& config) const override { return family(config) == "grid"; }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override {
    return group_norm_plan(group_norm_of(problem), config, device, resident.front());
  }

  std::string judge_source() const override {
    return "#include \"reference/group_norm_entries.cuh\"\n";
  }
  std::vector<std::string> judge_entries() const override { return group_norm_judge_entries(); }
  LaunchPlan answer(const Problem& problem, Precision precision) const override {
    return group_norm_answer(group_norm_of(problem), precision);
  }
  std::vector<JudgeCase> cases(const Problem& problem, const Config& config,
                               const DeviceInfo&) const override {
    return group_norm_cases(group_norm_of(problem), config);
  }
  std::vector<Fill> inputs(const Problem& problem, const std::string& draw) const override {
    return group_norm_inputs(group_norm_of(problem), draw);
  }
};

}  // namespace

const Operator& group_norm() {
  static const GroupNorm instance;
  return instance;
}

const GroupNormProblem& group_norm_of(const Problem& problem) {
  if (&problem.op() == &group_norm()) return static_cast<const AskedGroupNorm&>(problem).problem;
  throw Error(ErrorCode::kFailure, "'" + problem.text() + "' is no problem of group_norm");
}

GroupNormProblem::operator ProblemPtr() const {
  validate();
  return std::make_shared<AskedGroupNorm>(canonical());
}

}  // namespace vitune
