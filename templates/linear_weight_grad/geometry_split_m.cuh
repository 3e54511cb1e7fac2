// templates/linear_weight_grad/geometry_split_m.cuh -- WeightGradSplitM: what a CTA of the family
// sm90_split_m takes beside a GemmSm90, and the rules of it.
//
// Plain C++ without includes: the space and the launch plan compute with this very struct, and
// NVRTC reads it. linear/geometry_sm90.cuh comes before it.
#pragma once

namespace vitune {

struct WeightGradSplitM : GemmSm90 {
  int row_parts = 0;  // of the rows of dy and x, each a CTA's of the cluster that has a tile
  // The sums of dy's rows: 0 = the first tile of a row of tiles adds them all, in this kernel; 1 =
  // each tile adds those of some steps, and a second kernel adds these.
  int shares_row_sums = 0;

  // A CTA finishes a slice of the tile's columns, in groups of eight: those from first_chunk(part)
  // to that of the next, most_chunks() at most.
  constexpr int chunks() const { return block_n / 8; }
  constexpr int first_chunk(int part) const { return part * chunks() / row_parts; }
  constexpr int most_chunks() const { return (chunks() + row_parts - 1) / row_parts; }

  // The sums of all parts of this CTA's slice, the parts' sums of dy's rows: behind the ring, or,
  // where both do not fit, in its place, which is free when all parts have been multiplied.
  constexpr int sum_bytes() const { return row_parts * block_m * most_chunks() * 32; }
  constexpr int row_sum_bytes() const {
    return ones && !shares_row_sums ? row_parts * block_m * 4 : 0;
  }
  constexpr bool reuses_ring() const {
    return ring_bytes() + sum_bytes() + row_sum_bytes() + kSumBarriers > kCtaBytes;
  }
  constexpr int sum_barrier_offset() const { return ring_bytes(); }
  constexpr int sum_offset() const { return reuses_ring() ? 0 : ring_bytes() + kSumBarriers; }
  constexpr int row_sum_offset() const { return sum_offset() + sum_bytes(); }
  constexpr int shared_bytes() const {
    return ring_bytes() + kSumBarriers + (reuses_ring() ? 0 : sum_bytes() + row_sum_bytes());
  }
  // Stages that fit in so many bytes.
  constexpr int most_stages(int shared) const {
    return GemmSm90::most_stages(shared - kSumBarriers);
  }
  static constexpr int kSumBarriers = 16;  // when all sums have come; when all rings are free

  struct Rule {
    const char* sentence;
    int WeightGradSplitM::*reads[4];
    bool (*holds)(const WeightGradSplitM&);
  };
};

struct WeightGradSplitMRules {
  WeightGradSplitM::Rule all[3];
};

// A function, not a constant: NVRTC would keep a constant's sentence in each cubin.
constexpr WeightGradSplitMRules weight_grad_split_m_rules() {
  return {{
      {"parts: 2 to 8, with a group of eight columns to finish each",
       {&WeightGradSplitM::block_n, &WeightGradSplitM::row_parts},
       [](const WeightGradSplitM& g) {
         return g.row_parts >= 2 && g.row_parts <= 8 && g.chunks() >= g.row_parts;
       }},
      {"sums: they fit, behind the ring or in its place",
       {&WeightGradSplitM::block_m, &WeightGradSplitM::block_n, &WeightGradSplitM::stages,
        &WeightGradSplitM::row_parts},
       [](const WeightGradSplitM& g) {
         return !g.reuses_ring() || g.sum_bytes() + g.row_sum_bytes() <= g.stages * g.stage_bytes();
       }},
      {"shared sums of rows: where there are any",
       {&WeightGradSplitM::shares_row_sums},
       [](const WeightGradSplitM& g) { return !g.shares_row_sums || g.ones; }},
  }};
}

}  // namespace vitune
