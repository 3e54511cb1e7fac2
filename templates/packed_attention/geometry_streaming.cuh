// templates/packed_attention/geometry_streaming.cuh -- PackedGeometry: what a kernel of packed
// attention takes of a CTA, and the rules that its tunables obey.
//
// Plain C++ without includes: the space and the launch plan compute with this very struct, and
// NVRTC reads it; a generated Config holds one. All members are int, so that a config's geometry is
// written down as the numbers in it. Without a swizzle a kernel multiplies by mma.sync, with one by
// wgmma.
#pragma once

namespace vitune {

struct PackedGeometry {
  // Tunables.
  int swizzle;             // bytes of a panel's row; 0: padded rows and mma.sync
  int producer;            // 2: a warpgroup more does nothing but copy, whole tiles by TMA; or 0
  int warps;               // of a CTA that compute
  int row_tiles;           // 16-row tiles of a warp
  int block_n;             // keys per step
  int stages;              // tiles of keys, and of values, in shared memory
  int query_in_registers;  // 1: queries stay in registers
  int min_ctas;            // CTAs per SM that the compiler leaves room for
  int persistent;          // 1: CTAs walk over many work items

  // Facts of the problem.
  int head_dim;

  static constexpr int parts(int all, int each) { return (all + each - 1) / each; }
  static constexpr int more_of(int a, int b) { return a > b ? a : b; }

  constexpr bool warpgroups() const { return swizzle != 0; }
  constexpr int groups() const { return warps / 4; }
  constexpr int threads() const { return 32 * warps + (producer != 0 ? 128 : 0); }
  constexpr int block_m() const { return 16 * row_tiles * warps; }
  constexpr int pitch() const { return 16 * (head_dim / 8 | 1); }

  // Shared memory: query (and output) rows, then stages of keys, then of values.
  constexpr int row_bytes() const { return parts(2 * head_dim, swizzle) * swizzle; }
  constexpr int padded_bytes() const { return (block_m() + 2 * stages * block_n) * pitch(); }
  constexpr int swizzled_bytes() const {
    const int queries = parts(64 * more_of(row_bytes(), pitch()), 1024) * 1024;
    return parts(groups() * queries + 2 * stages * block_n * row_bytes(), 1024) * 1024;
  }
  // The same, a tile that the result leaves through, and barriers.
  constexpr int pipelined_bytes() const {
    const int tiles = (groups() * 64 + 2 * stages * block_n) * row_bytes();
    const int barriers = 8 * (4 * stages + 3 * groups());
    return parts(tiles + groups() * 64 * pitch() + barriers, 1024) * 1024;
  }
  constexpr int shared_bytes() const {
    return producer != 0 ? pipelined_bytes() : warpgroups() ? swizzled_bytes() : padded_bytes();
  }

  // Registers that a thread has at least: scores, output, weights or queries, and addresses; and
  // may have. Several warpgroups get those that the copying one does without.
  constexpr int registers() const {
    if (producer != 0) return block_n / 2 + head_dim / 2 + (groups() == 1 ? 44 : 28);
    if (warpgroups()) return 3 * block_n / 4 + head_dim / 2 + 28;
    const int queries = query_in_registers != 0 ? parts(head_dim, 16) * 4 : 4;
    return row_tiles * (block_n / 2 + head_dim / 2 + queries) + 72;
  }
  constexpr int register_room() const {
    const int room = 65536 / (threads() * min_ctas) / 8 * 8;
    if (producer == 0 || groups() < 2) return room < 255 ? room : 255;
    const int copying = groups() == 2 ? 40 : 32;
    return (room * (groups() + 1) - copying) / groups() / 8 * 8;
  }

  struct Rule {
    const char* sentence;
    int PackedGeometry::*reads[7];
    bool (*holds)(const PackedGeometry&);
  };
};

struct PackedRules {
  PackedGeometry::Rule all[5];
};

// A function, not a constant: NVRTC would keep a constant's sentences in each cubin.
constexpr PackedRules packed_rules() {
  using G = PackedGeometry;
  return {{
      {"warpgroups have four warps of one tile of rows, queries in shared memory, two stages",
       {&G::swizzle, &G::warps, &G::row_tiles, &G::stages, &G::query_in_registers},
       [](const G& g) {
         if (!g.warpgroups()) return true;
         return g.warps % 4 == 0 && g.row_tiles == 1 && g.query_in_registers == 0 && g.stages >= 2;
       }},
      {"copying warps: for warpgroups of CTAs that walk, several of which have an SM to themselves",
       {&G::producer, &G::swizzle, &G::warps, &G::min_ctas, &G::persistent},
       [](const G& g) {
         if (g.producer == 0) return true;
         return g.warpgroups() && g.persistent != 0 && (g.groups() == 1 || g.min_ctas == 1);
       }},
      {"steps: keys in sixteens, at most 208",
       {&G::block_n},
       [](const G& g) { return g.block_n % 16 == 0 && g.block_n <= 208; }},
      {"threads: at most 512 of a CTA and 2048 of an SM",
       {&G::producer, &G::warps, &G::min_ctas},
       [](const G& g) { return g.threads() <= 512 && g.threads() * g.min_ctas <= 2048; }},
      {"registers: scores, output and operands of a thread fit",
       {&G::swizzle, &G::producer, &G::warps, &G::row_tiles, &G::block_n, &G::query_in_registers,
        &G::min_ctas},
       [](const G& g) { return g.registers() <= g.register_room(); }},
  }};
}

}  // namespace vitune
