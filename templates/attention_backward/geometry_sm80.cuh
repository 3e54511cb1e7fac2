// templates/attention_backward/geometry_sm80.cuh -- AttentionBackwardSm80: what the kernels of the
// family sm80 take of a CTA, and the rules that their tunables obey.
//
// Plain C++ without includes: the space and the launch plan compute with this very struct, and
// NVRTC reads it; a generated Config holds one. All members are int, so that a config's geometry is
// written down as the numbers in it.
#pragma once

namespace vitune {

struct AttentionBackwardSm80 {
  // Tunables. Of dq: sixteen query rows a warp, against steps of keys.
  int dq_warps;
  int dq_keys;          // of a step
  int dq_stages;        // steps in shared memory or on their way
  int dq_in_registers;  // Q and dO stay in registers
  // Of dkv: a warp has its keys, against steps of query rows.
  int dkv_warps;
  int dkv_groups;  // of sixteen keys, of a warp
  int dkv_rows;    // of a step
  int dkv_stages;
  int dkv_in_registers;  // K and V stay in registers

  // Facts of the problem.
  int head_dim;
  int bias_words;  // of registers for a pair of neighbouring values; 0 without a bias
  int mask;        // 1 where there is one

  static constexpr int kChunkKeys = 32;   // whose scores dq holds at once
  static constexpr int kRegisters = 232;  // of a thread, for what is counted here

  // A padded row of a tile (TileRows), in bytes.
  constexpr int pitch() const { return (head_dim / 8 | 1) * 16; }

  constexpr int dq_threads() const { return 32 * dq_warps; }
  constexpr int dq_block() const { return 16 * dq_warps; }
  // Q, dO and out, then stages of K and V.
  constexpr int dq_bytes() const { return (3 * dq_block() + 2 * dq_stages * dq_keys) * pitch(); }
  constexpr int dkv_threads() const { return 32 * dkv_warps; }
  constexpr int dkv_block() const { return 16 * dkv_groups * dkv_warps; }
  // K and V, then stages of Q, dO, lse and delta.
  constexpr int dkv_stage_bytes() const { return dkv_rows * (2 * pitch() + 2 * 4); }
  constexpr int dkv_bytes() const {
    return 2 * dkv_block() * pitch() + dkv_stages * dkv_stage_bytes();
  }

  // Registers of a thread, at least: sums, operands that stay, scores and their gradients, bias,
  // mask, and addresses.
  constexpr int scores_registers(int keys) const {
    return keys / 8 * (8 + 2 * bias_words + mask) + 50;
  }
  constexpr int depth() const { return (head_dim + 15) / 16 * 16; }
  constexpr int dq_registers() const {
    return head_dim / 2 + (dq_in_registers != 0 ? depth() / 2 : 0) + scores_registers(kChunkKeys);
  }
  constexpr int dkv_registers() const {
    const int operands = dkv_in_registers != 0 ? depth() / 2 : 0;
    return dkv_groups * (head_dim + operands) + scores_registers(16 * dkv_groups);
  }

  struct Rule {
    const char* sentence;
    int AttentionBackwardSm80::*reads[2];
    bool (*holds)(const AttentionBackwardSm80&);
  };
};

struct AttentionBackwardSm80Rules {
  AttentionBackwardSm80::Rule all[2];
};

// A function, not a constant: NVRTC would keep a constant's sentences in each cubin.
constexpr AttentionBackwardSm80Rules attention_backward_sm80_rules() {
  using G = AttentionBackwardSm80;
  return {{
      {"dq: registers for its sums and operands",
       {&G::dq_in_registers},
       [](const G& g) { return g.dq_registers() <= G::kRegisters; }},
      {"dkv: registers for its sums and operands",
       {&G::dkv_groups, &G::dkv_in_registers},
       [](const G& g) { return g.dkv_registers() <= G::kRegisters; }},
  }};
}

}  // namespace vitune
