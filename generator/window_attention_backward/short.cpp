// generator/window_attention_backward/short.cpp -- The family sm80_short of window attention's
// gradients: mma.sync for windows of few pixels, whose operands serve several groups of rows.
//
// A stored config has the tunables of the family sm80 that are its own too; those that it lacks are
// 0, and no config of sm80 has steps of 0 keys.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/format.h"
#include "generator/config_text.h"
#include "generator/geometry.h"
#include "generator/window_attention_backward/kernel_spec.h"
#include "generator/window_attention_backward/operator.h"
#include "templates/window_attention_backward/geometry_short.cuh"

namespace vitune {
namespace {

using Shape = WindowBackwardShort;

constexpr char kEntry[] = "vitune_window_attention_backward_short";
constexpr std::int64_t kMostKeys = 80;
constexpr std::int64_t kReservedBytes = 1024;  // of shared memory, of each CTA

Shape facts_of(const WindowAttentionBackwardProblem& p) {
  Shape facts = {};
  facts.head_dim = static_cast<int>(p.forward.d);
  facts.keys = static_cast<int>(p.forward.keys());
  facts.bias = window_attention_backward_bias(p.forward);
  facts.dbias = p.sums_bias() ? 1 : 0;
  return facts;
}

const Tunables<Shape>& members() {
  static const auto& all = *new Tunables<Shape>{
      {&Shape::warps, {"kWarps", {1, 2, 3, 4, 5}, "warps of a CTA", false, true}},
      {&Shape::buffers,
       {"kBuffers", {1, 2}, "2: the next pair is copied while one is worked on", false, true}},
      {&Shape::min_ctas,
       {"kMinCtas",
        {1, 2, 3, 4, 5, 6, 8, 12, 16},
        "CTAs per SM that the compiler leaves room for",
        false,
        true}},
  };
  return all;
}

Shape shape_of(const WindowAttentionBackwardProblem& p, const Config& config) {
  return read_tunables(members(), config, facts_of(p));
}

// CTAs that an SM holds at once, where the compiler takes the registers that it likes to have.
int resident_ctas(const Shape& s, const DeviceInfo& device) {
  constexpr int kLiked = 52, kSmRegisters = 65536;
  const int registers = Shape::parts(std::min(s.register_room(), s.registers() + kLiked), 8) * 8;
  const std::int64_t each = s.shared_bytes() + kReservedBytes;
  const auto by_memory =
      static_cast<int>(std::max<std::int64_t>(device.shared_per_sm, each) / each);
  return std::max(std::min(kSmRegisters / (s.threads() * registers), by_memory), 1);
}

// Clocks of an SM for a pair, roughly: what passes through shared memory, the tensor cores, memory;
// or a pair's way through a CTA, of which so many are there at once.
double pair_clocks(const Shape& s, int resident) {
  constexpr double kSharedBytes = 128, kProducts = 1024, kMemoryBytes = 18.6;
  constexpr double kCopyLatency = 2000, kLatency = 2500, kGroupLatency = 1500, kQuarters = 4;
  constexpr double kHidden = 0.1;  // of what waits for something slower is not hidden there
  const double plane = s.plane_bytes(), columns = 8.0 * s.tiles();
  const double scores = 2.0 * s.rows() * columns;
  // Copied; Q and dO once; K twice, V, dO and Q by each warp; P and dS written and read; staged.
  const double shared =
      4 * plane + 2 * plane + s.warps * 5 * columns * s.pitch() + 4 * scores + 2 * 3 * plane;
  const double products = 5.0 * s.rows() * columns * s.head_dim / kProducts;
  const double bytes = 7.0 * 2 * s.keys * s.head_dim;
  const double own = (products * kQuarters / std::min<double>(s.warps, kQuarters) + kLatency +
                      kGroupLatency * s.groups() + (s.buffers == 1 ? kCopyLatency : 0)) /
                     resident;
  const double passed = shared / kSharedBytes;
  return std::max({passed, products, bytes / kMemoryBytes, own}) +
         kHidden * (passed + products + own);
}

class WindowBackwardShortFamily final : public Family {
 public:
  std::string_view name() const override { return "sm80_short"; }
  bool owns(const Config& config) const override { return config.find("kBlockN").value_or(1) == 0; }
  std::optional<std::string> refusal(const Problem& problem, const DeviceInfo&) const override;
  std::vector<Parameter> parameters(const Problem& problem) const override;
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const override;
  int harmless_spill_bytes() const override { return 96; }
  std::string templates() const override {
    return "#include \"window_attention_backward/short_sm80.cuh\"\n";
  }
  std::string source(const Problem& problem, const Config& config) const override;
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override {
    const WindowAttentionBackwardProblem& p = window_attention_backward_of(problem);
    const Shape t = shape_of(p, config);
    return window_attention_backward_kernels(p, {kEntry, t.threads(), t.shared_bytes()});
  }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override {
    return window_attention_backward_plan(window_attention_backward_of(problem),
                                          kernels(problem, config), device, resident);
  }
};

std::optional<std::string> WindowBackwardShortFamily::refusal(const Problem& problem,
                                                              const DeviceInfo&) const {
  const WindowAttentionProblem& f = window_attention_backward_of(problem).forward;
  if (f.keys() > kMostKeys) {
    return formatted("it has all scores of a window in registers: at most {} pixels, not {}",
                     kMostKeys, f.keys());
  }
  if (f.is_padded()) return "it serves no windows that reach beyond the image";
  return std::nullopt;
}

std::vector<Parameter> WindowBackwardShortFamily::parameters(const Problem&) const {
  std::vector<Parameter> all = parameters_of(members());
  all.push_back({"kBlockN", {0}, "0: all keys at once", false, true});
  all.push_back({"kKeepsScores", {0}, "of the family sm80", false, true});
  return all;
}

std::vector<Constraint> WindowBackwardShortFamily::rules(const Problem& problem,
                                                         const DeviceInfo& device) const {
  const std::int64_t shared = device.shared_per_block, sm_shared = device.shared_per_sm;
  const Shape facts = facts_of(window_attention_backward_of(problem));
  std::vector<Constraint> rules =
      geometry_rules(window_backward_short_rules().all, members(), facts);
  rules.push_back(shape_rule<Shape>(
      "shared memory: all rows of a window and head, and of kMinCtas on an SM", members(), facts,
      {&Shape::warps, &Shape::buffers, &Shape::min_ctas},
      [shared, sm_shared](const Shape& s) {
        const std::int64_t bytes = s.shared_bytes();
        return bytes <= shared && (bytes + kReservedBytes) * s.min_ctas <=
                                      std::max(sm_shared, shared + kReservedBytes);
      },
      [](const Shape& s) { return formatted("{} bytes", s.shared_bytes()); }));
  return rules;
}

std::optional<double> WindowBackwardShortFamily::rank(const Problem& problem, const Config& config,
                                                      const DeviceInfo& device) const {
  constexpr int kAtEase = 8;
  constexpr double kPressed = 1.4;  // where the compiler has few registers to spare
  const Shape shape = shape_of(window_attention_backward_of(problem), config);
  return pair_clocks(shape, resident_ctas(shape, device)) *
         (shape.registers() + kAtEase > shape.register_room() ? kPressed : 1);
}

std::string WindowBackwardShortFamily::source(const Problem& problem, const Config& config) const {
  const WindowAttentionBackwardProblem& p = window_attention_backward_of(problem);
  const Shape t = shape_of(p, config);
  return config_source(templates(), window_attention_backward_facts_text(p.forward) +
                                        geometry_text("WindowBackwardShort", t)) +
         entry_text(formatted("{}, {}", t.threads(), t.min_ctas), kEntry,
                    "WindowAttentionBackwardParams", "window_attention_backward_short") +
         window_attention_backward_sums_text(p, "window_attention_backward_short");
}

}  // namespace

const Family& window_attention_backward_short() {
  static const WindowBackwardShortFamily instance;
  return instance;
}

}  // namespace vitune
