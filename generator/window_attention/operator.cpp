// generator/window_attention/operator.cpp -- Window attention behind the interface of every
// operator.
// SPDX-License-Identifier: Apache-2.0
#include "generator/window_attention/operator.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/window_attention/kernel_spec.h"

namespace vitune {
namespace {

class AskedWindowAttention final : public Problem {
 public:
  explicit AskedWindowAttention(WindowAttentionProblem canonical)
      : Problem(window_attention(), canonical.text()), problem(std::move(canonical)) {}
  const WindowAttentionProblem problem;
};

// A config in which every problem has a source, for what holds of all of them.
Config plain_config() {
  Config config;
  for (const char* const name :
       {"kHeadsPerCta", "kRowWarps", "kRowTiles", "kBuffers", "kMinCtas"}) {
    config.set(name, 1);
  }
  config.set("kBlockN", 16);
  config.set("kPersistent", 0);
  config.set("kBiasInRegisters", 0);
  return config;
}

auto kernel_order(const WindowAttentionProblem& p) {
  return std::tuple(p.type, p.d, p.window_rows, p.window_columns, p.grid, p.bias.has_value(),
                    p.is_padded(), p.pads_first, p.is_shifted(), p.rows, p.columns, p.heads,
                    p.images, p.layout);
}

class WindowAttention final : public Operator {
 public:
  std::string_view name() const override { return "window_attention"; }
  ProblemPtr parse(std::string_view text) const override {
    return std::make_shared<AskedWindowAttention>(WindowAttentionProblem::parse(text));
  }
  std::string example() const override {
    return "window_attention bf16 b=2 image=14x14 window=7x7 shift=3x3 h=3 d=32 "
           "bias=bf16:4x3x49x49";
  }

  std::vector<TensorSpec> tensors(const Problem& problem) const override {
    return window_attention_tensors(window_attention_of(problem));
  }
  std::string sizes(const Problem& problem) const override {
    const WindowAttentionProblem& p = window_attention_of(problem);
    return formatted("b={} image={}x{} window={}x{} h={} d={}", p.images, p.rows, p.columns,
                     p.window_rows, p.window_columns, p.heads, p.d);
  }
  double flops(const Problem& problem) const override {
    return window_attention_of(problem).flops();
  }
  double min_bytes(const Problem& problem) const override {
    return window_attention_of(problem).min_bytes();
  }
  Demand demand(const Problem& problem, const DeviceInfo& device) const override {
    return window_attention_demand(window_attention_of(problem), device);
  }

  // The source of some kernel holds every compile-time fact of the problem; whether windows share a
  // bias decides if it is worth keeping.
  std::string kernel_class(const Problem& problem) const override {
    const WindowAttentionProblem& p = window_attention_of(problem);
    return window_attention_source(p, plain_config()) +
           formatted("// shared={}\n", p.bias && p.bias->windows == 1);
  }
  double distance(const Problem& a, const Problem& b) const override {
    const WindowAttentionProblem &p = window_attention_of(a), &q = window_attention_of(b);
    const auto ratio = [](std::int64_t x, std::int64_t y) {
      return std::abs(std::log(static_cast<double>(x) / static_cast<double>(y)));
    };
    return ratio(p.images * p.windows(), q.images * q.windows()) + ratio(p.heads, q.heads);
  }
  bool is_load_alike(const Problem& a, const Problem& b, const DeviceInfo& device) const override {
    const auto pairs = [&](const Problem& p) {
      return std::min(window_attention_of(p).pairs(),
                      std::int64_t{64} * std::max(device.sm_count, 1));
    };
    return pairs(a) <= 2 * pairs(b) && pairs(b) <= 2 * pairs(a);
  }
  bool is_before(const Problem& a, const Problem& b) const override {
    return kernel_order(window_attention_of(a)) < kernel_order(window_attention_of(b));
  }
  std::size_t work_hash(const Problem& problem) const override {
    const WindowAttentionProblem& p = window_attention_of(problem);
    return static_cast<std::size_t>((p.images * 8209 + p.rows) * 65599 + p.heads * 31 + p.columns);
  }

  ParameterSpace space(const Problem& problem, const DeviceInfo& device) const override {
    return window_attention_space(window_attention_of(problem), device);
  }
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override {
    return window_attention_defaults(window_attention_of(problem), device, space);
  }
  std::string family(const Config&) const override { return "sm80"; }

  std::string source(const Problem& problem, const Config& config) const override {
    return window_attention_source(window_attention_of(problem), config);
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
    return assemble("#include \"window_attention/windows_sm80.cuh\"\n");
  }
  std::optional<std::string> prune(const Problem& problem, const Config& config,
                                   const CompileFacts& facts,
                                   const DeviceInfo& device) const override {
    return window_attention_prune(window_attention_of(problem), config, facts, device);
  }

  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override {
    return window_attention_kernels(window_attention_of(problem), config);
  }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override {
    return window_attention_plan(window_attention_of(problem), config, device, resident);
  }

  std::string judge_source() const override {
    return "#include \"reference/window_attention_entries.cuh\"\n";
  }
  std::vector<std::string> judge_entries() const override {
    return window_attention_judge_entries();
  }
  LaunchPlan answer(const Problem& problem, Precision precision) const override {
    return window_attention_answer(window_attention_of(problem), precision);
  }
  std::vector<JudgeCase> cases(const Problem& problem, const Config&,
                               const DeviceInfo&) const override {
    return window_attention_cases(window_attention_of(problem));
  }
  std::optional<std::int64_t> cases_class(const Problem&, const Config&,
                                          const DeviceInfo&) const override {
    return 0;  // the same for all configs
  }
  std::vector<Fill> inputs(const Problem& problem, const std::string& draw) const override {
    return window_attention_inputs(window_attention_of(problem), draw);
  }
};

}  // namespace

const Operator& window_attention() {
  static const WindowAttention instance;
  return instance;
}

const WindowAttentionProblem& window_attention_of(const Problem& problem) {
  if (&problem.op() == &window_attention()) {
    return static_cast<const AskedWindowAttention&>(problem).problem;
  }
  throw Error(ErrorCode::kFailure, "'" + problem.text() + "' is no problem of window_attention");
}

WindowAttentionProblem::operator ProblemPtr() const {
  validate();
  return std::make_shared<AskedWindowAttention>(canonical());
}

}  // namespace vitune
