// templates/linear_weight_grad/geometry_split_m.cuh -- WeightGradSplitM: what a CTA of the family
// sm90_split_m takes beside a GemmSm90, and the rules of it.
//
// Plain C++ without includes: the space and the launch plan compute with this very struct, and
// NVRTC reads it. linear/geometry_sm90.cuh comes before it.
#pragma once

namespace vitune {

struct WeightGradSplitM : GemmSm90 {
  int row_parts = 0;  // of the rows of dy and x, each a CTA's of the cluster that has a tile

  // Columns of the tile that a CTA finishes.
  constexpr int slice_columns() const { return block_n / row_parts; }
  // Behind the ring: the barrier of the sums, the sums of all parts of this CTA's slice, the parts'
  // sums of dy's rows.
  constexpr int sum_barrier_offset() const { return ring_bytes(); }
  constexpr int sum_offset() const { return (ring_bytes() + 8 + 15) / 16 * 16; }
  constexpr int sum_bytes() const { return block_m * block_n * 4; }
  constexpr int row_sum_offset() const { return sum_offset() + sum_bytes(); }
  constexpr int row_sum_bytes() const { return ones ? row_parts * block_m * 4 : 0; }
  constexpr int shared_bytes() const { return row_sum_offset() + row_sum_bytes(); }
  // Stages that fit in so many bytes.
  constexpr int most_stages(int shared) const {
    return GemmSm90::most_stages(shared - 24 - sum_bytes() - row_sum_bytes());
  }

  struct Rule {
    const char* sentence;
    int WeightGradSplitM::*reads[2];
    bool (*holds)(const WeightGradSplitM&);
  };
};

struct WeightGradSplitMRules {
  WeightGradSplitM::Rule all[1];
};

// A function, not a constant: NVRTC would keep a constant's sentence in each cubin.
constexpr WeightGradSplitMRules weight_grad_split_m_rules() {
  return {{
      {"parts: 2 to 8, with whole groups of eight columns to finish",
       {&WeightGradSplitM::block_n, &WeightGradSplitM::row_parts},
       [](const WeightGradSplitM& g) {
         return g.row_parts >= 2 && g.row_parts <= 8 && g.block_n % (8 * g.row_parts) == 0;
       }},
  }};
}

}  // namespace vitune
