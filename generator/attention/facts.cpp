// generator/attention/facts.cpp -- What of a problem becomes a compile-time constant of its
// kernels.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/facts.h"

#include <algorithm>

#include "core/checked.h"

namespace vitune {
namespace {

constexpr std::int64_t kMostMapStride = std::int64_t{1} << 40;  // bytes, exclusive
// A draw and what is kept of 32 keys (templates/attention/dropout.cuh).
constexpr std::int64_t kDropoutRegisters = 24;

// Largest of 4, 2, 1 keys that one aligned load of a score operand may cover, 0 if keys are not
// contiguous. A vector must divide the key count, so that none reaches beyond a row. Where it is 1,
// 16-bit biases are still read as aligned words, and masks always are
// (templates/attention/shifted_rows.cuh).
int keys_per_load(const AttentionProblem& problem, const ScoreOperand& operand, int most) {
  const auto& [batch, head, row, key] = operand.strides;
  if (key != 1) return 0;
  for (int vector = most; vector > 1; vector /= 2) {
    const bool strides_fit = batch % vector == 0 && head % vector == 0 && row % vector == 0;
    const bool pointer_fits = problem.alignment % (vector * element_bytes(operand.type)) == 0;
    if (strides_fit && pointer_fits && problem.nk % vector == 0) return vector;
  }
  return 1;
}

// True if all rows of the bias begin at multiples of 16 bytes, at strides that a tensor map takes.
bool rows_aligned(const AttentionProblem& problem, const ScoreOperand& bias) {
  const auto fits = [&](std::int64_t stride) {
    const std::int64_t bytes = stride * static_cast<std::int64_t>(element_bytes(bias.type));
    return bytes % 16 == 0 && bytes >= 0 && bytes < kMostMapStride;
  };
  const auto& [batch, head, row, key] = bias.strides;
  return problem.alignment % 16 == 0 && fits(batch) && fits(head) && fits(row);
}

// True if a tile of the bias can have whole rows, as they lie in memory.
bool rows_whole(const AttentionProblem& problem, const ScoreOperand& bias, bool one_row) {
  constexpr std::int64_t kMostKeys = 256, kMostKeysOfOneRow = 8192;
  if (one_row) return problem.nk <= kMostKeysOfOneRow;
  return bias.strides[2] == problem.nk && problem.nk <= kMostKeys;
}

int bias_code(ElementType type) {
  if (type == ElementType::kFp32) return 1;
  return type == ElementType::kFp16 ? 2 : 3;
}

// In the order of a Config's entries.
constexpr auto kByName = [] {
  auto tunables = kAttentionTunables;
  std::ranges::sort(tunables, {}, &AttentionTunable::name);
  return tunables;
}();

}  // namespace

AttentionFacts attention_facts(const AttentionProblem& problem) {
  AttentionFacts facts;
  facts.element = problem.dtype == ElementType::kBf16 ? 1 : 0;
  facts.head_dim = static_cast<int>(problem.d);
  facts.causal = problem.causal;
  facts.lse = problem.lse;
  facts.dropout = problem.dropout != 0;
  facts.copy_bytes = static_cast<int>(problem.vector_bytes());
  if (problem.bias) {
    facts.bias = bias_code(problem.bias->type);
    facts.bias_vector = keys_per_load(problem, *problem.bias, 4);
    facts.bias_aligned = rows_aligned(problem, *problem.bias);
    facts.bias_one_row = problem.bias->strides[2] == 0;
    facts.bias_whole_rows = rows_whole(problem, *problem.bias, facts.bias_one_row);
  }
  if (problem.mask) {
    facts.mask = true;
    facts.mask_vector = keys_per_load(problem, *problem.mask, 2);
  }
  return facts;
}

std::int64_t sms_of(const DeviceInfo& device) {
  return device.sm_count > 0 ? device.sm_count : 132;
}

std::int64_t row_blocks(const AttentionProblem& problem) {
  return problem.batch * problem.heads * ceil_div(problem.nq, kGroupRows);
}

std::int64_t useful_swap_ab_rows(const AttentionProblem& problem) {
  constexpr std::int64_t kMost = 8;
  const std::int64_t rest = problem.nq % kGroupRows;
  return !problem.causal && problem.dropout == 0 && problem.nq > kGroupRows && rest > 0 &&
                 rest <= kMost
             ? kMost
             : 0;
}

AttentionShape::AttentionShape(const AttentionProblem& problem, const Config& config)
    : head_dim(problem.d), nq(problem.nq), nk(problem.nk), facts(attention_facts(problem)) {
  *this = with(config);
}

AttentionShape AttentionShape::with(const Config& config) const {
  AttentionShape shape = *this;
  auto tunable = kByName.begin();
  for (const auto& [name, value] : config) {
    for (; tunable != kByName.end(); ++tunable) {
      if (tunable->name == name) shape.*tunable->value = value;
      if (tunable->name >= name) break;
    }
  }
  return shape;
}

std::int64_t AttentionShape::steps() const { return ceil_div(nk, block_n); }

std::int64_t AttentionShape::rounds() const { return ceil_div(steps(), key_split); }

bool AttentionShape::equal_steps() const {
  const std::int64_t least = ceil_div(nk, steps());
  return steps() <= 4 && (block_n == round_up(least, 8) || block_n == round_up(least, 16));
}

std::int64_t AttentionShape::shared_bytes() const {
  if (!warpgroups()) return padded_bytes();
  return producer ? pipelined_bytes() : swizzled_bytes();
}

std::int64_t AttentionShape::key_rows() const {
  const std::int64_t tail_width = round_up(nk - (steps() - 1) * block_n, 8);
  return resident ? (steps() - 1) * block_n + tail_width : block_n;
}

std::int64_t AttentionShape::value_rows() const { return round_up(key_rows(), 16); }

std::int64_t AttentionShape::block_rows() const {
  const std::int64_t rest = nq % kGroupRows;
  return nq > kGroupRows && rest <= swap_ab_rows ? nq - rest : nq;
}

std::int64_t AttentionShape::pipelined_bytes() const {
  constexpr std::int64_t kBarrierBytes = 8;
  const std::int64_t row_bytes = ceil_div(head_dim * 2, swizzle) * swizzle;
  const std::int64_t groups = warps / 4;
  const std::int64_t query_slots =
      resident ? std::max<std::int64_t>(stages / groups, 1) * groups : groups;
  std::int64_t bytes =
      stages * (key_rows() + value_rows()) * row_bytes + query_slots * kGroupRows * row_bytes;
  if (swap_ab_rows) {  // weights, two query tiles, a value per warp and row
    bytes = round_up(bytes, 1024) + swap_ab_rows * round_up(key_rows(), 64) * 2 +
            2 * swap_ab_rows * row_bytes + 16 * swap_ab_rows;
  }
  std::int64_t bias_slots = 0;
  if (bias_tiles()) {
    bytes += groups * bias_bytes(kGroupRows, bias_width());
    if (swap_ab_rows) bytes += bias_bytes(swap_ab_rows, resident ? key_rows() : block_n);
    bias_slots = groups + (swap_ab_rows ? 1 : 0);
  }
  bytes += groups * kGroupRows * pitch();  // the output's
  const std::int64_t barriers = 4 * stages + 2 * query_slots + groups + 2 * bias_slots;
  return round_up(bytes + kBarrierBytes * barriers, 1024);
}

// These as PipelinedTraits and BiasRowsTile in templates/attention/config_sm90_pipelined.cuh.
std::int64_t AttentionShape::bias_width() const {
  return resident && steps() == 1 ? round_up(nk, 8) : block_n;
}

bool AttentionShape::bias_boxes() const {
  constexpr std::int64_t kMostKeys = 248;  // a box has 256 with those between rows
  return bias_tiles() && facts.bias_aligned && !facts.bias_one_row && !bias_in_registers &&
         bias_width() <= kMostKeys && (!resident || (!facts.bias_whole_rows && !swap_ab_rows));
}

std::int64_t AttentionShape::bias_box_keys() const { return (ceil_div(bias_width(), 8) | 1) * 8; }

std::int64_t AttentionShape::bias_bytes(std::int64_t rows, std::int64_t width) const {
  const std::int64_t count = facts.bias_one_row ? 1 : rows;
  const std::int64_t pieces = ceil_div(width, 8) + (facts.bias_aligned ? 0 : 1);
  const std::int64_t pitch = facts.bias_one_row ? 0 : whole_rows() ? 2 * nk : (pieces | 1) * 16;
  const std::int64_t copied = whole_rows() ? round_up(2 * nk * count + 14, 16) : count * pitch;
  const std::int64_t kept = bias_in_registers ? round_up(nk, 16) * 2 * count : 0;
  const std::int64_t read = (count - 1) * pitch + 14 +
                            2 * round_up(whole_rows() ? nk : width, rows < kGroupRows ? 64 : 16);
  return round_up(std::max({copied, kept, read}), 128);
}

std::int64_t AttentionShape::register_limit(std::int64_t registers_per_sm) const {
  const std::int64_t entry =
      std::min<std::int64_t>(255, registers_per_sm / (round_up(threads(), 128) * min_ctas) / 8 * 8);
  const std::int64_t groups = warps / 4;
  if (!producer || groups < 2) return entry;
  // The copying warpgroup hands over its registers, and so does that for the swap-AB tail
  // (PipelinedTraits).
  const bool threads_copy = !tensor_copies() || (bias_tiles() && !whole_rows() && !bias_boxes());
  const std::int64_t copying = !threads_copy ? 24 : groups == 2 || swap_ab_rows ? 40 : 32;
  const std::int64_t tail = swap_ab_rows == 0 ? 0 : groups == 2 ? 72 : 48;
  const std::int64_t all = groups + 1 + (swap_ab_rows ? 1 : 0);
  return (entry * all - copying - tail) / groups / 8 * 8;
}

std::int64_t AttentionShape::swizzled_bytes() const {
  const std::int64_t row_bytes = ceil_div(head_dim * 2, swizzle) * swizzle;
  const std::int64_t tiles = resident ? 1 : stages;
  const std::int64_t query_bytes = round_up(kGroupRows * std::max(row_bytes, pitch()), 1024);
  const std::int64_t queries = group_warps() / 4 * (resident ? stages : 1) * query_bytes;
  const std::int64_t keys_and_values = tiles * (key_rows() + value_rows()) * row_bytes;
  return heads_per_cta * round_up(queries + keys_and_values, 1024);
}

std::int64_t AttentionShape::padded_bytes() const {
  const std::int64_t tail_width = round_up(nk - (steps() - 1) * block_n, 8);
  const std::int64_t key_rows =
      resident ? (steps() - 1) * block_n + tail_width : stages * key_split * block_n;
  const std::int64_t query_rows = group_warps() * (resident ? stages : 1) * warp_rows();
  return heads_per_cta * (query_rows + 2 * key_rows) * pitch();
}

std::int64_t AttentionShape::items(std::int64_t heads) const {
  if (resident) return ceil_div(heads, heads_per_cta) * row_split;
  return heads * ceil_div(block_rows(), block_m());
}

std::int64_t AttentionShape::live_registers() const {
  const std::int64_t width = std::min(block_n, round_up(nk, 8));
  const std::int64_t queries = query_in_registers ? ceil_div(head_dim, 16) * 4 : 4;
  // In a single step there is no output yet when all scores are there.
  if (producer && steps() == 1) return std::max(width / 2, width / 4 + head_dim / 2) + queries;
  const std::int64_t draws = facts.dropout ? kDropoutRegisters : 0;
  return row_tiles * (width / 2 + head_dim / 2 + queries + draws);
}

}  // namespace vitune
