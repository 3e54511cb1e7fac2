// templates/attention_backward/geometry_short.cuh -- AttentionBackwardShort: what the kernel of the
// family sm80_short takes of a CTA, and the rules that its tunables obey.
//
// Plain C++ without includes: the space and the launch plan compute with this very struct, and
// NVRTC reads it; a generated Config holds one. All members are int, so that a config's geometry is
// written down as the numbers in it.
#pragma once

namespace vitune {

struct AttentionBackwardShort {
  // Tunables.
  int warps;     // of a CTA, which works on one head at a time; each has groups of 16 keys
  int buffers;   // 2: the next head is copied while this one is worked on
  int min_ctas;  // CTAs per SM that the compiler leaves room for

  // Facts of the problem.
  int head_dim;
  int query_tiles, key_tiles;  // of eight rows, the last one perhaps with fewer
  int bias_words;              // of registers for a pair of neighbouring values; 0 without a bias
  int mask;                    // 1 where there is one
  int dbias;                   // 1: the bias's gradient is asked for

  static constexpr int kMostWarps = 16, kMostWarpsOfSm = 64;
  static constexpr int kUncounted = 36;  // registers of a thread for addresses and what passes by

  static constexpr int parts(int all, int each) { return (all + each - 1) / each; }
  static constexpr int larger(int a, int b) { return a > b ? a : b; }

  constexpr int threads() const { return 32 * warps; }
  constexpr int key_groups() const { return parts(key_tiles, 2); }  // of 16 keys
  constexpr int query_groups() const { return parts(query_tiles, 2); }
  constexpr int groups() const { return parts(key_groups(), warps); }  // of a warp
  constexpr int query_rows() const { return 8 * query_tiles; }
  constexpr int key_rows() const { return 16 * groups() * warps; }

  // Shared memory: buffers of Q, dO, K, V and lse, with two of them of out too; dS, in whose place
  // a single buffer has out before; two numbers of each query; and the bias of each thread's
  // scores. Rows are padded (TileRows).
  constexpr int pitch() const { return 16 * (head_dim / 8 | 1); }
  constexpr int score_pitch() const { return 16 * (2 * query_groups() | 1); }
  constexpr int query_bytes() const { return query_rows() * pitch(); }
  constexpr int key_bytes() const { return key_rows() * pitch(); }
  constexpr int out_bytes() const { return buffers == 2 ? query_bytes() : 0; }  // of a buffer
  constexpr int lse_bytes() const { return parts(4 * query_rows(), 16) * 16; }
  constexpr int buffer_bytes() const {
    return 2 * query_bytes() + 2 * key_bytes() + out_bytes() + lse_bytes();
  }
  constexpr int scores_bytes() const {
    const int scores = key_rows() * score_pitch();
    return buffers == 2 ? scores : larger(scores, query_bytes());
  }
  constexpr int stats_bytes() const { return 8 * query_rows(); }
  constexpr int bias_bytes() const { return 16 * threads() * parts(2 * tiles() * bias_words, 4); }
  constexpr int shared_bytes() const {
    return buffers * buffer_bytes() + scores_bytes() + stats_bytes() + bias_bytes();
  }

  // Registers that a thread has at least, and may have: scores and their gradients in fp32; or
  // both rounded, beside the sums of a product.
  constexpr int tiles() const { return groups() * query_tiles; }
  constexpr int registers() const {
    const int rounded = 4 * tiles() + groups() * head_dim / 2;
    const int stays = (bias_words != 0 ? 4 : 0) + (mask != 0 ? parts(tiles(), 8) : 0) +
                      (dbias != 0 ? 4 * tiles() : 0);
    return larger(8 * tiles(), rounded) + stays + kUncounted;
  }
  // The warps of a quarter of an SM share its 16,384 registers.
  constexpr int register_room() const {
    const int room = 16384 / 32 / parts(warps * min_ctas, 4) / 8 * 8;
    return room < 255 ? room : 255;
  }

  struct Rule {
    const char* sentence;
    int AttentionBackwardShort::*reads[2];
    bool (*holds)(const AttentionBackwardShort&);
  };
};

struct AttentionBackwardShortRules {
  AttentionBackwardShort::Rule all[3];
};

// A function, not a constant: NVRTC would keep a constant's sentences in each cubin.
constexpr AttentionBackwardShortRules attention_backward_short_rules() {
  using G = AttentionBackwardShort;
  return {{
      {"keys: no warp that the others could do without",
       {&G::warps},
       [](const G& g) { return G::parts(g.key_groups(), g.groups()) == g.warps; }},
      {"warps: at most 16 of a CTA and 64 of an SM",
       {&G::warps, &G::min_ctas},
       [](const G& g) {
         return g.warps <= G::kMostWarps && g.warps * g.min_ctas <= G::kMostWarpsOfSm;
       }},
      {"registers: scores, their gradients, sums and bias of a thread fit",
       {&G::warps, &G::min_ctas},
       [](const G& g) { return g.registers() <= g.register_room(); }},
  }};
}

}  // namespace vitune
