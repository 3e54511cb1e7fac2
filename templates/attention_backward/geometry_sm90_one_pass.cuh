// templates/attention_backward/geometry_sm90_one_pass.cuh -- AttentionBackwardOnePass: what the
// kernel of the family sm90_one_pass takes of a CTA, and the rules that its tunables obey.
//
// Plain C++ without includes: the space and the launch plan compute with this very struct, and
// NVRTC reads it; a generated Config holds one. All members are int, so that a config's geometry is
// written down as the numbers in it.
//
// A CTA has a head at a time. It takes the keys in blocks of 128, 64 of each of two warpgroups, and
// for each block all queries in steps. dQ is a third warpgroup's; between two blocks it waits in
// scratch memory. A fourth one copies.
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
  static constexpr int kGroupThreads = 128, kThreads = (kGroups + 2) * kGroupThreads;
  static constexpr int kCtaBytes = 232448;  // of shared memory, on 9.0
  // An SM's 65,536 registers, given to threads by eights and then again by warpgroups.
  static constexpr int kRegisters = 65536 / kGroupThreads;
  static constexpr int kCopyRegisters = 24, kMostCopyRegisters = 40;
  static constexpr int kOtherRegisters = 32, kOtherDqRegisters = 32;  // than sums and operands
  // Between blocks the sums of dQ of all CTAs should stay in L2: 50 MB for 132 of them.
  static constexpr int kMostSums = 96000;
  // And Q and dO beside them, two bytes of each for four of a sum.
  static constexpr int kMostInL2 = 42000;

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
  // dQ of a step is made transposed, so that it may have any number of queries, where the head is
  // no more than the 64 rows of a product; else as 64 rows of queries, some of which may be none.
  constexpr bool transposed_dq() const { return head_dim <= kGroupRows; }
  // Gradients of a step's scores, all keys of a block.
  constexpr int gradient_rows() const { return transposed_dq() ? step : kGroupRows; }
  constexpr int gradient_tile_bytes() const { return gradient_rows() * kBlockKeys * 2; }
  // Rows on their way out, 16 of a warp, at an odd number of chunks of 16 bytes.
  constexpr int staging_pitch() const { return (up(head_dim, 16) / 8 | 1) * 16; }
  constexpr int staging_bytes() const { return kGroupRows * staging_pitch(); }
  constexpr int stats_rows() const { return up(queries, 16); }

  // Shared memory: K and V, gradients of scores, the ring of Q, dO and O, staging, each query's
  // numbers, barriers.
  constexpr int gradients_offset() const { return 2 * key_stages * key_tile_bytes(); }
  constexpr int ring_offset() const { return gradients_offset() + 2 * gradient_tile_bytes(); }
  constexpr int staging_offset() const { return ring_offset() + 3 * stages * step_tile_bytes(); }
  constexpr int dq_staging_offset() const { return staging_offset() + kGroups * staging_bytes(); }
  // Of a warp of dQ: 16 columns of the head by 32 queries, or 16 queries.
  constexpr int dq_staging_bytes() const { return transposed_dq() ? 1024 : 16 * staging_pitch(); }
  constexpr int stats_offset() const { return dq_staging_offset() + 4 * dq_staging_bytes(); }
  constexpr int barrier_offset() const { return stats_offset() + 8 * stats_rows(); }
  constexpr int barriers() const { return 2 * key_stages + 3 * stages + 2 * 2; }
  constexpr int shared_bytes() const { return barrier_offset() + 8 * barriers(); }

  // Registers of a thread: of dQ its sums, with keys the sums of dK and dV, scores and their
  // gradients, and operands of products. What is left is first for the copying warps, which sum
  // deltas too, then for those with keys.
  constexpr int dq_registers() const {
    return up((transposed_dq() ? step : head_dim) / 2 + kOtherDqRegisters, 8);
  }
  constexpr int needed_registers() const {
    return up(head_dim + step + step / 4 + kOtherRegisters, 8);
  }
  constexpr int left_registers() const {
    return kRegisters - dq_registers() - kGroups * needed_registers();
  }
  constexpr int copy_registers() const { return least(left_registers(), kMostCopyRegisters); }
  constexpr int compute_registers() const {
    return least(needed_registers() + (left_registers() - copy_registers()) / kGroups / 8 * 8, 240);
  }

  // Whole steps, and queries of the last one, which may be narrower.
  constexpr int whole_steps() const { return queries / step; }
  constexpr int tail() const { return queries % step; }
  constexpr int steps() const { return whole_steps() + (tail() > 0 ? 1 : 0); }
  constexpr int blocks() const { return up(keys, kBlockKeys) / kBlockKeys; }
  constexpr int last_keys() const { return keys - (blocks() - 1) * kBlockKeys; }  // of a block

  // fp32 sums of dQ of a CTA, in scratch memory.
  constexpr int step_sums() const { return kGroupRows * (transposed_dq() ? step : head_dim); }
  constexpr int scratch_sums() const { return blocks() > 1 ? steps() * step_sums() : 0; }
  // The numbers in there that are read again.
  constexpr int kept_sums() const { return blocks() > 1 ? stats_rows() * up(head_dim, 16) : 0; }
  // True if L2 has room for all that a block reads again after the one before, so that it pays to
  // say what is to stay and what is not: 5 % at 577 queries of 64. Where it has not, keeping it
  // costs 2 %.
  constexpr bool stays_in_l2() const {
    return blocks() > 1 && stats_rows() * up(head_dim, 16) <= kMostInL2;
  }

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
      {"steps: 16 to 80 queries, in multiples of 16; 64 at most for a head of more than 64",
       {&G::step},
       [](const G& g) {
         return g.step % 16 == 0 && g.step >= 16 && g.step <= (g.transposed_dq() ? 80 : 64);
       }},
      {"registers: 32, the head size and 5/4 of a step, twice, and for dQ 32 and half a step, of a "
       "head of more than 64 half of the head: 488 at most",
       {&G::step},
       [](const G& g) { return g.left_registers() >= G::kCopyRegisters; }},
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
