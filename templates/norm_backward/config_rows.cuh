// templates/norm_backward/config_rows.cuh -- What a generated Config of a norm's gradients must
// say, and what follows from it.
//
// Facts of the problem (the generator derives them):
//   kGradient      SupportType of dy
//   kStream        SupportType of x, residual and dx
//   kParameters    SupportType of weight, dweight and dbias
//   kSecond        SupportType of second; -1 where there is none
//   kSideBySide    the rows of all tensors lie side by side
//   kRms           no mean is taken away
//   kStatistics    the rows' mean and rstd are given
//   kWeight        there is a weight
//   kDweight, kDbias  what is asked for
//   kResidual      dx is added to another gradient
//   kFactor        rows have factors, which second is multiplied by
// kGeometry, a NormBackwardRows of its tunables (geometry_rows.cuh), and
//   kStreaming     L2 need not keep the inputs
#pragma once

#include "norm_backward/geometry_rows.cuh"
#include "norm_backward/params.cuh"
#include "primitives/rules.cuh"
#include "primitives/vector.cuh"

namespace vitune {

template <class C>
struct NormBackwardTraits : C {
  static constexpr NormBackwardRows kG = C::kGeometry;
  static_assert(RulesHold<broken_rule(kG, norm_backward_rows_rules().all)>::kValue);

  static constexpr int kVector = kG.vector, kPieces = kG.pieces(), kStep = kG.step();
  static constexpr int kRowThreads = kG.row_threads, kRows = kG.rows, kColumns = kG.columns;
  static constexpr int kTeamThreads = kG.team_threads(), kTeams = kG.teams();
  static constexpr int kColumnBytes = kG.column_bytes();
  static constexpr bool kAhead = kG.ahead != 0;
  static constexpr int kColumnSums = (C::kDweight ? 1 : 0) + (C::kDbias ? 1 : 0);
  static_assert(kColumnSums == kG.column_sums, "the geometry is of another problem");
  static constexpr Keep kInputs = C::kStreaming != 0 ? Keep::kNot : Keep::kUsual;

  // Sums over a row that are taken at once, and the place of each.
  static constexpr int kProducts = 0, kGradients = 1, kSquares = C::kRms ? 1 : 2;
  static constexpr int kRowSums = 1 + (C::kRms ? 0 : 1) + (C::kStatistics ? 0 : 1);
  static_assert(kRowSums == kG.row_sums, "the geometry is of another problem");

  using Gradient = Vector<C::kGradient, kVector>;
  using Stream = Vector<C::kStream, kVector>;
  using Parameter = Vector<C::kParameters, kVector>;
  using Values = float[kPieces][kVector];

  // Where a row begins, in elements. Rows side by side are known to be: one product for all
  // tensors.
  static __device__ __forceinline__ i64 start(i64 row, i64 stride) {
    return row * (C::kSideBySide ? i64(kColumns) : stride);
  }
  static __device__ __forceinline__ int column(int piece) {
    return (piece * kRowThreads + int(threadIdx.x) % kRowThreads) * kVector;
  }
  static __device__ __forceinline__ bool has(int piece) {
    return kColumns % kStep == 0 || column(piece) < kColumns;
  }
};

}  // namespace vitune
