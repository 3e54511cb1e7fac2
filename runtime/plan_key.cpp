// runtime/plan_key.cpp -- From a description to its key.
#include "runtime/plan_key.h"

#include <bit>

namespace vitune {
namespace {

bool is_flag(std::int32_t value) noexcept { return value == 0 || value == 1; }

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

// Gives the upper halves that have no place in `key`, or-ed together.
std::uint64_t set_sizes(PlanKey::Plain& key, const vitune_attention_desc& desc) noexcept {
  Packer packer;
  key.words[1] = packer.pair(desc.batch, desc.heads);
  key.words[2] = packer.pair(kv_heads_of(desc), desc.nq);
  key.words[3] = packer.pair(desc.nk, desc.d);
  key.words[4] = desc.scale == 0 ? 0 : std::bit_cast<std::uint64_t>(desc.scale);
  key.words[5] = packer.pair(desc.q.batch, desc.q.head);
  key.words[6] = packer.pair(desc.q.row, desc.k.batch);
  key.words[7] = packer.pair(desc.k.head, desc.k.row);
  key.words[8] = packer.pair(desc.v.batch, desc.v.head);
  key.words[9] = packer.pair(desc.v.row, desc.o.batch);
  key.words[10] = packer.pair(desc.o.head, desc.o.row);
  return packer.left_out();
}

// The same of bias and mask. Few problems have one, and all others leave `rest` as it is.
std::uint64_t set_operands(PlanKey::Rest& rest, const vitune_attention_desc& desc) noexcept {
  const bool has_bias = desc.bias_type != VITUNE_NONE, has_mask = desc.mask_type != VITUNE_NONE;
  if (!has_bias && !has_mask) [[likely]]
    return 0;
  Packer packer;
  rest = {};
  rest.words[0] = packer.pair(batches_of(desc.bias_type, desc.bias_batches, desc.batch),
                              batches_of(desc.mask_type, desc.mask_batches, desc.batch));
  if (has_bias) {
    rest.words[1] = packer.pair(desc.bias_strides[0], desc.bias_strides[1]);
    rest.words[2] = packer.pair(desc.bias_strides[2], desc.bias_strides[3]);
  }
  if (has_mask) {
    rest.words[3] = packer.pair(desc.mask_strides[0], desc.mask_strides[1]);
    rest.words[4] = packer.pair(desc.mask_strides[2], desc.mask_strides[3]);
  }
  return packer.left_out();
}

// After set_operands().
void set_upper_halves(PlanKey::Rest& rest, const vitune_attention_desc& d) noexcept {
  const bool has_bias = d.bias_type != VITUNE_NONE, has_mask = d.mask_type != VITUNE_NONE;
  if (!has_bias && !has_mask) rest = {};
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
  for (std::size_t i = 0; i < std::size(numbers); i += 2) {
    rest.words[5 + i / 2] = packer.pair(numbers[i] >> 32, numbers[i + 1] >> 32);
  }
}

}  // namespace

bool set_key(PlanKey& key, const vitune_attention_desc& desc,
             const Alignments& alignments) noexcept {
  if (!is_known(desc)) return false;
  const std::uint64_t upper = set_sizes(key.plain, desc) | set_operands(key.rest, desc);
  const auto code = [](std::int32_t known) { return static_cast<unsigned>(known); };
  const unsigned low = code(desc.dtype) | code(desc.bias_type) << 16 | code(desc.mask_type) << 24 |
                       (desc.causal != 0 ? PlanKey::kCausal : 0) |
                       (desc.lse != 0 ? PlanKey::kLse : 0) | (upper != 0 ? PlanKey::kWide : 0);
  const unsigned high =
      alignments.tensors | code(alignments.bias) << 8 | code(alignments.mask) << 16;
  key.plain.words[0] = low | std::uint64_t{high} << 32;
  if (upper != 0) [[unlikely]]
    set_upper_halves(key.rest, desc);
  return true;
}

std::optional<PlanKey> key_of(const vitune_attention_desc& desc,
                              const Alignments& alignments) noexcept {
  PlanKey key{};
  if (!set_key(key, desc, alignments)) return std::nullopt;
  return key;
}

}  // namespace vitune
