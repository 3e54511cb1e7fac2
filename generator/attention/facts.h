// generator/attention/facts.h -- What of a problem becomes a compile-time constant of its kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/config.h"
#include "core/device_info.h"
#include "generator/attention/problem.h"
#include "generator/attention/tunables.h"

namespace vitune {

// The problem's side of a generated Config; the names are those of templates/attention/config.cuh.
struct AttentionFacts {
  int element = 1;               // kElement
  int head_dim = 64;             // kHeadDim
  bool causal = false;           // kCausal
  int bias = 0;                  // kBias
  int bias_vector = 0;           // kBiasVector
  bool bias_aligned = false;     // kBiasAligned
  bool bias_one_row = false;     // kBiasOneRow
  bool bias_whole_rows = false;  // kBiasWholeRows
  bool mask = false;             // kMask
  int mask_vector = 0;           // kMaskVector
  bool lse = false;              // kLse
  int copy_bytes = 16;           // kCopyBytes
  bool dropout = false;          // the template is that with dropout
};

AttentionFacts attention_facts(const AttentionProblem& problem);

// Query rows of a warpgroup (kGroupRows in templates/attention/config_sm90.cuh).
inline constexpr std::int64_t kGroupRows = 64;
// Keys of a step: at most; and where not just two warpgroups beside copying warps have the
// registers.
inline constexpr std::int64_t kMostStepKeys = 256, kMostSharedStepKeys = 208;

// SMs of the device; of one that does not say, those of an H200.
std::int64_t sms_of(const DeviceInfo& device);
// Blocks of 64 query rows, of all heads and batches.
std::int64_t row_blocks(const AttentionProblem& problem);

// kSpareRows of kernels that take them, where this problem has some: 8, else 0.
std::int64_t useful_swap_ab_rows(const AttentionProblem& problem);

// A config's tunables as numbers, with the quantities that follow from them for one problem. A
// config that is still being put together may lack some: those have neutral values.
struct AttentionShape : AttentionTunables {
  std::int64_t head_dim, nq, nk;
  AttentionFacts facts;

  AttentionShape(const AttentionProblem& problem, const Config& config);
  // This shape with the values of `config` in place of its own, where it has some: a sweep over
  // configs of one problem works its facts out once.
  AttentionShape with(const Config& config) const;

  // Threads of a CTA: those that compute, and a warpgroup that copies, and one that takes the
  // swap-AB tail, if there is one.
  std::int64_t threads() const {
    const std::int64_t copying = !producer ? 0 : single_producer() ? 32 : 128;
    return 32 * warps + copying + (swap_ab_rows ? 128 : 0);
  }
  // True if tiles are copied by the tensor memory accelerator.
  bool tensor_copies() const { return producer == 2; }
  // True if a single warp does (templates/attention/producer_sm90.cuh).
  bool single_producer() const {
    return tensor_copies() && warps == 4 && !swap_ab_rows &&
           (facts.bias == 0 || facts.bias_whole_rows);
  }
  // True if they bring the bias too; if by a tensor map of its own, and of how many rows and
  // keys at a time; if as whole rows (templates/attention/bias_producer_sm90.cuh).
  bool bias_tiles() const { return tensor_copies() && facts.bias != 0; }
  bool bias_boxes() const;
  std::int64_t bias_box_rows() const { return swap_ab_rows ? 8 : 64; }
  std::int64_t bias_box_keys() const;
  bool whole_rows() const { return facts.bias_whole_rows && !bias_boxes(); }
  // Registers that a thread of the `warps` may use at most.
  std::int64_t register_limit(std::int64_t registers_per_sm) const;
  std::int64_t group_warps() const { return warps / heads_per_cta; }
  std::int64_t warp_rows() const { return 16 * row_tiles; }
  // Warps of a head that have rows of their own, not only keys.
  std::int64_t row_warps() const { return group_warps() / key_split; }
  std::int64_t block_m() const { return warp_rows() * row_warps(); }
  std::int64_t pitch() const { return ((head_dim / 8) | 1) * 16; }
  // True if products are those of warpgroups (forward_sm90.cuh), four warps at a time.
  bool warpgroups() const { return swizzle != 0; }
  std::int64_t steps() const;
  // Times that a streaming CTA waits for tiles: warps that share keys take a step each.
  std::int64_t rounds() const;
  // Dynamic shared memory in bytes, as templates/attention/config.cuh lays it out.
  std::int64_t shared_bytes() const;
  // Work items of a problem with `heads` = batch x heads, unless they are evened out.
  std::int64_t items(std::int64_t heads) const;
  // Rows of a pipelined kernel's tiles of keys, of values.
  std::int64_t key_rows() const;
  std::int64_t value_rows() const;
  // Query rows of a head that whole blocks take; the others are the swap-AB tail.
  std::int64_t block_rows() const;
  // True if the steps of keys are as equal as their number allows.
  bool equal_steps() const;
  // True if each warp works on the same rows in every item.
  bool one_pass() const { return resident && block_m() * row_split >= nq; }
  // Registers that scores, outputs and queries of a warp need at least, per thread.
  std::int64_t live_registers() const;

 private:
  std::int64_t padded_bytes() const;     // shared memory of forward_sm80.cuh
  std::int64_t swizzled_bytes() const;   // and of forward_sm90.cuh
  std::int64_t pipelined_bytes() const;  // and of forward_sm90_pipelined.cuh
  std::int64_t bias_width() const;       // keys of a tile of the bias, unless it has whole rows
  std::int64_t bias_bytes(std::int64_t rows, std::int64_t width) const;  // of such a tile
};

}  // namespace vitune
