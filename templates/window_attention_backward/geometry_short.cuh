// templates/window_attention_backward/geometry_short.cuh -- WindowBackwardShort: what the kernel of
// the family sm80_short takes of a CTA, and the rules that its tunables obey.
//
// Plain C++ without includes: the space and the launch plan compute with this very struct, and
// NVRTC reads it; a generated Config holds one. All members are int, so that a config's geometry is
// written down as the numbers in it.
#pragma once

namespace vitune {

struct WindowBackwardShort {
  // Tunables.
  int warps;     // of a CTA, which works on one (window, head) pair; each has groups of 16 rows
  int buffers;   // 2: the next pair is copied while this one is worked on
  int min_ctas;  // CTAs per SM that the compiler leaves room for

  // Facts of the problem.
  int head_dim;
  int keys;   // pixels of a window
  int bias;   // as attention/config.cuh numbers it
  int dbias;  // 1: the bias's gradient is asked for

  static constexpr int kMostWarps = 16, kMostWarpsOfSm = 64;
  static constexpr int kUncounted = 36;  // registers of a thread for addresses and what passes by

  static constexpr int parts(int all, int each) { return (all + each - 1) / each; }
  static constexpr int larger(int a, int b) { return a > b ? a : b; }

  constexpr int threads() const { return 32 * warps; }
  constexpr int tiles() const { return parts(keys, 8); }               // of eight rows
  constexpr int row_groups() const { return parts(tiles(), 2); }       // of 16
  constexpr int groups() const { return parts(row_groups(), warps); }  // of a warp
  constexpr int rows() const { return 16 * groups() * warps; }

  // Shared memory: buffers of Q, K, V and dO; P and dS, in whose place dQ is staged before; and the
  // bias of each thread's scores.
  constexpr int pitch() const { return 16 * (head_dim / 8 | 1); }
  constexpr int plane_bytes() const { return rows() * pitch(); }
  constexpr int buffer_bytes() const { return 4 * plane_bytes(); }
  constexpr int score_pitch() const { return larger(16 * (2 * row_groups() | 1), pitch()); }
  constexpr int scores_bytes() const { return rows() * score_pitch(); }  // of each
  constexpr int bias_words() const { return bias == 0 ? 0 : bias == 1 ? 2 : 1; }
  constexpr int bias_bytes() const {
    return 16 * threads() * parts(2 * held_tiles() * bias_words(), 4);
  }
  constexpr int shared_bytes() const {
    return buffers * buffer_bytes() + 2 * scores_bytes() + bias_bytes();
  }

  // Registers that a thread has at least, and may have: scores and their gradients in fp32; or
  // both rounded, beside the sums of a product.
  constexpr int held_tiles() const { return groups() * tiles(); }
  constexpr int registers() const {
    const int rounded = 4 * held_tiles() + groups() * head_dim / 2;
    const int stays = (bias != 0 ? 4 : 0) + (dbias != 0 ? 4 * held_tiles() : 0);
    return larger(8 * held_tiles(), rounded) + stays + kUncounted;
  }
  // The warps of a quarter of an SM share its 16,384 registers.
  constexpr int register_room() const {
    const int room = 16384 / 32 / parts(warps * min_ctas, 4) / 8 * 8;
    return room < 255 ? room : 255;
  }

  struct Rule {
    const char* sentence;
    int WindowBackwardShort::*reads[2];
    bool (*holds)(const WindowBackwardShort&);
  };
};

struct WindowBackwardShortRules {
  WindowBackwardShort::Rule all[3];
};

// A function, not a constant: NVRTC would keep a constant's sentences in each cubin.
constexpr WindowBackwardShortRules window_backward_short_rules() {
  using G = WindowBackwardShort;
  return {{
      {"rows: no warp that the others could do without",
       {&G::warps},
       [](const G& g) { return G::parts(g.row_groups(), g.groups()) == g.warps; }},
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
