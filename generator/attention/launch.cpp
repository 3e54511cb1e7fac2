// generator/attention/launch.cpp -- How a compiled attention kernel is launched, and whether it can
// be.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <bit>

#include "core/checked.h"
#include "core/format.h"
#include "generator/attention/even_items.h"
#include "generator/attention/facts.h"
#include "generator/attention/family.h"
#include "generator/attention/operator.h"

namespace vitune {
namespace {

AttentionView view_of(const TensorStrides& strides) {
  return {strides.batch, strides.head, strides.row};
}

AttentionScoreView view_of(const std::optional<ScoreOperand>& operand) {
  if (!operand) return {0, 0, 0, 0, 1};
  const auto& [batch, head, row, key] = operand->strides;
  return {batch, head, row, key, static_cast<int>(operand->batches)};
}

std::int64_t batches_of(const std::optional<ScoreOperand>& operand) {
  return operand ? operand->batches : 1;
}

const void* pointer(CuPointer address) { return reinterpret_cast<const void*>(address); }

}  // namespace

std::optional<std::string> AttentionFamily::prune(const Problem& asked, const Config& config,
                                                  const CompileFacts& facts,
                                                  const DeviceInfo& device) const {
  if (auto why = Family::prune(asked, config, facts, device)) return why;
  const AttentionProblem& problem = attention_of(asked);
  const AttentionShape shape(problem, config);
  const int ctas = resident_ctas(device, static_cast<int>(shape.threads()), facts.registers,
                                 shape.shared_bytes());
  // Four sub-partitions with one warp each is the least that can hide any latency; fewer is only of
  // use where there is not more work.
  const std::int64_t sms = std::max(device.sm_count, 1);
  const std::int64_t wanted =
      ceil_div(shape.items(problem.batch * problem.heads), sms) * shape.warps;
  if (ctas * shape.warps < std::min<std::int64_t>(4, wanted)) {
    return formatted("occupancy: {} warps per SM", ctas * shape.warps);
  }
  return std::nullopt;
}

LaunchShape attention_launch_shape(const AttentionProblem& problem, const Config& config,
                                   const DeviceInfo& device, int resident_ctas) {
  const AttentionShape shape(problem, config);
  const std::int64_t heads = problem.batch * problem.heads;
  const std::int64_t room = std::int64_t{std::max(device.sm_count, 1)} * std::max(resident_ctas, 1);
  const std::int64_t items =
      shape.even_items ? EvenItems::best(shape, heads, room).items : shape.items(heads);
  LaunchShape launch;
  launch.waits_for_earlier = device.cc_major >= 9;  // wait_for_earlier_grids() in templates
  launch.grid[0] = static_cast<std::uint32_t>(shape.persistent ? std::min(items, room) : items);
  if (shape.bias_in_registers) {
    // A whole number of rounds over the heads, so that a CTA meets the same heads again.
    const std::int64_t round = ceil_div(problem.heads, shape.heads_per_cta) * shape.row_split;
    launch.grid[0] -=
        static_cast<std::uint32_t>(launch.grid[0] > round ? launch.grid[0] % round : 0);
  }
  launch.block[0] = static_cast<std::uint32_t>(shape.threads());
  launch.shared_bytes = static_cast<std::uint32_t>(shape.shared_bytes());
  return launch;
}

AttentionDivisor attention_divisor(std::int64_t value) {
  const auto divisor = static_cast<std::uint64_t>(value);
  const auto shift =
      static_cast<unsigned>(std::bit_width(divisor - 1));  // the logarithm, rounded up
  const std::uint64_t multiplier = ((std::uint64_t{1} << (31 + shift)) + divisor - 1) / divisor;
  return {static_cast<unsigned>(divisor), static_cast<unsigned>(multiplier), shift};
}

AttentionParams attention_call(const AttentionProblem& problem) {
  AttentionParams params{};
  params.q_view = view_of(problem.q);
  params.k_view = view_of(problem.k);
  params.v_view = view_of(problem.v);
  params.o_view = view_of(problem.o);
  params.bias_view = view_of(problem.bias);
  params.mask_view = view_of(problem.mask);
  params.batch = static_cast<int>(problem.batch);
  params.heads = static_cast<int>(problem.heads);
  params.heads_per_kv = static_cast<int>(problem.heads / problem.kv_heads);
  params.queries = static_cast<int>(problem.nq);
  params.keys = static_cast<int>(problem.nk);
  params.scale = static_cast<float>(problem.scale);
  params.by_heads = attention_divisor(problem.heads);
  params.by_heads_per_kv = attention_divisor(params.heads_per_kv);
  params.by_bias_batches = attention_divisor(batches_of(problem.bias));
  params.by_mask_batches = attention_divisor(batches_of(problem.mask));
  return params;
}

AttentionParams attention_params(const AttentionProblem& problem, const Config& config,
                                 const AttentionPointers& pointers, const LaunchShape& launch) {
  AttentionParams params = attention_call(problem);
  params.q = pointer(pointers.q);
  params.k = pointer(pointers.k);
  params.v = pointer(pointers.v);
  params.o = const_cast<void*>(pointer(pointers.o));
  params.lse = static_cast<float*>(const_cast<void*>(pointer(pointers.lse)));
  params.bias = pointer(pointers.bias);
  params.mask = pointer(pointers.mask);
  const AttentionShape shape(problem, config);
  const std::int64_t heads = problem.batch * problem.heads;
  params.items = static_cast<int>(shape.items(heads));
  params.by_items = attention_divisor(ceil_div(shape.block_rows(), shape.block_m()));
  params.by_rest_items = attention_divisor(1);
  if (!shape.even_items) return params;
  // The grid is the room for CTAs, or there are no more items than that and nothing to even out.
  const EvenItems even = EvenItems::best(shape, heads, std::max<std::int64_t>(launch.grid[0], 1));
  params.items = static_cast<int>(even.items);
  params.whole_items = static_cast<int>(even.whole_items);
  params.rest_items = static_cast<int>(even.rest_items);
  params.rest_blocks = static_cast<int>(even.rest_blocks);
  params.by_items = attention_divisor(std::max<std::int64_t>(even.whole_items, 1));
  params.by_rest_items = attention_divisor(std::max<std::int64_t>(even.rest_items, 1));
  return params;
}

}  // namespace vitune
