// templates/attention_backward/geometry_sm90.cuh -- AttentionBackwardSm90: what the kernels on
// wgmma of attention's gradients take of a CTA, and the rules that their tunables obey.
//
// Plain C++ without includes: the space and the launch plan compute with this very struct, and
// NVRTC reads it; a generated Config holds one. All members are int, so that a config's geometry is
// written down as the numbers in it.
//
// Two kernels, or passes: `dq` has rows of queries and steps over keys, `dkv` has rows of keys and
// steps over queries. In each a warpgroup has 64 rows, and warpgroups of a CTA share the steps.
#pragma once

namespace vitune {

struct AttentionBackwardSm90 {
  // Tunables.
  int groups = 0;      // warpgroups that compute, in both kernels
  int key_step = 0;    // keys of a step of dq
  int query_step = 0;  // queries of a step of dkv
  int stages = 0;      // steps in shared memory or on their way, in both kernels

  // Facts of the problem.
  int head_dim = 0;
  int queries = 0, keys = 0;

  static constexpr int kGroupRows = 64;
  static constexpr int kCtaBytes = 232448;  // of shared memory, on 9.0
  // Of a thread's registers, for what step_registers() counts: of 168, of 240 and of 160, with one,
  // two and three warpgroups. Beside the rows' operands ptxas needs a few more.
  static constexpr int kRegisters[] = {128, 192, 108}, kRegisterMargin = 8;

  static constexpr int up(int a, int b) { return (a + b - 1) / b * b; }

  // A pass over rows, in steps.
  struct Pass {
    int groups, step, stages;
    int head_dim;
    int sums;          // of a row: head_dim, or twice of it
    int row_operands;  // that a row has: Q, dO and O; or K and V
    int stats;         // numbers of fp32 that each row of a step comes with
    int steps_of;      // rows that the steps go over

    // Bytes of a row in shared memory, by columns of a swizzle atom: 128, where heads fill two or
    // begin at odd multiples of 16 bytes, else the widest that wastes nothing.
    constexpr int swizzle() const {
      if (head_dim % 64 == 0 || (head_dim > 32 && head_dim % 16 == 8)) return 128;
      if (head_dim % 32 == 0 || head_dim == 24) return 64;
      return 32;
    }
    constexpr int row_bytes() const { return up(2 * head_dim, swizzle()); }
    constexpr int rows() const { return groups * kGroupRows; }
    constexpr int row_tile_bytes() const { return rows() * row_bytes(); }
    constexpr int step_tile_bytes() const { return step * row_bytes(); }
    constexpr int stats_bytes() const { return 4 * step * stats; }
    // Rows on their way out, 16 of a warp, at an odd number of chunks of 16 bytes.
    constexpr int staging_pitch() const { return (up(head_dim, 16) / 8 | 1) * 16; }
    constexpr int staging_bytes() const { return kGroupRows * staging_pitch(); }

    // Shared memory: tiles of rows, the ring, its numbers, staging, barriers.
    constexpr int ring_offset() const { return row_operands * row_tile_bytes(); }
    constexpr int stats_offset() const { return ring_offset() + 2 * stages * step_tile_bytes(); }
    constexpr int staging_offset() const { return stats_offset() + stages * stats_bytes(); }
    constexpr int barrier_offset() const { return staging_offset() + groups * staging_bytes(); }
    constexpr int shared_bytes() const { return barrier_offset() + 16 * (stages + 1); }

    // Registers of a thread: sums of its rows, scores and gradients of a step, what of these is an
    // operand of products that still run beside the next step; and the rows' own operands, which
    // stay in shared memory where there is no room.
    constexpr int step_registers() const { return sums / 2 + step + step / 4; }
    constexpr int row_fragments() const { return up(head_dim, 16) / 2; }
    // Only one warpgroup keeps them in registers: in kernels of more, ptxas 13.0 writes other
    // operands into registers of those that every step of a loop reads.
    constexpr bool in_registers() const {
      return groups == 1 && step_registers() + row_fragments() <= limit() - kRegisterMargin;
    }
    constexpr int limit() const { return groups < 1 || groups > 3 ? 0 : kRegisters[groups - 1]; }

    // Whole steps, and rows of the last one, which may be narrower.
    constexpr int whole_steps() const { return steps_of / step; }
    constexpr int tail() const { return steps_of % step; }
  };

  constexpr Pass dq() const { return {groups, key_step, stages, head_dim, head_dim, 3, 0, keys}; }
  constexpr Pass dkv() const {
    return {groups, query_step, stages, head_dim, 2 * head_dim, 2, 2, queries};
  }

  // A warpgroup that computes alone is fed by a single warp, and two CTAs share an SM.
  constexpr int threads() const { return groups == 1 ? 128 + 32 : 128 * (groups + 1); }
  constexpr int ctas() const { return groups == 1 ? 2 : 1; }
  // 65,536 registers of an SM, given to threads by eights and then again by warpgroups.
  constexpr bool trades_registers() const { return groups > 1; }
  constexpr int compute_registers() const { return groups == 3 ? 160 : 240; }
  constexpr int copy_registers() const { return groups == 3 ? 32 : 24; }

  // Blocks of a head's rows, each a CTA's.
  constexpr int query_blocks() const { return up(queries, dq().rows()) / dq().rows(); }
  constexpr int key_blocks() const { return up(keys, dkv().rows()) / dkv().rows(); }
  // Rows of a head's numbers that dq leaves to dkv.
  constexpr int stats_rows() const { return up(queries, 16); }

  struct Rule {
    const char* sentence;
    int AttentionBackwardSm90::*reads[4];
    bool (*holds)(const AttentionBackwardSm90&);
  };
};

struct AttentionBackwardSm90Rules {
  AttentionBackwardSm90::Rule all[4];
};

// A function, not a constant: NVRTC would keep a constant's sentences in each cubin.
constexpr AttentionBackwardSm90Rules attention_backward_sm90_rules() {
  using G = AttentionBackwardSm90;
  return {{
      {"warpgroups: 1 to 3; steps: 16 to 128 rows, in multiples of 16",
       {&G::groups, &G::key_step, &G::query_step},
       [](const G& g) {
         return g.groups >= 1 && g.groups <= 3 && g.key_step % 16 == 0 && g.key_step >= 16 &&
                g.key_step <= 128 && g.query_step % 16 == 0 && g.query_step >= 16 &&
                g.query_step <= 128;
       }},
      {"registers of dq: half the head size and 5/4 of a step: 128, 192 and 108 at most of one, "
       "two "
       "and three warpgroups",
       {&G::groups, &G::key_step},
       [](const G& g) { return g.dq().step_registers() <= g.dq().limit(); }},
      {"registers of dkv: the head size and 5/4 of a step: 128, 192 and 108 at most of one, two "
       "and "
       "three warpgroups",
       {&G::groups, &G::query_step},
       [](const G& g) { return g.dkv().step_registers() <= g.dkv().limit(); }},
      {"shared memory: rows and 2 to 4 stages in 232448 bytes, or half of them for one warpgroup",
       {&G::groups, &G::key_step, &G::query_step, &G::stages},
       [](const G& g) {
         const int most = G::kCtaBytes / g.ctas();
         return g.stages >= 2 && g.stages <= 4 && g.dq().shared_bytes() <= most &&
                g.dkv().shared_bytes() <= most;
       }},
  }};
}

}  // namespace vitune
