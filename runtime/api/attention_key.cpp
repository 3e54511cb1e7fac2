// runtime/api/attention_key.cpp -- Packs descriptions of attention into keys.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/attention_key.h"

#include <xxhash.h>

#include <bit>
#include <iterator>

namespace vitune {
namespace {

bool is_known(const vitune_attention_desc& desc) noexcept {
  return (desc.dtype == VITUNE_BF16 || desc.dtype == VITUNE_FP16) && is_flag(desc.causal) &&
         is_flag(desc.lse) && desc.bias_type >= VITUNE_NONE && desc.bias_type <= VITUNE_FP32 &&
         (desc.mask_type == VITUNE_NONE || desc.mask_type == VITUNE_BOOL) &&
         (desc.dv == 0 || desc.dv == desc.d);
}

std::int64_t kv_heads_of(const vitune_attention_desc& desc) noexcept {
  return desc.kv_heads == 0 ? desc.heads : desc.kv_heads;
}

// The number of batch entries of bias or mask; 0 without one.
std::int64_t batches_of(std::int32_t type, std::int64_t batches, std::int64_t batch) noexcept {
  if (type == VITUNE_NONE) return 0;
  return batches == 0 ? batch : batches;
}

// Puts the lower halves of two numbers into one word, and gathers what that leaves out.
class Packer {
 public:
  std::uint64_t pair(std::int64_t low, std::int64_t high) noexcept {
    const auto a = static_cast<std::uint64_t>(low), b = static_cast<std::uint64_t>(high);
    all_ |= a | b;
    return (a & 0xffffffff) | b << 32;
  }
  // The upper halves of all numbers so far, or-ed together.
  std::uint64_t left_out() const noexcept { return all_ >> 32; }

 private:
  std::uint64_t all_ = 0;
};

// Not zero if the numbers of k and v are others than those of q.
std::uint64_t differences_of_k_and_v(const vitune_attention_desc& desc) noexcept {
  const auto between = [](const vitune_strides& a, const vitune_strides& b) {
    return (a.batch ^ b.batch) | (a.head ^ b.head) | (a.row ^ b.row);
  };
  return static_cast<std::uint64_t>(between(desc.q, desc.k) | between(desc.q, desc.v) |
                                    (desc.heads ^ kv_heads_of(desc)));
}

// Each word of a line is written once and alone: what reads it next need not wait.
void set_k_and_v(PlanKey::Line& line, Packer& packer, const vitune_attention_desc& desc) noexcept {
  line.words[0] = packer.pair(kv_heads_of(desc), desc.k.batch);
  line.words[1] = packer.pair(desc.k.head, desc.k.row);
  line.words[2] = packer.pair(desc.v.batch, desc.v.head);
  line.words[3] = packer.pair(desc.v.row, 0);
  for (std::size_t i = 4; i < std::size(line.words); ++i) line.words[i] = 0;
}

void set_operands(PlanKey::Line& line, Packer& packer, const vitune_attention_desc& desc) noexcept {
  const bool has_bias = desc.bias_type != VITUNE_NONE, has_mask = desc.mask_type != VITUNE_NONE;
  const auto& bias = desc.bias_strides;
  const auto& mask = desc.mask_strides;
  line.words[0] = packer.pair(batches_of(desc.bias_type, desc.bias_batches, desc.batch),
                              batches_of(desc.mask_type, desc.mask_batches, desc.batch));
  line.words[1] = has_bias ? packer.pair(bias[0], bias[1]) : 0;
  line.words[2] = has_bias ? packer.pair(bias[2], bias[3]) : 0;
  line.words[3] = has_mask ? packer.pair(mask[0], mask[1]) : 0;
  line.words[4] = has_mask ? packer.pair(mask[2], mask[3]) : 0;
  for (std::size_t i = 5; i < std::size(line.words); ++i) line.words[i] = 0;
}

// Writes the upper halves of all numbers into two lines.
void set_upper_halves(PlanKey::Line* lines, const vitune_attention_desc& d) noexcept {
  const bool has_bias = d.bias_type != VITUNE_NONE, has_mask = d.mask_type != VITUNE_NONE;
  const vitune_attention_desc none{};
  const auto& bias = has_bias ? d.bias_strides : none.bias_strides;
  const auto& mask = has_mask ? d.mask_strides : none.mask_strides;
  const std::int64_t numbers[] = {d.batch,
                                  d.heads,
                                  kv_heads_of(d),
                                  d.nq,
                                  d.nk,
                                  d.d,
                                  d.q.batch,
                                  d.q.head,
                                  d.q.row,
                                  d.k.batch,
                                  d.k.head,
                                  d.k.row,
                                  d.v.batch,
                                  d.v.head,
                                  d.v.row,
                                  d.o.batch,
                                  d.o.head,
                                  d.o.row,
                                  batches_of(d.bias_type, d.bias_batches, d.batch),
                                  batches_of(d.mask_type, d.mask_batches, d.batch),
                                  bias[0],
                                  bias[1],
                                  bias[2],
                                  bias[3],
                                  mask[0],
                                  mask[1],
                                  mask[2],
                                  mask[3]};
  Packer packer;
  lines[0] = lines[1] = {};
  for (std::size_t i = 0; i < std::size(numbers); i += 2) {
    lines[i / 16].words[i / 2 % 8] = packer.pair(numbers[i] >> 32, numbers[i + 1] >> 32);
  }
}

// Sets the lines of a key whose words are set but for kWide. `upper`: what the words leave out.
void set_more(PlanKey& key, const vitune_attention_desc& desc, std::uint64_t upper) noexcept {
  Packer packer;
  PlanKey::Line* line = key.more;
  if ((key.words[0] & PlanKey::kOther) != 0) set_k_and_v(*line++, packer, desc);
  if ((key.words[0] & PlanKey::kOperands) != 0) set_operands(*line++, packer, desc);
  if ((upper | packer.left_out()) == 0) [[likely]]
    return;
  key.words[0] |= PlanKey::kWide;
  set_upper_halves(line, desc);
}

// Dtype, types and alignments, each in its place, and the flags.
std::int64_t codes_of(const vitune_attention_desc& desc, const Alignments& alignments,
                      bool other) noexcept {
  const auto code = [](std::int32_t known) { return static_cast<unsigned>(known); };
  return code(desc.dtype) | (desc.causal != 0 ? PlanKey::kCausal : 0) |
         (desc.lse != 0 ? PlanKey::kLse : 0) | (other ? PlanKey::kOther : 0) |
         code(desc.bias_type) << PlanKey::kBiasShift | code(desc.mask_type) << PlanKey::kMaskShift |
         code(alignments.tensors) << PlanKey::kTensorsShift |
         code(alignments.bias) << PlanKey::kBiasAlignmentShift |
         code(alignments.mask) << PlanKey::kMaskAlignmentShift;
}

std::uint64_t hash_of(const PlanKey& key) noexcept {
  std::uint64_t hash = XXH3_64bits(key.words, sizeof(key.words));
  // The place of a line is its seed, so that they need not wait for each other.
  for (std::size_t i = 0; i < key.lines(); ++i) {
    hash += XXH3_64bits_withSeed(&key.more[i], sizeof(key.more[i]), i + 1);
  }
  return hash;
}

}  // namespace

bool set_key(PlanKey& key, const vitune_attention_desc& desc,
             const Alignments& alignments) noexcept {
  if (!is_known(desc)) return false;
  const bool other = differences_of_k_and_v(desc) != 0;
  Packer packer;
  key.words[0] = packer.pair(codes_of(desc, alignments, other), desc.batch);
  key.words[1] = packer.pair(desc.heads, desc.d);
  key.words[2] = packer.pair(desc.nq, desc.nk);
  key.words[3] = packer.pair(desc.q.batch, desc.q.head);
  key.words[4] = packer.pair(desc.q.row, desc.o.batch);
  key.words[5] = packer.pair(desc.o.head, desc.o.row);
  key.words[6] = desc.scale == 0 ? 0 : std::bit_cast<std::uint64_t>(desc.scale);
  if ((key.words[0] & PlanKey::kMore) != 0 || packer.left_out() != 0) [[unlikely]]
    set_more(key, desc, packer.left_out());
  key.hash = hash_of(key);
  return true;
}

std::optional<PlanKey> key_of(const vitune_attention_desc& desc,
                              const Alignments& alignments) noexcept {
  PlanKey key{};
  if (!set_key(key, desc, alignments)) return std::nullopt;
  return key;
}

}  // namespace vitune
