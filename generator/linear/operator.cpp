// generator/linear/operator.cpp -- Linear layers behind the interface of every operator.
// SPDX-License-Identifier: Apache-2.0
#include "generator/linear/operator.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/linear/kernel_spec.h"

namespace vitune {
namespace {

class AskedLinear final : public Problem {
 public:
  explicit AskedLinear(LinearProblem canonical)
      : Problem(linear(), canonical.text()), problem(std::move(canonical)) {}
  const LinearProblem problem;
};

// A block that any problem's kernel can be written for, for what holds of all of them.
constexpr std::int64_t kPlainBlock = 64;

std::int64_t plain_tiles(const LinearProblem& p) {
  return ceil_div(p.m, kPlainBlock) * ceil_div(p.n, kPlainBlock);
}

auto kernel_order(const LinearProblem& p) {
  return std::tuple(p.type, p.out, p.transposed, p.activation, p.norm, p.bias, p.scale, p.residual,
                    p.aux, p.n, p.k, p.m);
}

double ratio(std::int64_t a, std::int64_t b) {
  return std::abs(std::log(static_cast<double>(a) / static_cast<double>(b)));
}

class Linear final : public Operator {
 public:
  std::string_view name() const override { return "linear"; }
  ProblemPtr parse(std::string_view text) const override {
    return std::make_shared<AskedLinear>(LinearProblem::parse(text));
  }
  std::string example() const override { return "linear bf16 m=6304 n=3072 k=768 bias act=gelu"; }

  std::vector<TensorSpec> tensors(const Problem& problem) const override {
    return linear_tensors(linear_of(problem));
  }
  std::string sizes(const Problem& problem) const override {
    const LinearProblem& p = linear_of(problem);
    return formatted("m={} n={} k={}", p.m, p.n, p.k);
  }
  double flops(const Problem& problem) const override { return linear_of(problem).flops(); }
  double min_bytes(const Problem& problem) const override { return linear_of(problem).min_bytes(); }
  Demand demand(const Problem& problem, const DeviceInfo&) const override {
    return linear_demand(linear_of(problem));
  }

  std::string kernel_class(const Problem& problem) const override {
    return linear_facts_text(linear_of(problem));
  }
  double distance(const Problem& a, const Problem& b) const override {
    const LinearProblem &p = linear_of(a), &q = linear_of(b);
    return ratio(p.m, q.m) + ratio(p.n, q.n) + ratio(p.k, q.k);
  }
  bool is_load_alike(const Problem& a, const Problem& b, const DeviceInfo& device) const override {
    const auto tiles = [&](const Problem& p) {
      return std::min(plain_tiles(linear_of(p)), std::int64_t{64} * std::max(device.sm_count, 1));
    };
    const auto alike = [](std::int64_t x, std::int64_t y) { return x <= 2 * y && y <= 2 * x; };
    return alike(tiles(a), tiles(b)) && alike(linear_of(a).k, linear_of(b).k);
  }
  bool is_before(const Problem& a, const Problem& b) const override {
    return kernel_order(linear_of(a)) < kernel_order(linear_of(b));
  }
  std::size_t work_hash(const Problem& problem) const override {
    const LinearProblem& p = linear_of(problem);
    return static_cast<std::size_t>((p.m * 8209 + p.n) * 8221 + p.k);
  }

  ParameterSpace space(const Problem& problem, const DeviceInfo& device) const override {
    return linear_space(linear_of(problem), device);
  }
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override {
    return linear_defaults(linear_of(problem), device, space);
  }
  bool has_proposals(const Problem& problem, const DeviceInfo& device) const override {
    return std::ranges::any_of(linear_families(), [&](const LinearFamily* family) {
      return family->calls_library() && !family->refusal(linear_of(problem), device);
    });
  }
  std::vector<Config> proposals(const Problem& problem, const DeviceInfo& device,
                                Libraries& libraries) const override {
    return linear_proposals(linear_of(problem), device, libraries);
  }
  std::string family(const Config& config) const override {
    return std::string(linear_family(config).name());
  }
  ConfigWords words(const Problem&, const Config& config) const override {
    const LinearFamily& family = linear_family(config);
    ConfigWords words = family.words(config);
    // The family's name tells which tunables are 0.
    const std::vector<Parameter> own = family.parameters();
    for (const auto& [name, value] : config) {
      if (std::ranges::find(own, name, &Parameter::name) == own.end()) words.told.push_back(name);
    }
    return words;
  }

  std::string source(const Problem& problem, const Config& config) const override {
    return linear_family(config).source(linear_of(problem), config);
  }
  CompileRequest request(const Problem& problem, const Config& config,
                         const std::string& arch) const override {
    CompileRequest request;
    request.source = assemble(source(problem, config));
    request.arch = linear_family(config).is_of_one_architecture() ? arch + "a" : arch;
    const std::vector<KernelNeeds> needs = kernels(problem, config);
    if (needs.empty()) {
      request.entry = "cublasLtMatmul";
      request.library = cublaslt_name(library_version(config));
    } else {
      request.entry = needs.front().entry;
    }
    return request;
  }
  Source templates() const override {
    std::string main;
    for (const LinearFamily* family : linear_families()) main += family->templates();
    return assemble(std::move(main));
  }
  std::optional<std::string> prune(const Problem& problem, const Config& config,
                                   const CompileFacts& facts,
                                   const DeviceInfo& device) const override {
    return linear_family(config).prune(linear_of(problem), config, facts, device);
  }

  std::int64_t library_version(const Config& config) const override {
    return linear_family(config).library_version(config);
  }
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override {
    return linear_family(config).kernels(linear_of(problem), config);
  }
  bool reads_tensor_maps(const Config& config) const override {
    return linear_family(config).reads_tensor_maps();
  }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override {
    return linear_family(config).plan(linear_of(problem), config, device, resident);
  }

  std::string judge_source() const override {
    return "#include \"reference/linear_entries.cuh\"\n";
  }
  std::vector<std::string> judge_entries() const override { return linear_judge_entries(); }
  LaunchPlan answer(const Problem& problem, Precision precision) const override {
    return linear_answer(linear_of(problem), precision);
  }
  std::vector<JudgeCase> cases(const Problem& problem, const Config& config,
                               const DeviceInfo&) const override {
    return linear_cases(linear_of(problem), linear_family(config).block(config));
  }
  // The edge problems follow from the block.
  std::optional<std::int64_t> cases_class(const Problem&, const Config& config,
                                          const DeviceInfo&) const override {
    const LinearBlock block = linear_family(config).block(config);
    return (block.rows << 32) + (block.columns << 16) + block.k;
  }
  std::vector<Fill> inputs(const Problem& problem, const std::string& draw) const override {
    return linear_inputs(linear_of(problem), draw);
  }
};

}  // namespace

const Operator& linear() {
  static const Linear instance;
  return instance;
}

const LinearProblem& linear_of(const Problem& problem) {
  if (&problem.op() == &linear()) return static_cast<const AskedLinear&>(problem).problem;
  throw Error(ErrorCode::kFailure, "'" + problem.text() + "' is no problem of linear");
}

LinearProblem::operator ProblemPtr() const {
  validate();
  return std::make_shared<AskedLinear>(canonical());
}

}  // namespace vitune
