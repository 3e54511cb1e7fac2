// templates/linear/geometry_sm90.cuh -- GemmSm90: what a kernel on wgmma of a linear layer or of
// its weight gradient takes of a CTA, and the rules that its tunables obey.
//
// Plain C++ without includes: the space and the launch plan compute with this very struct, and
// NVRTC reads it; a generated Config holds one. All members are int, so that a config's geometry is
// written down as the numbers in it.
#pragma once

namespace vitune {

struct GemmSm90 {
  // Tunables.
  int block_m = 0, block_n = 0;  // tile of the result
  int stages = 0;                // slots of the ring that both operands pass through
  int groups = 0;                // warpgroups that compute
  int schedule = 0;  // kShared: all share a tile's rows; kPingPong: each has tiles of its own
  // Two CTAs of a cluster work on neighbouring tiles and share an operand: 1 = neighbours along the
  // columns share a, 2 = along the rows b; 0 = no clusters.
  int pair = 0;
  // 64 columns are staged and stored at once: whole lines of 128 bytes, half as many fences, more
  // shared memory; else 32, or 16. Of fp32 32 columns are such lines.
  int wide_stores = 0;
  // Steps by which a warpgroup begins a shared tile before the next one does, so that one's
  // epilogue falls in the products of the others; 0 = all at once.
  int lead = 0;
  int parts = 1;  // of the depth, each a CTA's of a cluster that adds them: 1, 2 or 4

  // Facts of the problem.
  int a_across = 0, b_across = 0;  // rows of an operand are steps of the depth, not of the result
  int staged = 0;                  // results pass through shared memory, and bytes of one of them
  int column_arrays = 0;           // numbers of fp32 that each column of the result has of its own
  int residual = 0;       // what is added to the result: 0 = nothing, kCopied, or kRead where its
                          // rows repeat, in the place where it is added
  int second_result = 0;  // one of 16 bits is written beside it
  int moments = 0;        // columns of a block of the result whose moments are written; 0: none
  int merged = 0;         // tiles whose rows' means and deviations are merged ahead, 0 or 2
  int ones = 0;           // a tile of ones, whose products are sums of rows

  enum Schedule { kShared = 0, kPingPong = 1 };
  enum Residual { kCopied = 1, kRead = 2 };
  static constexpr int kDepth = 64;  // of a step: a swizzle atom of 128 bytes
  static constexpr int kMostStages = 8;
  static constexpr int kCtaBytes = 232448;  // of shared memory, on 9.0
  static constexpr int kSecondBuffers = 2;

  static constexpr int least(int a, int b) { return a < b ? a : b; }

  constexpr int threads() const { return 128 * (groups + 1); }
  constexpr int cluster() const { return pair > 0 ? 2 : 1; }  // CTAs that share an operand
  constexpr int group_rows() const { return schedule == kPingPong ? block_m : block_m / groups; }
  constexpr int row_blocks() const { return group_rows() / 64; }     // products of a warpgroup
  constexpr int sums() const { return row_blocks() * block_n / 2; }  // of a thread
  // Rows and columns of the result of a unit of work: a tile, or a pair's two.
  constexpr int unit_rows() const { return pair == 2 ? 2 * block_m : block_m; }
  constexpr int unit_columns() const { return pair == 1 ? 2 * block_n : block_n; }

  // A slot: rows of a, then rows of b; or atom columns of 64 of them by the step's rows. Of an
  // operand that a pair shares each CTA copies a box of half the rows.
  constexpr int a_bytes() const { return block_m * kDepth * 2; }
  constexpr int stage_bytes() const { return a_bytes() + block_n * kDepth * 2; }
  constexpr int a_box_rows() const { return (a_across ? kDepth : block_m) / (pair == 1 ? 2 : 1); }
  constexpr int b_box_rows() const { return (b_across ? kDepth : block_n) / (pair == 2 ? 2 : 1); }

  // Columns that a warp stages and stores at once, and how often it does so in a tile.
  constexpr int store_columns() const { return wide_stores ? 64 : block_n % 32 == 0 ? 32 : 16; }
  constexpr int store_row_bytes() const { return store_columns() * staged; }
  constexpr int store_tiles() const { return block_n / store_columns(); }
  constexpr int stores() const { return store_tiles() * row_blocks(); }
  // True if each warp loads the residual into its own staging buffers: in ping-pong, where the ring
  // belongs to the other warpgroup's tile during the epilogue, and where a tile is one store tile,
  // which is loaded before its products. Else the residual comes through the ring, which is idle
  // after a tile's last step, in store tiles of block_m rows.
  constexpr bool stages_residual() const {
    return residual == kCopied && (schedule == kPingPong || stores() == 1);
  }
  constexpr bool has_ring_residual() const { return residual == kCopied && !stages_residual(); }
  constexpr int store_tile_bytes() const { return block_m * store_row_bytes(); }
  constexpr int slot_store_tiles() const {
    return least(stage_bytes() / store_tile_bytes(), store_tiles());
  }
  constexpr int residual_slots() const {
    return has_ring_residual() ? (store_tiles() + slot_store_tiles() - 1) / slot_store_tiles() : 0;
  }

  // A warp's store: a buffer of 16 rows that it stages, with a barrier where residuals come there;
  // and what it stages of a second result.
  constexpr int store_bytes() const { return 16 * store_row_bytes(); }
  constexpr int second_bytes() const {
    return second_result ? kSecondBuffers * 16 * store_columns() * 2 : 0;
  }
  // Two buffers, and where residuals come there as many as fit, 8 at most.
  constexpr int store_buffers() const {
    const int fewest = least_store_buffers();
    if (!stages_residual()) return fewest;
    const int room = kCtaBytes - part_bytes() - bytes_with(fewest);
    const int fit = fewest + room / (4 * groups * (store_bytes() + 8));
    const int useful = least(stores(), 8);
    const int most = fewest > useful ? fewest : useful;
    return fit < fewest ? fewest : least(fit, most);
  }

  // Shared memory: the ring, staging of all warps, of a second result, numbers of the columns of
  // each warpgroup, of rows, ones, barriers.
  constexpr int staging_offset() const { return stages * stage_bytes(); }
  constexpr int second_offset() const {
    return staging_offset() + groups * 4 * store_buffers() * store_bytes();
  }
  constexpr int column_offset() const { return second_offset() + groups * 4 * second_bytes(); }
  constexpr int column_bytes() const { return block_n * 4 * column_arrays; }
  constexpr int merged_offset() const { return column_offset() + groups * column_bytes(); }
  constexpr int ones_offset() const { return merged_offset() + merged * block_m * 8; }
  constexpr int ones_bytes() const { return ones ? 8 * 128 : 0; }
  constexpr int barrier_offset() const { return ones_offset() + ones_bytes(); }
  constexpr int residual_barriers() const {
    return stages_residual() ? groups * 4 * store_buffers() : 0;
  }
  constexpr int ring_bytes() const { return bytes_with(store_buffers()); }
  // Behind these, where the parts of a tile are added: a barrier, then the sums of all parts.
  constexpr int sum_bytes() const { return parts > 1 ? block_m * block_n * 4 : 0; }
  constexpr int sum_offset() const { return (ring_bytes() + 8 + 15) / 16 * 16; }
  constexpr int shared_bytes() const {
    return parts > 1 ? sum_offset() + sum_bytes() : ring_bytes();
  }
  // Stages that fit in so many bytes.
  constexpr int most_stages(int shared) const {
    const int room = shared - part_bytes() - other_bytes(least_store_buffers());
    return room / (stage_bytes() + 16);
  }

  struct Rule {
    const char* sentence;
    int GemmSm90::*reads[6];
    bool (*holds)(const GemmSm90&);
  };

  // 65,536 registers of an SM, given to threads by eights and then again by warpgroups.
  constexpr bool trades_registers() const { return groups > 1; }
  constexpr int compute_registers() const { return groups == 3 ? 160 : 240; }
  constexpr int copy_registers() const { return groups == 3 ? 32 : 24; }

 private:
  constexpr int least_store_buffers() const { return stages_residual() ? least(stores(), 2) : 2; }
  constexpr int part_bytes() const { return parts > 1 ? 24 + sum_bytes() : 0; }
  constexpr int bytes_with(int buffers) const {
    return stages * (stage_bytes() + 16) + other_bytes(buffers);
  }
  // Beside the ring and its barriers.
  constexpr int other_bytes(int buffers) const {
    const int buffer = store_bytes() + (stages_residual() ? 8 : 0);
    const int order = staged ? 8 : 0;
    return groups * (4 * (buffers * buffer + second_bytes()) + column_bytes() + order) +
           merged * (block_m * 8 + 16) + ones_bytes();
  }
};

struct GemmSm90Rules {
  GemmSm90::Rule all[7];
};

// A function, not a constant: NVRTC would keep a constant's sentences in each cubin.
constexpr GemmSm90Rules gemm_sm90_rules() {
  return {{
      {"warpgroups: multiples of 64 rows, at most 192 sums of a thread, 96 where there are "
       "three; two in ping-pong",
       {&GemmSm90::block_m, &GemmSm90::block_n, &GemmSm90::groups, &GemmSm90::schedule},
       [](const GemmSm90& g) {
         const bool is_pair = g.schedule != GemmSm90::kPingPong || g.groups == 2;
         const int rows = g.schedule == GemmSm90::kPingPong ? 64 : 64 * g.groups;
         return is_pair && g.groups >= 1 && g.groups <= 3 && g.block_m % rows == 0 &&
                g.block_m <= 256 && g.block_n % 16 == 0 && g.block_n <= 256 &&
                g.sums() <= (g.groups == 3 ? 96 : 192);
       }},
      {"registers: no more than a CTA is given, for which warpgroups would wait for ever",
       {&GemmSm90::groups},
       [](const GemmSm90& g) {
         const int asked = g.groups * g.compute_registers() + g.copy_registers();
         return !g.trades_registers() || asked <= (g.groups + 1) * (65536 / g.threads() / 8 * 8);
       }},
      {"wide stores: of whole tiles, not of fp32, where no moments are written",
       {&GemmSm90::block_n, &GemmSm90::wide_stores},
       [](const GemmSm90& g) {
         return g.wide_stores == 0 ||
                (g.moments == 0 && g.store_row_bytes() <= 128 && g.block_n % 64 == 0);
       }},
      {"operands across their rows: whole columns of 64",
       {&GemmSm90::block_m, &GemmSm90::block_n},
       [](const GemmSm90& g) {
         return (g.a_across == 0 || g.block_m % 64 == 0) &&
                (g.b_across == 0 || g.block_n % 64 == 0);
       }},
      {"lead: of warpgroups that share tiles, less than the stages, of which there are two at "
       "least",
       {&GemmSm90::groups, &GemmSm90::schedule, &GemmSm90::lead, &GemmSm90::stages},
       [](const GemmSm90& g) {
         const bool is_shared = g.schedule == GemmSm90::kShared && g.groups > 1;
         return g.stages >= 2 && (g.lead == 0 || (is_shared && g.lead < g.stages));
       }},
      {"moments: whole blocks of a tile's columns",
       {&GemmSm90::block_n},
       [](const GemmSm90& g) { return g.moments == 0 || g.block_n % g.moments == 0; }},
      {"parts: 2 or 4 of tiles of 64 rows, a residual in one slot of the ring",
       {&GemmSm90::block_n, &GemmSm90::parts},
       [](const GemmSm90& g) {
         if (g.parts == 1) return true;
         const bool is_one = g.block_m == 64 && g.groups == 1 && g.pair == 0;
         const bool fits = g.residual == 0 ||
                           g.store_tiles() * g.store_tile_bytes() <= g.stage_bytes() ||
                           g.store_tiles() == 1;
         return is_one && fits && (g.parts == 2 || g.parts == 4);
       }},
  }};
}

}  // namespace vitune
