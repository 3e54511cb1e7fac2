// templates/norm_backward/geometry_rows.cuh -- NormBackwardRows: what the kernels of a norm's
// gradients take of a CTA, and the rules that their tunables obey.
//
// Plain C++ without includes: the space and the launch plan compute with this very struct, and
// NVRTC reads it; a generated Config holds one. All members are int, so that a config's geometry is
// written down as the numbers in it.
#pragma once

namespace vitune {

struct NormBackwardRows {
  // Tunables.
  int row_threads;  // threads that share a row
  int rows;         // rows that a CTA has at work at once
  int vector;       // elements of an access
  int ahead;        // a row is asked for before the last one is written
  int ctas;         // of an SM, that registers leave room for

  // Facts of the problem.
  int columns;
  int dy_bytes, x_bytes;  // of an element; residual and dx have the type of x
  int weight_bytes;       // of an element; 0 where there is no weight
  int residual;           // 1 where dx is added to another gradient
  int column_sums;        // of dweight and dbias, those that are asked for
  int row_sums;           // sums over a row that are taken at once, at most

  static constexpr int kWarp = 32, kMostGroups = 8;
  // The second kernel's CTAs: with all registers that a thread may have they fit on an SM.
  static constexpr int kFinishWarps = 8, kFinishColumns = 8;

  constexpr int threads() const { return row_threads * rows; }
  constexpr int step() const { return vector * row_threads; }
  constexpr int pieces() const { return (columns + step() - 1) / step(); }
  constexpr int values() const { return pieces() * vector; }  // of a row, of a thread
  // Threads that have sums of the same columns: a row's, or those of a warp, whose rows' sums are
  // added by shuffles.
  constexpr int team_threads() const { return row_threads > kWarp ? row_threads : kWarp; }
  constexpr int teams() const { return threads() / team_threads(); }
  constexpr int row_warps() const { return team_threads() / kWarp; }

  // Shared memory: column sums on their way from team to team; then sums of each warp of a row,
  // twice, so that one barrier lies between two uses of a word.
  constexpr int column_bytes() const {
    return teams() > 1 ? 4 * column_sums * pieces() * step() : 0;
  }
  constexpr int row_sum_bytes() const {
    return row_warps() > 1 ? 4 * 2 * row_sums * row_warps() * rows : 0;
  }
  constexpr int shared_bytes() const { return column_bytes() + row_sum_bytes(); }

  constexpr int row_bytes() const { return dy_bytes + (1 + residual) * x_bytes; }  // an element's
  // Registers of a piece as it is stored.
  constexpr int words(int element_bytes) const { return (vector * element_bytes + 3) / 4; }
  // The registers that a thread needs at least: dy and x in fp32, sums of columns, the weight and
  // the residual's gradient as they are stored, and the next row.
  constexpr int registers() const {
    const int row = words(dy_bytes) + (1 + residual) * words(x_bytes);
    const int stored = words(weight_bytes) + residual * words(x_bytes) + (ahead != 0 ? row : 0);
    return values() * (2 + column_sums) + pieces() * stored + 32;
  }
  // That an SM has for a thread, in eights: each of its quarters has its own for its warps.
  constexpr int registers_there_are() const {
    const int quarter = (threads() * ctas / kWarp + 3) / 4;
    const int share = 16384 / kWarp / quarter / 8 * 8;
    return share < 255 ? share : 255;
  }

  struct Rule {
    const char* sentence;
    int NormBackwardRows::*reads[5];
    bool (*holds)(const NormBackwardRows&);
  };
};

struct NormBackwardRowsRules {
  NormBackwardRows::Rule all[5];
};

// A function, not a constant: NVRTC would keep a constant's sentences in each cubin.
constexpr NormBackwardRowsRules norm_backward_rows_rules() {
  using G = NormBackwardRows;
  return {{
      {"threads: whole warps, at most 1024",
       {&G::row_threads, &G::rows},
       [](const G& g) { return g.threads() % G::kWarp == 0 && g.threads() <= 1024; }},
      {"rows of more than one warp: at most 8, each has a barrier",
       {&G::row_threads, &G::rows},
       [](const G& g) { return g.row_threads <= G::kWarp || g.rows <= G::kMostGroups; }},
      {"CTAs of an SM: 4 to 48 warps",
       {&G::row_threads, &G::rows, &G::ctas},
       [](const G& g) {
         const int all = g.threads() * g.ctas / G::kWarp;
         return all >= 4 && all <= 48;
       }},
      {"values: at most 32 of a row for a thread",
       {&G::row_threads, &G::vector},
       [](const G& g) { return g.values() <= 32; }},
      {"registers for the values of each thread",
       {&G::row_threads, &G::rows, &G::vector, &G::ahead, &G::ctas},
       [](const G& g) { return g.registers() <= g.registers_there_are(); }},
  }};
}

}  // namespace vitune
