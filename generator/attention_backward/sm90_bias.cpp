// generator/attention_backward/sm90_bias.cpp -- The family sm90_bias: a bias and its gradient with
// wgmma.
//
// Scratch memory: two numbers of each query, the bias in two orders, sums of dbias by unit.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention_backward/sm90_bias.h"

#include <algorithm>
#include <cstddef>

#include "core/checked.h"
#include "core/format.h"
#include "generator/attention/dropout.h"
#include "generator/attention/facts.h"
#include "generator/attention_backward/tensor_maps.h"
#include "generator/config_text.h"
#include "templates/attention_backward/sm90_bias_params.cuh"
#include "templates/attention_backward/sm90_params.cuh"

namespace vitune {
namespace {

using Shape = AttentionBackwardSm90Bias;

enum Kernel { kArrange, kDq, kDkv, kDbias, kSum };
constexpr const char* kEntries[] = {"vitune_attention_backward_arrange_bias",
                                    "vitune_attention_backward_dq", "vitune_attention_backward_dkv",
                                    "vitune_attention_backward_dbias",
                                    "vitune_attention_backward_dbias_sum"};
constexpr char kParams[] = "AttentionBackwardSm90BiasParams";
constexpr std::int64_t kMostScratch = std::int64_t{512} << 20;  // bytes

// Bytes of the bias in the order of registers.
std::int64_t order_bytes(const AttentionBackwardProblem& p, const Shape& shape, bool of_keys) {
  return bias_entries(p) * shape.entry_fragments(of_keys) * shape.fragment_bytes();
}

// Where the parts of scratch memory begin, and its bytes.
struct Scratch {
  std::int64_t query_bias, key_bias, sums, bytes;
};
Scratch scratch_of(const AttentionBackwardProblem& p, const Shape& shape, std::int64_t units) {
  const AttentionProblem& f = p.forward;
  Scratch scratch;
  const std::int64_t stats = f.batch * f.heads * shape.passes().stats_rows() * 2 * 4;
  scratch.query_bias = round_up(stats, kScratchUnit);
  scratch.key_bias = scratch.query_bias + round_up(order_bytes(p, shape, false), kScratchUnit);
  scratch.sums = scratch.key_bias + round_up(order_bytes(p, shape, true), kScratchUnit);
  const std::int64_t places = p.dbias ? units + bias_entries(p) - 1 : 0;
  scratch.bytes = scratch.sums + 4 * places * f.nq * shape.sum_pitch();
  return scratch;
}

AttentionBackwardParams params_of(const AttentionBackwardProblem& p) {
  AttentionBackwardParams params = attention_backward_params(p);
  params.dbias_batches = static_cast<int>(p.forward.bias->batches);
  params.dbias_heads = static_cast<int>(p.forward.heads / p.sharing_heads());
  params.sharing_batches = static_cast<int>(p.sharing_batches());
  params.sharing_heads = static_cast<int>(p.sharing_heads());
  return params;
}

std::string entry_with_maps(const AttentionBackwardSm90& shape, Kernel kernel,
                            const char* function) {
  return formatted(
      "\nextern \"C\" __global__ void __launch_bounds__({}, {})\n"
      "{}(const __grid_constant__ vitune::{} params,\n"
      "   const __grid_constant__ vitune::AttentionBackwardTensorMaps maps) {{\n"
      "  vitune::{}<vitune::Config>(params, maps);\n}}\n",
      shape.threads(), shape.ctas(), kEntries[kernel], kParams, function);
}

BackwardBoxes boxes_of(const Shape& shape, Kernel kernel) {
  const int swizzle = shape.pass(false).swizzle();
  switch (kernel) {
    case kDq:
      return {swizzle, Shape::kGroupRows, shape.key_step, true};
    case kDkv:
      return {swizzle, shape.query_step, Shape::kGroupRows, false};
    default:
      return {swizzle, Shape::kGroupRows, shape.tile_keys(), false};
  }
}

// CTAs of a unit in a kernel with tensor maps.
std::int64_t blocks_of(const Shape& shape, std::size_t kernel) {
  if (kernel == kDq) return shape.passes().query_blocks();
  if (kernel == kDkv) return shape.passes().key_blocks();
  return std::int64_t{shape.row_tiles()} * shape.key_tiles();
}

}  // namespace

std::int64_t bias_entries(const AttentionBackwardProblem& p) {
  return p.forward.bias->batches * (p.forward.heads / p.sharing_heads());
}

std::int64_t score_units(const AttentionBackwardProblem& p, std::int64_t blocks, int resident,
                         const DeviceInfo& device) {
  const std::int64_t room = sms_of(device, kUsualSms) * std::max(resident, 1);
  const std::int64_t units = std::min(room / blocks, p.forward.batch * p.forward.heads);
  return std::max<std::int64_t>(units, 1);
}

std::optional<std::string> AttentionBackwardSm90BiasFamily::refusal(
    const Problem& problem, const DeviceInfo& device) const {
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const AttentionProblem& f = p.forward;
  if (device.cc_major != 9) return "it is for compute capability 9.0";
  if (!f.bias) return "it is for a bias";
  if (f.mask || f.causal) return "it serves no mask and no causal mask";
  if (f.kv_heads != f.heads) return "it serves heads that have keys of their own";
  if (auto refused = no_dropout(f)) return refused;
  if (auto refused = attention_backward_maps_refusal(p)) return refused;
  Shape most = attention_backward_sm90_bias_facts(p);
  most.dbias_groups = most.dbias_tiles = 1;
  const std::int64_t units = sms_of(device, kUsualSms);
  const std::int64_t entry =
      std::max(order_bytes(p, most, false), order_bytes(p, most, true)) / bias_entries(p);
  if (bias_entries(p) > kMostScratch / entry || scratch_of(p, most, units).bytes > kMostScratch) {
    return formatted("its copies of the bias, and sums of its gradient, are more than {} bytes",
                     kMostScratch);
  }
  return std::nullopt;
}

ConfigWords AttentionBackwardSm90BiasFamily::own_words(const Config& config) const {
  const auto value = [&](const char* name) { return config.find(name).value_or(0); };
  std::string text = formatted("sm90_bias {}g dq {} dkv {} s{} r{}{}", value("kGroups"),
                               value("kKeyStep"), value("kQueryStep"), value("kStages"),
                               value("kRowSlots"), value("kKeepsBias") != 0 ? " kept" : "");
  if (value("kDbiasGroups") != 0) {
    text += formatted(" dbias {}g /{} {}", value("kDbiasGroups"), value("kDbiasTiles"),
                      value("kDbiasStep"));
  }
  return {text,
          {"kGroups", "kKeyStep", "kQueryStep", "kStages", "kRowSlots", "kKeepsBias",
           "kDbiasGroups", "kDbiasTiles", "kDbiasStep"}};
}

std::string AttentionBackwardSm90BiasFamily::templates() const {
  return "#include \"attention_backward/arrange_bias_sm90.cuh\"\n"
         "#include \"attention_backward/dq_bias_sm90.cuh\"\n"
         "#include \"attention_backward/dkv_bias_sm90.cuh\"\n"
         "#include \"attention_backward/dbias_sm90.cuh\"\n";
}

std::string AttentionBackwardSm90BiasFamily::source(const Problem& problem,
                                                    const Config& config) const {
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const Shape shape = attention_backward_sm90_bias_shape(p, config);
  std::string text =
      config_source(templates(), attention_backward_facts_text(p) +
                                     geometry_text("AttentionBackwardSm90Bias", shape)) +
      entry_text(std::to_string(Shape::kArrangeThreads), kEntries[kArrange], kParams,
                 "attention_backward_arrange_bias") +
      entry_with_maps(shape.passes(), kDq, "attention_backward_dq_bias_sm90") +
      entry_with_maps(shape.passes(), kDkv, "attention_backward_dkv_bias_sm90");
  if (!p.dbias) return text;
  return text + entry_with_maps(shape.sums(), kDbias, "attention_backward_dbias_sm90") +
         entry_text(std::to_string(Shape::kFinishThreads), kEntries[kSum], kParams,
                    "attention_backward_dbias_sum");
}

std::vector<KernelNeeds> AttentionBackwardSm90BiasFamily::kernels(const Problem& problem,
                                                                  const Config& config) const {
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const Shape shape = attention_backward_sm90_bias_shape(p, config);
  const int threads = shape.passes().threads();
  std::vector<KernelNeeds> kernels = {{kEntries[kArrange], Shape::kArrangeThreads, 0},
                                      {kEntries[kDq], threads, shape.shared_bytes(false)},
                                      {kEntries[kDkv], threads, shape.shared_bytes(true)}};
  if (!p.dbias) return kernels;
  kernels.push_back({kEntries[kDbias], shape.sums().threads(), shape.dbias_shared_bytes()});
  kernels.push_back({kEntries[kSum], Shape::kFinishThreads, 0});
  return kernels;
}

LaunchPlan AttentionBackwardSm90BiasFamily::plan(const Problem& problem, const Config& config,
                                                 const DeviceInfo& device,
                                                 std::span<const int> resident) const {
  constexpr std::int64_t kMostCtas = 1 << 20;
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const AttentionProblem& f = p.forward;
  const Shape shape = attention_backward_sm90_bias_shape(p, config);
  const std::vector<KernelNeeds> needs = kernels(problem, config);
  const auto units = [&](std::size_t kernel) {
    return score_units(p, blocks_of(shape, kernel), resident[kernel], device);
  };
  const std::int64_t dbias_units = p.dbias ? units(kDbias) : 1, entries = bias_entries(p);
  const Scratch scratch = scratch_of(p, shape, dbias_units);
  const AttentionBackwardSm90BiasParams params = {.backward = params_of(p),
                                                  .query_bias = nullptr,
                                                  .key_bias = nullptr,
                                                  .units = static_cast<int>(dbias_units)};
  LaunchPlan plan;
  for (std::size_t i = 0; i < needs.size(); ++i) {
    const std::int64_t threads = needs[i].threads;
    std::int64_t ctas = 0;
    if (i == kArrange) {
      const std::int64_t fragments = shape.entry_fragments(false) + shape.entry_fragments(true);
      ctas = std::min(ceil_div(entries * fragments * 128, threads), kMostCtas);
    } else if (i == kSum) {
      // Each entry has as many.
      ctas = entries * std::min(ceil_div(f.nq * f.nk, threads),
                                std::max<std::int64_t>(kMostCtas / entries, 1));
    } else {
      ctas = units(i) * blocks_of(shape, i);
    }
    KernelLaunch& launch = plan.kernels.emplace_back();
    launch.kernel = i;
    launch.shape.grid[0] = static_cast<std::uint32_t>(ctas);
    launch.shape.block[0] = static_cast<std::uint32_t>(threads);
    launch.shape.shared_bytes = static_cast<std::uint32_t>(needs[i].shared_bytes);
    launch.shape.waits_for_earlier = true;  // wait_for_earlier_grids() in templates
    launch.params = parameter_bytes(params);
    launch.pointers = attention_backward_pointers();
    using Params = AttentionBackwardSm90BiasParams;
    launch.pointers.push_back(
        {PointerSlot::kScratch, offsetof(Params, query_bias), scratch.query_bias});
    launch.pointers.push_back(
        {PointerSlot::kScratch, offsetof(Params, key_bias), scratch.key_bias});
    launch.pointers.push_back(
        {PointerSlot::kScratch, offsetof(Params, backward.partials), scratch.sums});
    if (i == kArrange || i == kSum) continue;
    launch.map_bytes = sizeof(AttentionBackwardTensorMaps);
    launch.maps = attention_backward_maps(p, boxes_of(shape, static_cast<Kernel>(i)));
  }
  plan.scratch_bytes = scratch.bytes;
  return plan;
}

const GemmFamily& attention_backward_sm90_bias() {
  static const AttentionBackwardSm90BiasFamily instance;
  return instance;
}

}  // namespace vitune
