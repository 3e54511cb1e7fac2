// templates/attention_backward/geometry_sm90_one_pass.cuh -- AttentionBackwardOnePass: what the
// kernel of the family sm90_one_pass takes of a CTA, and the rules that its tunables obey.
//
// Plain C++ without includes: the space and the launch plan compute with this very struct, and
// NVRTC reads it; a generated Config holds one. All members are int, so that a config's geometry is
// written down as the numbers in it.
//
// A CTA has a head at a time. It takes the keys in blocks of 128, 64 of each of two warpgroups, and
// for each block all queries in steps. dQ of a step is one warpgroup's; between two blocks it waits
// in scratch memory.
#pragma once

namespace vitune {

struct AttentionBackwardOnePass {
  // Tunables.
  int step = 0;        // queries of a step
  int stages = 0;      // steps in shared memory or on their way
  int key_stages = 0;  // blocks of keys in shared memory or on their way

  // Facts of the problem.
  int head_dim = 0;
  int queries = 0, keys = 0;

  static constexpr int kGroups = 2, kGroupRows = 64, kBlockKeys = kGroups * kGroupRows;
  static constexpr int kGroupThreads = 128, kThreads = (kGroups + 1) * kGroupThreads;
  static constexpr int kCtaBytes = 232448;  // of shared memory, on 9.0
  // Limits for step_registers() and dq_registers(), of the 240 registers of a thread. Beyond that
  // ptxas 13.0 takes products one at a time (C7512).
  static constexpr int kRegisters = 208, kDqRegisters = 188;
  // Between blocks the sums of dQ of all CTAs should stay in L2: 50 MB for 132 of them. More than
  // kMostSums is not tried, more than kUsualSums not without a measurement.
  static constexpr int kMostSums = 96000, kUsualSums = 68000;

  static constexpr int up(int a, int b) { return (a + b - 1) / b * b; }
  static constexpr int least(int a, int b) { return a < b ? a : b; }

  // Bytes of a row in shared memory, by columns of a swizzle atom.
  constexpr int swizzle() const {
    if (head_dim % 64 == 0) return 128;
    return head_dim % 32 == 0 || head_dim % 16 == 8 ? 64 : 32;
  }
  constexpr int row_bytes() const { return up(2 * head_dim, swizzle()); }
  constexpr int key_tile_bytes() const { return kBlockKeys * row_bytes(); }
  constexpr int step_tile_bytes() const { return step * row_bytes(); }
  // Gradients of a step's scores, all keys of a block.
  constexpr int gradient_tile_bytes() const { return step * kBlockKeys * 2; }
  // Rows on their way out, 16 of a warp, at an odd number of chunks of 16 bytes.
  constexpr int staging_pitch() const { return (up(head_dim, 16) / 8 | 1) * 16; }
  constexpr int staging_bytes() const { return kGroupRows * staging_pitch(); }
  constexpr int stats_rows() const { return up(queries, 16); }

  // Shared memory: K and V, gradients of scores, the ring of Q, dO and O, staging, each query's
  // numbers, barriers.
  constexpr int gradients_offset() const { return 2 * key_stages * key_tile_bytes(); }
  constexpr int ring_offset() const { return gradients_offset() + 2 * gradient_tile_bytes(); }
  constexpr int staging_offset() const { return ring_offset() + 3 * stages * step_tile_bytes(); }
  constexpr int stats_offset() const { return staging_offset() + kGroups * staging_bytes(); }
  constexpr int barrier_offset() const { return stats_offset() + 8 * stats_rows(); }
  constexpr int barriers() const { return 2 * key_stages + 3 * stages + 2 * 2; }
  constexpr int shared_bytes() const { return barrier_offset() + 8 * barriers(); }

  // Registers of a thread: sums of dK and dV, scores and their gradients, operands of products.
  constexpr int step_registers() const { return head_dim + step + step / 4; }
  // The same while dQ is made.
  constexpr int dq_registers() const { return head_dim + head_blocks() * step / 2 + step / 4; }

  // Whole steps, and queries of the last one, which may be narrower.
  constexpr int whole_steps() const { return queries / step; }
  constexpr int tail() const { return queries % step; }
  constexpr int steps() const { return whole_steps() + (tail() > 0 ? 1 : 0); }
  constexpr int blocks() const { return up(keys, kBlockKeys) / kBlockKeys; }
  constexpr int last_keys() const { return keys - (blocks() - 1) * kBlockKeys; }  // of a block

  // dQ is made transposed, in blocks of 64 columns of the head; fp32 sums of a CTA in scratch.
  constexpr int head_blocks() const { return up(head_dim, kGroupRows) / kGroupRows; }
  constexpr int step_sums() const { return head_blocks() * kGroupRows * step; }
  constexpr int scratch_sums() const { return blocks() > 1 ? steps() * step_sums() : 0; }
  // The numbers in there that are read again.
  constexpr int kept_sums() const { return blocks() > 1 ? stats_rows() * up(head_dim, 16) : 0; }

  struct Rule {
    const char* sentence;
    int AttentionBackwardOnePass::*reads[4];
    bool (*holds)(const AttentionBackwardOnePass&);
  };
};

struct AttentionBackwardOnePassRules {
  AttentionBackwardOnePass::Rule all[4];
};

// A function, not a constant: NVRTC would keep a constant's sentences in each cubin.
constexpr AttentionBackwardOnePassRules attention_backward_one_pass_rules() {
  using G = AttentionBackwardOnePass;
  return {{
      {"steps: 16 to 128 queries, in multiples of 16",
       {&G::step},
       [](const G& g) { return g.step % 16 == 0 && g.step >= 16 && g.step <= 128; }},
      {"registers: the head size and 5/4 of a step: 208 at most; for dQ the head size, 1/4 of a "
       "step and 1/2 of it for each 64 columns of the head: 188 at most",
       {&G::step},
       [](const G& g) {
         return g.step_registers() <= G::kRegisters && g.dq_registers() <= G::kDqRegisters;
       }},
      {"stages: 2 to 4, and no more than a head has steps; 1 or 2 blocks of keys",
       {&G::step, &G::stages, &G::key_stages},
       [](const G& g) {
         return g.stages >= 2 && g.stages <= 4 && g.stages <= g.steps() && g.key_stages >= 1 &&
                g.key_stages <= 2;
       }},
      {"shared memory: 232448 bytes at most",
       {&G::step, &G::stages, &G::key_stages},
       [](const G& g) { return g.shared_bytes() <= G::kCtaBytes; }},
  }};
}

}  // namespace vitune
