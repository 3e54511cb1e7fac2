// generator/window_attention/operator.cpp -- Window attention behind the interface of every
// operator.
// SPDX-License-Identifier: Apache-2.0
#include "generator/window_attention/operator.h"

#include <cmath>
#include <tuple>

#include "core/format.h"
#include "generator/operator_of.h"
#include "generator/window_attention/kernel_spec.h"

namespace vitune {
namespace {

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

class WindowAttention final : public OperatorOf<WindowAttentionProblem> {
 public:
  std::string_view name() const override { return "window_attention"; }
  std::string example() const override {
    return "window_attention bf16 b=2 image=14x14 window=7x7 shift=3x3 h=3 d=32 "
           "bias=bf16:4x3x49x49";
  }
  std::span<const Family* const> families() const override {
    static const Family* const all[] = {&window_attention_sm80()};
    return all;
  }

  std::vector<TensorSpec> tensors(const Problem& problem) const override {
    return window_attention_tensors(of(problem));
  }
  std::string sizes(const Problem& problem) const override {
    const WindowAttentionProblem& p = of(problem);
    return formatted("b={} image={}x{} window={}x{} h={} d={}", p.images, p.rows, p.columns,
                     p.window_rows, p.window_columns, p.heads, p.d);
  }
  Demand demand(const Problem& problem, const DeviceInfo& device) const override {
    const WindowAttentionProblem& p = of(problem);
    // As attention's (generator/attention/floor.cpp): a read of keys serves 64 rows at most, 256
    // where a pair of SMs multiplies together.
    constexpr double kInstructionsPerScore = 4.5;
    const double rows = device.cc_major == 10 || device.cc_major == 11 ? 256 : 64;
    const double keys = static_cast<double>(p.keys());
    const double scores = static_cast<double>(p.pairs()) * keys * keys;
    const double reads = static_cast<double>(p.pairs()) * std::ceil(keys / rows) * keys;
    return {.tensor_flops = p.flops(),
            .exponentials = scores,
            .instructions = kInstructionsPerScore * scores,
            .shared_bytes =
                2 * reads * static_cast<double>(p.d) * static_cast<double>(element_bytes(p.type)),
            .bytes = p.min_bytes()};
  }

  // The source of some kernel holds every compile-time fact of the problem; whether windows share a
  // bias decides if it is worth keeping.
  std::string kernel_class(const Problem& problem) const override {
    const WindowAttentionProblem& p = of(problem);
    return source(problem, plain_config()) +
           formatted("// shared={}\n", p.bias && p.bias->windows == 1);
  }
  double distance(const Problem& a, const Problem& b) const override {
    const WindowAttentionProblem &p = of(a), &q = of(b);
    return log_ratio(p.images * p.windows(), q.images * q.windows()) + log_ratio(p.heads, q.heads);
  }
  bool is_load_alike(const Problem& a, const Problem& b, const DeviceInfo& device) const override {
    return fill_alike(of(a).pairs(), of(b).pairs(), device);
  }
  bool is_before(const Problem& a, const Problem& b) const override {
    return kernel_order(of(a)) < kernel_order(of(b));
  }
  std::size_t work_hash(const Problem& problem) const override {
    const WindowAttentionProblem& p = of(problem);
    return static_cast<std::size_t>((p.images * 8209 + p.rows) * 65599 + p.heads * 31 + p.columns);
  }

  std::string judge_source() const override {
    return "#include \"reference/window_attention_entries.cuh\"\n";
  }
  std::vector<std::string> judge_entries() const override {
    return window_attention_judge_entries();
  }
  LaunchPlan answer(const Problem& problem, Precision precision) const override {
    return window_attention_answer(of(problem), precision);
  }
  std::vector<JudgeCase> cases(const Problem& problem, const Config&,
                               const DeviceInfo&) const override {
    return window_attention_cases(of(problem));
  }
  std::optional<std::int64_t> cases_class(const Problem&, const Config&,
                                          const DeviceInfo&) const override {
    return 0;  // the same for all configs
  }
  std::vector<Fill> inputs(const Problem& problem, const std::string& draw) const override {
    return window_attention_inputs(of(problem), draw);
  }
};

const WindowAttention& instance() {
  static const WindowAttention windows;
  return windows;
}

}  // namespace

const Operator& window_attention() { return instance(); }
const WindowAttentionProblem& window_attention_of(const Problem& problem) {
  return instance().of(problem);
}

WindowAttentionProblem::operator ProblemPtr() const {
  validate();
  return instance().asked(*this);
}

}  // namespace vitune
