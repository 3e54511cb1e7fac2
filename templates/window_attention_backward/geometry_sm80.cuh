// templates/window_attention_backward/geometry_sm80.cuh -- WindowBackwardGeometry: what a kernel of
// window attention's gradients takes of a CTA, and the rules that its tunables obey.
//
// Plain C++ without includes: the space and the launch plan compute with this very struct, and
// NVRTC reads it; a generated Config holds one. All members are int, so that a config's geometry is
// written down as the numbers in it.
#pragma once

namespace vitune {

struct WindowBackwardGeometry {
  // Tunables.
  int warps;         // of a CTA, which works on one (window, head) pair at a time
  int block_n;       // keys per step of the query rows' pass
  int buffers;       // 2: the next pair is copied while this one is worked on
  int keeps_scores;  // 1: P and dS go to the keys' pass by shared memory; 0: they are made again
  int min_ctas;      // CTAs per SM that the compiler leaves room for

  // Facts of the problem.
  int head_dim;
  int keys;      // pixels of a window
  int bias;      // as attention/config.cuh numbers it
  int dbias;     // 1: the bias's gradient is asked for
  int dpadding;  // 1: that of padding is

  static constexpr int kFinishThreads = 256, kTableThreads = 128;
  static constexpr int kTableHeads = 8;  // of a CTA
  static constexpr int kMostSummedKeys = 80;

  static constexpr int parts(int all, int each) { return (all + each - 1) / each; }

  constexpr int threads() const { return 32 * warps; }
  constexpr int tiles() const { return parts(keys, 16); }
  constexpr int rows() const { return 16 * tiles(); }
  constexpr int steps() const { return parts(rows(), block_n); }
  constexpr int tail() const { return rows() - (steps() - 1) * block_n; }  // keys of the last step
  // A thread has the same scores of every window: their sums stay in its registers where these are
  // few.
  constexpr bool sums_in_registers() const {
    return dbias != 0 && steps() == 1 && warps == tiles() && block_n <= kMostSummedKeys;
  }

  // Shared memory: buffers of Q, K, V and dO, then P and dS or three numbers of each row, then
  // sixteen rows of each warp, then its sums over padding.
  constexpr int pitch() const { return 16 * (head_dim / 8 | 1); }
  constexpr int plane_bytes() const { return rows() * pitch(); }
  constexpr int pair_bytes() const { return 4 * plane_bytes(); }
  constexpr int score_pitch() const { return 16 * (rows() / 8 | 1); }
  constexpr int scores_bytes() const {
    return keeps_scores != 0 ? 2 * rows() * score_pitch() : 3 * 4 * rows();
  }
  constexpr int staging_bytes() const { return 16 * pitch(); }  // of a warp
  constexpr int padding_bytes() const { return dpadding != 0 ? 2 * 4 * head_dim : 0; }
  constexpr int shared_bytes() const {
    return buffers * pair_bytes() + scores_bytes() + warps * (staging_bytes() + padding_bytes());
  }

  // Registers that a thread has at least, and may have. Sums that stay in memory pass through as
  // many of them as those that do not.
  constexpr int width() const { return block_n < rows() ? block_n : rows(); }
  constexpr int bias_words() const { return bias == 0 ? 0 : bias == 1 ? 2 : 1; }
  constexpr int registers() const {
    const int sums = dbias != 0 ? width() / 2 : 0;
    const int of_rows = width() + width() / 4 * bias_words() + head_dim / 2;
    const int of_keys = head_dim + (keeps_scores != 0 ? 8 : 24 + 4 * bias_words());
    return sums + (of_rows > of_keys ? of_rows : of_keys) + 28;
  }
  // The warps of a quarter of an SM share its 16,384 registers.
  constexpr int register_room() const {
    const int room = 16384 / 32 / parts(warps * min_ctas, 4) / 8 * 8;
    return room < 255 ? room : 255;
  }

  struct Rule {
    const char* sentence;
    int WindowBackwardGeometry::*reads[5];
    bool (*holds)(const WindowBackwardGeometry&);
  };
};

struct WindowBackwardRules {
  WindowBackwardGeometry::Rule all[3];
};

// A function, not a constant: NVRTC would keep a constant's sentences in each cubin.
constexpr WindowBackwardRules window_backward_rules() {
  using G = WindowBackwardGeometry;
  return {{
      {"rows: no warp that the others could do without",
       {&G::warps},
       [](const G& g) { return G::parts(g.tiles(), G::parts(g.tiles(), g.warps)) == g.warps; }},
      {"warps: at most 16 of a CTA and 64 of an SM",
       {&G::warps, &G::min_ctas},
       [](const G& g) { return g.warps <= 16 && g.warps * g.min_ctas <= 64; }},
      {"registers: scores, their gradients, sums and bias of a thread fit",
       {&G::warps, &G::block_n, &G::keeps_scores, &G::min_ctas},
       [](const G& g) { return g.registers() <= g.register_room(); }},
  }};
}

}  // namespace vitune
