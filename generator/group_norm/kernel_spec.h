// generator/group_norm/kernel_spec.h -- What group norm's operator, its families and its judge
// share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "generator/family.h"
#include "generator/group_norm/problem.h"
#include "generator/judge_spec.h"
#include "generator/launch_plan.h"
#include "generator/tensor_spec.h"
#include "templates/group_norm/params.cuh"

namespace vitune {

// In the order of the C interface.
enum GroupNormTensor {
  kGroupNormX,
  kGroupNormWeight,
  kGroupNormBias,
  kGroupNormOut,
  kGroupNormTensors
};
std::vector<TensorSpec> group_norm_tensors(const GroupNormProblem& problem);

// Where a call's tensors go in what kernels are handed.
std::vector<PointerSlot> group_norm_pointers();

inline constexpr std::int64_t kWarp = 32;
inline constexpr std::int64_t kSmRegisters = 65536;  // and so the most of a CTA
inline constexpr std::int64_t kCtaShared = 232448;   // of compute capability 9.0 and 10.0

// The kernels' tiles (templates/group_norm/tile.cuh has the words). Any numbers for a config
// outside the space.
struct GroupNormTiling {
  std::int64_t threads = 0, groups = 0, chunks = 0;  // of a CTA; of a CTA; of a tile
  bool sliced = false;
  std::int64_t vector = 0, vector_channels = 0;
  std::int64_t rows = 0, row_vectors = 0, row_stride = 0, chunk_rows = 0;
  std::int64_t tile_threads = 0, busy = 0;
  std::int64_t steps = 0, pieces = 0;
  std::int64_t piece_registers = 0, column_registers = 0;  // of vectors, of parameters and means
  std::int64_t slots = 0, slot_stride = 0;
  bool even = false;     // no thread looks whether its vectors are there
  bool cluster = false;  // the chunks are a cluster's CTAs, which hold them in shared memory
  std::int64_t vector_bytes = 0;
  // Waves in which all CTAs of a grid that run at once go through the tensor; a thread's vectors of
  // odd ones that stay in registers.
  std::int64_t waves = 1, held = 0;

  bool grid() const { return waves > 1; }
  std::int64_t chunk_vectors() const { return chunk_rows * row_vectors; }
  // Registers that a thread has use for, and that it can do with.
  std::int64_t registers() const { return piece_registers + column_registers + 56; }
  std::int64_t least_registers() const { return piece_registers + column_registers + 46; }
  // Bytes of shared memory: for moments, for the groups' means and deviations; all bytes of a CTA
  // of the family `cluster`, and of `grid`.
  std::int64_t moment_bytes() const;
  std::int64_t scale_bytes() const { return 8 * groups; }
  std::int64_t cluster_bytes() const;
  std::int64_t grid_bytes() const;
};
GroupNormTiling group_norm_tiling(const GroupNormProblem& problem, const Config& config);

// Groups, or slices of them, that one CTA or all chunks' work on.
std::int64_t group_norm_tiles(const GroupNormProblem& problem, std::int64_t groups);
// Steps of `sm_threads` threads on each SM, as many as the grid fills, and one more for each
// `together` threads of a CTA that wait for each other: for the choice among configs without any
// measurement.
double group_norm_steps(const GroupNormProblem& problem, const GroupNormTiling& tiling,
                        const DeviceInfo& device, double sm_threads, double together);

// The families: whole groups or chunks (groups.cpp), clusters (clusters.cpp), waves of a grid whose
// CTAs run at once (grid.cpp). Plans of the last: Error(kUnsupported) where the device holds fewer
// CTAs, Error(kFailure) where its waves are none of the problem's.
const Family& group_norm_groups();
const Family& group_norm_clusters();
const Family& group_norm_grid();

std::vector<std::string> group_norm_judge_entries();
LaunchPlan group_norm_answer(const GroupNormProblem& problem, Precision precision);
std::vector<JudgeCase> group_norm_cases(const GroupNormProblem& problem, const Config& config);
std::vector<Fill> group_norm_inputs(const GroupNormProblem& problem, const std::string& draw);

}  // namespace vitune
