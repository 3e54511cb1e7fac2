// templates/attention_backward/geometry_sm90_bias.cuh -- AttentionBackwardSm90Bias: what the
// kernels on wgmma of attention's gradients with a bias take of a CTA, and the rules that their
// tunables obey.
//
// Plain C++ without includes, after geometry_sm90.cuh: the space and the launch plan compute with
// this very struct, and NVRTC reads it; a generated Config holds one. All members are int.
//
// A kernel puts the bias in the order of the threads' registers; then come the passes `dq` and
// `dkv` of geometry_sm90.cuh, whose shared memory has room for parts of it, `dbias`, in which a
// warpgroup owns 64 query rows of a tile, and a kernel that adds parts of dbias.
#pragma once

namespace vitune {

struct AttentionBackwardSm90Bias {
  // Tunables.
  int groups = 0;        // warpgroups that compute, in dq and in dkv
  int key_step = 0;      // keys of a step of dq
  int query_step = 0;    // queries of a step of dkv
  int stages = 0;        // steps in shared memory or on their way, in dq and in dkv
  int row_slots = 0;     // rows in shared memory or on their way, in dq and in dkv
  int keeps_bias = 0;    // 1: the bias of a CTA's rows stays in shared memory, in dq and in dkv
  int dbias_groups = 0;  // warpgroups that compute, in dbias; 0: it is not asked for
  int dbias_tiles = 0;   // tiles that the keys are cut into, in dbias
  int dbias_step = 0;    // keys of a product, in dbias

  // Facts of the problem.
  int head_dim = 0;
  int queries = 0, keys = 0;
  int bias_bytes = 0;  // of one number of the bias

  static constexpr int kGroupRows = AttentionBackwardSm90::kGroupRows;
  static constexpr int kCtaBytes = AttentionBackwardSm90::kCtaBytes;
  static constexpr int kArrangeThreads = 256, kFinishThreads = 256;
  static constexpr int kDbiasStages = 2;  // batch entries in shared memory or on their way

  using Pass = AttentionBackwardSm90::Pass;
  static constexpr int up(int a, int b) { return AttentionBackwardSm90::up(a, b); }

  // dq and dkv, but for the bias.
  constexpr AttentionBackwardSm90 passes() const {
    return {groups, key_step, query_step, stages, head_dim, queries, keys};
  }
  constexpr int rows_of(bool of_keys) const { return of_keys ? keys : queries; }
  constexpr int columns_of(bool of_keys) const { return of_keys ? queries : keys; }

  // The bias in the order of registers: of 64 rows and 16 columns, each thread's eight numbers.
  constexpr int fragment_bytes() const { return 128 * 8 * bias_bytes; }
  constexpr int column_fragments(bool of_keys) const { return up(columns_of(of_keys), 16) / 16; }
  constexpr int row_fragments(bool of_keys) const {
    return up(rows_of(of_keys), kGroupRows) / kGroupRows;
  }
  // Of the same rows, from these to the next: those of the tiles of dbias, which may end later.
  constexpr int fragment_pitch(bool of_keys) const {
    const int tiles = of_keys ? 0 : dbias_tiles * dbias_fragments();
    return tiles > column_fragments(of_keys) ? tiles : column_fragments(of_keys);
  }
  constexpr int entry_fragments(bool of_keys) const {
    return row_fragments(of_keys) * fragment_pitch(of_keys);
  }

  // Shared memory of dq and dkv: that of the pass, pairs of barriers of the bias and of the second
  // rows, the bias, and the second rows at the first ones' multiple of bytes.
  constexpr Pass pass(bool of_keys) const { return of_keys ? passes().dkv() : passes().dq(); }
  constexpr int more_barriers_offset(bool of_keys) const { return pass(of_keys).shared_bytes(); }
  constexpr int bias_offset(bool of_keys) const {
    return up(more_barriers_offset(of_keys) + 32, 128);
  }
  // Of a warpgroup: all columns, or a step's.
  constexpr int bias_fragments(bool of_keys) const {
    return keeps_bias ? column_fragments(of_keys) : pass(of_keys).step / 16;
  }
  constexpr int bias_slots() const { return keeps_bias ? 1 : stages; }
  constexpr int second_rows_offset(bool of_keys) const {
    return up(
        bias_offset(of_keys) + bias_slots() * groups * bias_fragments(of_keys) * fragment_bytes(),
        1024);
  }
  constexpr int shared_bytes(bool of_keys) const {
    return second_rows_offset(of_keys) +
           (row_slots - 1) * pass(of_keys).row_operands * pass(of_keys).row_tile_bytes();
  }

  // dbias, whose threads and registers are those of a pass of as many warpgroups.
  constexpr AttentionBackwardSm90 sums() const {
    return {dbias_groups, 0, 0, kDbiasStages, head_dim, queries, keys};
  }
  constexpr int tile_rows() const { return dbias_groups * kGroupRows; }
  constexpr int tile_keys() const {
    const int tiles = dbias_tiles < 1 ? 1 : dbias_tiles;
    return up((keys + tiles - 1) / tiles, tiles == 1 ? 8 : 16);
  }
  constexpr int row_tiles() const { return up(queries, tile_rows()) / tile_rows(); }
  constexpr int key_tiles() const { return up(keys, tile_keys()) / tile_keys(); }
  // Of a thread: sums of the tile, two results of this step and of the next one.
  constexpr int dbias_registers() const { return tile_keys() / 2 + 2 * dbias_step; }
  // Sums in scratch memory have rows of a multiple of eight numbers.
  constexpr int sum_pitch() const { return up(keys, 8); }

  // Shared memory of dbias: stages of Q, dO, K, V, then numbers of queries, the bias, barriers.
  constexpr int row_tile_bytes() const { return tile_rows() * pass(false).row_bytes(); }
  constexpr int key_tile_bytes() const { return tile_keys() * pass(false).row_bytes(); }
  constexpr int dbias_stage_bytes() const { return 2 * (row_tile_bytes() + key_tile_bytes()); }
  constexpr int dbias_stats_offset() const { return kDbiasStages * dbias_stage_bytes(); }
  constexpr int dbias_stats_bytes() const { return 8 * tile_rows(); }
  constexpr int dbias_bias_offset() const {
    return up(dbias_stats_offset() + kDbiasStages * dbias_stats_bytes(), 128);
  }
  constexpr int dbias_fragments() const { return up(tile_keys(), 16) / 16; }  // of a warpgroup
  constexpr int dbias_barrier_offset() const {
    return dbias_bias_offset() + dbias_groups * dbias_fragments() * fragment_bytes();
  }
  constexpr int dbias_shared_bytes() const {
    return dbias_barrier_offset() + 16 * (kDbiasStages + 1);
  }

  struct Rule {
    const char* sentence;
    int AttentionBackwardSm90Bias::*reads[6];
    bool (*holds)(const AttentionBackwardSm90Bias&);
  };
};

struct AttentionBackwardSm90BiasRules {
  AttentionBackwardSm90Bias::Rule all[7];
};

// A function, not a constant: NVRTC would keep a constant's sentences in each cubin.
constexpr AttentionBackwardSm90BiasRules attention_backward_sm90_bias_rules() {
  using G = AttentionBackwardSm90Bias;
  return {{
      {"warpgroups: 1 to 3; steps: 16 to 128 rows, in multiples of 16",
       {&G::groups, &G::key_step, &G::query_step},
       [](const G& g) {
         return g.groups >= 1 && g.groups <= 3 && g.key_step % 16 == 0 && g.key_step >= 16 &&
                g.key_step <= 128 && g.query_step % 16 == 0 && g.query_step >= 16 &&
                g.query_step <= 128;
       }},
      {"registers of dq: half the head size and 5/4 of a step: 128, 192 and 108 at most of one, "
       "two and three warpgroups",
       {&G::groups, &G::key_step},
       [](const G& g) { return g.pass(false).step_registers() <= g.pass(false).limit(); }},
      {"registers of dkv: the head size and 5/4 of a step: 128, 192 and 108 at most of one, two "
       "and three warpgroups",
       {&G::groups, &G::query_step},
       [](const G& g) { return g.pass(true).step_registers() <= g.pass(true).limit(); }},
      {"shared memory of dq and dkv: rows once or twice, 2 to 4 stages and the bias in 232448 "
       "bytes, or half of them for one warpgroup",
       {&G::groups, &G::key_step, &G::query_step, &G::stages, &G::row_slots, &G::keeps_bias},
       [](const G& g) {
         const int most = G::kCtaBytes / g.passes().ctas();
         return g.stages >= 2 && g.stages <= 4 && g.row_slots >= 1 && g.row_slots <= 2 &&
                g.shared_bytes(false) <= most && g.shared_bytes(true) <= most;
       }},
      {"dbias: 1 to 3 warpgroups, tiles of 256 keys at most, each with some; steps: 16 to 128 "
       "keys, in multiples of 16; all 0 where it is not asked for",
       {&G::dbias_groups, &G::dbias_tiles, &G::dbias_step},
       [](const G& g) {
         if (g.dbias_groups == 0) return g.dbias_tiles == 0 && g.dbias_step == 0;
         return g.dbias_groups <= 3 && g.dbias_tiles >= 1 && g.dbias_step % 16 == 0 &&
                g.dbias_step >= 16 && g.dbias_step <= 128 && g.tile_keys() <= 256 &&
                g.key_tiles() == g.dbias_tiles;
       }},
      {"registers of dbias: half the keys of a tile and two steps: 128, 192 and 108 at most of "
       "one, "
       "two and three warpgroups",
       {&G::dbias_groups, &G::dbias_tiles, &G::dbias_step},
       [](const G& g) {
         return g.dbias_groups == 0 || g.dbias_registers() <= g.sums().dq().limit();
       }},
      {"shared memory of dbias: two stages of a tile's rows and keys, and its bias in 232448 "
       "bytes, or half of them for one warpgroup",
       {&G::dbias_groups, &G::dbias_tiles},
       [](const G& g) {
         return g.dbias_groups == 0 || g.dbias_shared_bytes() <= G::kCtaBytes / g.sums().ctas();
       }},
  }};
}

}  // namespace vitune
