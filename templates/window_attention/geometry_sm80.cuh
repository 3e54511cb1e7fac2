// templates/window_attention/geometry_sm80.cuh -- WindowGeometry: what a kernel of window attention
// takes of a CTA, and the rules that its tunables obey.
//
// Plain C++ without includes: the space and the launch plan compute with this very struct, and
// NVRTC reads it; a generated Config holds one. All members are int, so that a config's geometry is
// written down as the numbers in it.
#pragma once

namespace vitune {

struct WindowGeometry {
  // Tunables.
  int heads_per_cta;      // (window, head) pairs that a CTA works on at once
  int row_warps;          // warps of a pair
  int row_tiles;          // 16-row tiles per warp that are worked on at once
  int block_n;            // keys per step
  int buffers;            // 2: the next pair is copied while this one is worked on
  int min_ctas;           // CTAs per SM that the compiler leaves room for
  int persistent;         // 1: CTAs walk over many pairs
  int bias_in_registers;  // 1: a warp keeps its rows' bias for the next pair

  // Facts of the problem.
  int head_dim;
  int keys;  // pixels of a window
  int bias;  // as attention/config.cuh numbers it

  static constexpr int parts(int all, int each) { return (all + each - 1) / each; }
  static constexpr int eights(int number) { return parts(number, 8) * 8; }

  constexpr int warps() const { return heads_per_cta * row_warps; }
  constexpr int threads() const { return 32 * warps(); }
  constexpr int tiles() const { return parts(keys, 16 * row_tiles); }  // of a warp, of all rows
  constexpr int steps() const { return parts(keys, block_n); }

  // Shared memory of one pair: query (and output) rows, then K, then V.
  constexpr int query_rows() const { return 16 * row_tiles * tiles(); }
  constexpr int key_rows() const {
    const int before = (steps() - 1) * block_n;
    return before + eights(keys - before);
  }
  constexpr int pitch() const { return 16 * (head_dim / 8 | 1); }
  constexpr int pair_bytes() const { return (query_rows() + 2 * key_rows()) * pitch(); }
  constexpr int shared_bytes() const { return heads_per_cta * buffers * pair_bytes(); }

  // Registers that a thread has at least: scores, output, bias, and addresses; and may have.
  constexpr int registers() const {
    const int width = block_n < eights(keys) ? block_n : eights(keys);
    const int bias_words = bias == 0 ? 0 : bias == 1 ? 2 : 1;
    return row_tiles * (width / 2 + head_dim / 2 + bias_words * width / 4) + 24;
  }
  constexpr int register_room() const {
    const int room = 65536 / (threads() * min_ctas) / 8 * 8;
    return room < 255 ? room : 255;
  }

  struct Rule {
    const char* sentence;
    int WindowGeometry::*reads[5];
    bool (*holds)(const WindowGeometry&);
  };
};

struct WindowRules {
  WindowGeometry::Rule all[5];
};

// A function, not a constant: NVRTC would keep a constant's sentences in each cubin.
constexpr WindowRules window_rules() {
  using G = WindowGeometry;
  return {{
      {"rows: no warp that the others could do without",
       {&G::row_warps, &G::row_tiles},
       [](const G& g) {
         return G::parts(g.tiles(), G::parts(g.tiles(), g.row_warps)) == g.row_warps;
       }},
      {"warps: at most 16 of a CTA and 64 of an SM",
       {&G::heads_per_cta, &G::row_warps, &G::min_ctas},
       [](const G& g) { return g.warps() <= 16 && g.warps() * g.min_ctas <= 64; }},
      {"registers: scores, output and bias of a thread fit",
       {&G::heads_per_cta, &G::row_warps, &G::row_tiles, &G::block_n, &G::min_ctas},
       [](const G& g) { return g.registers() <= g.register_room(); }},
      {"buffers: two for CTAs that walk",
       {&G::buffers, &G::persistent},
       [](const G& g) { return g.buffers == 1 || (g.buffers == 2 && g.persistent != 0); }},
      {"bias: kept by warps of one tile of rows that walk, all keys in one step",
       {&G::row_warps, &G::row_tiles, &G::block_n, &G::persistent, &G::bias_in_registers},
       [](const G& g) {
         if (g.bias_in_registers == 0) return true;
         return g.bias != 0 && g.persistent != 0 && g.block_n >= g.keys && g.row_warps == g.tiles();
       }},
  }};
}

}  // namespace vitune
