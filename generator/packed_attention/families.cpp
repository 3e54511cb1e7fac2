// generator/packed_attention/families.cpp -- The families of packed attention: mma.sync (sm80),
// wgmma (sm90), wgmma beside warps that do nothing but copy (sm90_pipelined).
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "core/checked.h"
#include "core/format.h"
#include "generator/attention/family.h"
#include "generator/config_text.h"
#include "generator/geometry.h"
#include "generator/packed_attention/kernel_spec.h"
#include "generator/packed_attention/operator.h"

namespace vitune {
namespace {

using Shape = PackedGeometry;
using Values = std::vector<std::pair<std::string_view, std::vector<std::int64_t>>>;

constexpr char kEntry[] = "vitune_packed_attention";

Shape facts_of(const PackedAttentionProblem& p) {
  Shape facts = {};
  facts.head_dim = static_cast<int>(p.d);
  return facts;
}

// Values of one: what a family does without.
const Tunables<Shape>& members() {
  static const auto& all = *new Tunables<Shape>{
      {&Shape::swizzle,
       {"kSwizzle", {0}, "0: padded rows and mma.sync; else bytes per swizzled row, and wgmma"}},
      {&Shape::producer,
       {"kProducer",
        {0},
        "2: four warps more do nothing but copy, whole tiles by tensor maps (wgmma only)",
        false,
        true}},
      {&Shape::warps, {"kWarps", {}, "warps of a CTA that compute", false, true}},
      {&Shape::row_tiles, {"kRowTiles", {1}, "16-row tiles of a warp at once", false, true}},
      {&Shape::block_n, {"kBlockN", {}, "keys per step", false, true}},
      {&Shape::stages, {"kStages", {}, "tiles of keys, and of values, in flight", false, true}},
      {&Shape::query_in_registers,
       {"kQueryInRegisters", {0}, "1: queries stay in registers", false, true}},
      {&Shape::min_ctas,
       {"kMinCtas",
        {1, 2, 3, 4, 6, 8},
        "CTAs per SM that the compiler leaves room for",
        false,
        true}},
      {&Shape::persistent,
       {"kPersistent", {0, 1}, "1: CTAs walk over many work items", false, true}},
  };
  return all;
}

// Keys of a step: no wider than the longest sequence needs.
std::vector<std::int64_t> step_widths(const PackedAttentionProblem& p,
                                      std::vector<std::int64_t> widths) {
  const std::int64_t most = round_up(p.longest_k, 16);
  std::erase_if(widths, [&](std::int64_t width) { return width > most; });
  if (widths.empty()) widths.push_back(most);
  return widths;
}

bool is_set(const Config& config, std::string_view name) {
  return config.find(name).value_or(0) != 0;
}

std::vector<std::int64_t> swizzles_of(const PackedAttentionProblem& p) {
  AttentionProblem rows;
  rows.d = p.d;
  return swizzle_widths(rows);
}

// Strides of which tensor maps are made (CUDA driver API, "Tensor Map Object Management").
bool maps_fit(const PackedAttentionProblem& p) {
  const auto fits = [](const TokenStrides& strides, std::int64_t tokens, std::int64_t heads) {
    const std::int64_t token = tokens == 1 ? 8 : strides.token,
                       head = heads == 1 ? 8 : strides.head;
    return token > 0 && head > 0 && std::max(token * tokens, head) < std::int64_t{1} << 39;
  };
  return fits(p.q, p.tokens, p.heads) && fits(p.k, p.tokens_k, p.kv_heads) &&
         fits(p.v, p.tokens_k, p.kv_heads);
}

// A family: the configs that it tries, an estimate of how good each is, and its template.
class PackedFamily : public Family {
 public:
  std::vector<Parameter> parameters(const Problem& problem) const final {
    return with_values(parameters_of(members()), values(packed_attention_of(problem)));
  }
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const final;
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const final;
  std::string templates() const final {
    return formatted("#include \"packed_attention/packed_{}.cuh\"\n", name());
  }
  std::string source(const Problem& problem, const Config& config) const final;
  int harmless_spill_bytes() const override { return 64; }
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const final {
    const Shape t = packed_geometry(packed_attention_of(problem), config);
    return {{kEntry, t.threads(), t.shared_bytes()}};
  }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const final;

 protected:
  // Query rows of a CTA, keys of a step and warps of an SM that are likely good.
  struct Likely {
    double rows, keys, warps;
  };
  // Whether small CTAs come first without tuning. By the longest sequence alone: one kernel serves
  // all numbers of tokens and sequences.
  static bool are_small_ctas_first(const PackedAttentionProblem& problem);

 private:
  virtual Values values(const PackedAttentionProblem& problem) const = 0;
  // Nothing: another family comes first.
  virtual std::optional<Likely> likely(const PackedAttentionProblem& problem) const = 0;
};

// Persistent CTAs of many rows hide copies best, but where a few steps have all of the keys: there
// four small CTAs of an SM fill it more evenly and hide each other's first and last steps, as long
// as registers suffice (d up to 64).
bool PackedFamily::are_small_ctas_first(const PackedAttentionProblem& p) {
  constexpr std::int64_t kBlock = 64, kFewSteps = 640;
  const std::int64_t longest = std::max(p.longest, p.longest_k);
  return longest > kBlock && longest <= kFewSteps && p.d <= 64;
}

std::vector<Constraint> PackedFamily::rules(const Problem& asked, const DeviceInfo& device) const {
  const PackedAttentionProblem& problem = packed_attention_of(asked);
  const std::int64_t shared = device.shared_per_block, sm_shared = device.shared_per_sm;
  const Shape facts = facts_of(problem);
  std::vector<Constraint> rules = geometry_rules(packed_rules().all, members(), facts);
  rules.push_back(shape_rule<Shape>(
      "shared memory: queries, and stages of keys and values; of kMinCtas on an SM", members(),
      facts,
      {&Shape::swizzle, &Shape::producer, &Shape::warps, &Shape::row_tiles, &Shape::block_n,
       &Shape::stages, &Shape::min_ctas},
      [shared, sm_shared](const Shape& s) {
        const std::int64_t bytes = s.shared_bytes();
        return bytes <= shared && (bytes + 1024) * s.min_ctas <= std::max(sm_shared, shared + 1024);
      },
      [](const Shape& s) { return formatted("{} bytes", s.shared_bytes()); }));
  rules.push_back(
      shape_rule<Shape>("rows: a CTA has no more than twice those of the longest sequence",
                        members(), facts, {&Shape::warps, &Shape::row_tiles},
                        [most = std::max<std::int64_t>(64, 2 * problem.longest)](const Shape& s) {
                          return s.block_m() < most || s.block_m() <= 64;
                        }));
  rules.push_back(
      shape_rule<Shape>("stages: no more than steps of keys, two for warpgroups", members(), facts,
                        {&Shape::swizzle, &Shape::producer, &Shape::block_n, &Shape::stages},
                        [longest = problem.longest_k](const Shape& s) {
                          if (s.producer != 0) return true;  // the next items' come ahead
                          const std::int64_t steps = ceil_div(longest, std::int64_t{s.block_n});
                          return s.stages <= std::max<std::int64_t>(steps, s.warpgroups() ? 2 : 1);
                        }));
  return rules;
}

std::optional<double> PackedFamily::rank(const Problem& asked, const Config& config,
                                         const DeviceInfo&) const {
  const PackedAttentionProblem& problem = packed_attention_of(asked);
  const Shape t = packed_geometry(problem, config);
  const std::optional<Likely> wanted = likely(problem);
  if (!wanted) return std::nullopt;
  const auto off = [](double value, double goal) { return std::abs(std::log2(value / goal)); };
  double cost = 2 * off(t.block_m(), wanted->rows) + 2 * off(t.block_n, wanted->keys);
  cost += off(t.warps * t.min_ctas, wanted->warps);
  cost += std::abs(t.stages - 2) / 4.0;
  cost += t.row_tiles == 1 ? 0 : 0.5;
  cost += t.query_in_registers != 0 ? 0 : 0.125;
  cost += t.persistent != 0 ? 0.125 : 0;
  // Wider swizzles have fewer bank conflicts; padding is copied for nothing.
  if (t.warpgroups()) cost += t.row_bytes() / (16.0 * t.head_dim) + 8.0 / t.swizzle;
  return cost;
}

// The entry of a kernel that reads tensor maps.
std::string mapped_entry(const Shape& t) {
  return formatted(
      "\nextern \"C\" __global__ void __launch_bounds__({}, {})\n"
      "{}(const __grid_constant__ vitune::PackedAttentionParams params,\n"
      "    const __grid_constant__ vitune::PackedTensorMaps maps) {{\n"
      "  vitune::packed_attention<vitune::Config>(params, maps);\n}}\n",
      t.threads(), t.min_ctas, kEntry);
}

// How the tensor memory accelerator sees q, k and v; of tiles of so many queries and keys.
std::vector<TensorMapSlot> packed_maps(const PackedAttentionProblem& p, const Shape& t) {
  const auto of_rows = [&](PackedAttentionTensor tensor, std::size_t at,
                           const TokenStrides& strides, std::int64_t tokens, std::int64_t heads,
                           std::int64_t tile_rows) {
    return TensorMapSlot{.tensor = tensor,
                         .at = static_cast<std::uint32_t>(at),
                         .sizes = {p.d, tokens, heads, 1},
                         .strides = {strides.token, strides.head, strides.token * tokens},
                         .columns = t.swizzle / 2,
                         .rows = tile_rows,
                         .swizzle = t.swizzle};
  };
  constexpr std::int64_t kGroupRows = 64;
  return {of_rows(kPackedQ, offsetof(PackedTensorMaps, q), p.q, p.tokens, p.heads, kGroupRows),
          of_rows(kPackedK, offsetof(PackedTensorMaps, k), p.k, p.tokens_k, p.kv_heads, t.block_n),
          of_rows(kPackedV, offsetof(PackedTensorMaps, v), p.v, p.tokens_k, p.kv_heads, t.block_n)};
}

std::string PackedFamily::source(const Problem& problem, const Config& config) const {
  const PackedAttentionProblem& p = packed_attention_of(problem);
  const Shape t = packed_geometry(p, config);
  const std::string entry = t.producer != 0
                                ? mapped_entry(t)
                                : entry_text(formatted("{}, {}", t.threads(), t.min_ctas), kEntry,
                                             "PackedAttentionParams", "packed_attention");
  return config_source(templates(),
                       config_number("kElement", p.type == ElementType::kBf16 ? 1 : 0) +
                           config_flag("kCausal", p.causal) + config_flag("kLse", p.lse) +
                           config_flag("kManySteps", p.longest_k > std::int64_t{2} * t.block_n) +
                           geometry_text("PackedGeometry", t)) +
         entry;
}

LaunchPlan PackedFamily::plan(const Problem& problem, const Config& config,
                              const DeviceInfo& device, std::span<const int> resident) const {
  const PackedAttentionProblem& p = packed_attention_of(problem);
  const Shape t = packed_geometry(p, config);
  const std::int64_t items = p.most_blocks(t.block_m()) * p.heads;
  const std::int64_t room = std::int64_t{std::max(device.sm_count, 1)} *
                            std::max(resident.empty() ? 1 : resident.front(), 1);
  PackedAttentionParams params = packed_attention_params(p);
  params.call.items = static_cast<int>(items);
  KernelLaunch launch;
  launch.shape.waits_for_earlier = device.cc_major >= 9;  // wait_for_earlier_grids() in templates
  launch.shape.grid[0] =
      static_cast<std::uint32_t>(t.persistent != 0 ? std::min(items, room) : items);
  launch.shape.block[0] = static_cast<std::uint32_t>(t.threads());
  launch.shape.shared_bytes = static_cast<std::uint32_t>(t.shared_bytes());
  launch.params = parameter_bytes(params);
  launch.pointers = packed_attention_pointers();
  if (t.producer != 0) {
    launch.map_bytes = sizeof(PackedTensorMaps);
    launch.maps = packed_maps(p, t);
  }
  LaunchPlan plan;
  plan.kernels.push_back(std::move(launch));
  return plan;
}

class PackedSm80 final : public PackedFamily {
 public:
  std::string_view name() const override { return "sm80"; }
  bool owns(const Config& config) const override { return !is_set(config, "kSwizzle"); }

 private:
  Values values(const PackedAttentionProblem& p) const override {
    return {{"kWarps", {2, 4, 8}},
            {"kRowTiles", {1, 2}},
            {"kBlockN", step_widths(p, {32, 48, 64, 80, 96, 112, 128})},
            {"kStages", {1, 2, 3}},
            {"kQueryInRegisters", {0, 1}}};
  }
  std::optional<Likely> likely(const PackedAttentionProblem&) const override {
    return Likely{.rows = 64, .keys = 64, .warps = 12};
  }
};

class PackedSm90 final : public PackedFamily {
 public:
  std::string_view name() const override { return "sm90"; }
  bool owns(const Config& config) const override {
    return is_set(config, "kSwizzle") && !is_set(config, "kProducer");
  }
  std::optional<std::string> refusal(const Problem&, const DeviceInfo& device) const override {
    return lacks_wgmma(device);
  }
  bool is_of_one_architecture() const override { return true; }

 private:
  Values values(const PackedAttentionProblem& p) const override {
    return {{"kSwizzle", swizzles_of(p)},
            {"kWarps", {4, 8, 12}},
            {"kBlockN", step_widths(p, {32, 48, 64, 80, 96, 112, 128, 160})},
            {"kStages", {2, 3}}};
  }
  // Small blocks where sequences are short: rows behind their ends are computed for nothing.
  std::optional<Likely> likely(const PackedAttentionProblem& p) const override {
    if (are_small_ctas_first(p)) return Likely{.rows = 64, .keys = 80, .warps = 16};
    const double keys = p.longest_k <= 64 ? 64 : p.d > 96 ? 80 : 112;
    if (p.longest <= 256) return Likely{.rows = 64, .keys = keys, .warps = 12};
    return Likely{.rows = 128, .keys = p.d > 96 ? 96.0 : 128.0, .warps = 8};
  }
};

class PackedSm90Pipelined final : public PackedFamily {
 public:
  std::string_view name() const override { return "sm90_pipelined"; }
  bool owns(const Config& config) const override { return is_set(config, "kProducer"); }
  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override {
    if (auto refused = lacks_wgmma(device)) return refused;
    if (maps_fit(packed_attention_of(problem))) return std::nullopt;
    return "tensor maps need strides that are not 0 and below 2^40 bytes";
  }
  bool is_of_one_architecture() const override { return true; }
  bool reads_tensor_maps(const Config&) const override { return true; }
  // Warps that only copy spill where it does not matter.
  int harmless_spill_bytes() const override { return 192; }

 private:
  Values values(const PackedAttentionProblem& p) const override {
    return {{"kSwizzle", swizzles_of(p)},
            {"kProducer", {2}},
            {"kPersistent", {1}},
            {"kWarps", {4, 8, 12}},
            {"kBlockN", step_widths(p, {32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 208})},
            {"kStages", {2, 3, 4}}};
  }
  // As the fixed kernels': three warpgroups where their registers suffice for wide steps.
  std::optional<Likely> likely(const PackedAttentionProblem& p) const override {
    if (are_small_ctas_first(p)) return std::nullopt;
    if (p.longest <= 256)
      return Likely{.rows = 64, .keys = p.longest_k <= 64 ? 64.0 : 112.0, .warps = 12};
    return Likely{.rows = p.longest < 640 ? 128.0 : 192.0,
                  .keys = p.d > 96   ? 96.0
                          : p.d > 72 ? 128.0
                          : p.d > 64 ? 112.0
                                     : 160.0,
                  .warps = 12};
  }
};

}  // namespace

PackedGeometry packed_geometry(const PackedAttentionProblem& p, const Config& config) {
  return read_tunables(members(), config, facts_of(p));
}

const Family& packed_attention_sm80() {
  static const PackedSm80 instance;
  return instance;
}

const Family& packed_attention_sm90() {
  static const PackedSm90 instance;
  return instance;
}

const Family& packed_attention_sm90_pipelined() {
  static const PackedSm90Pipelined instance;
  return instance;
}

}  // namespace vitune
