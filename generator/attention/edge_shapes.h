// generator/attention/edge_shapes.h -- The sizes at which kernels go wrong, derived from the
// problem at hand.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "core/config.h"
#include "core/device_info.h"
#include "generator/attention/problem.h"

namespace vitune {

// Sizes that replace a problem's own.
struct Extents {
  std::int64_t batch = 1, kv_heads = 1, nq = 1, nk = 1;
};

// `problem` with other sizes: same type, head size, group size, causal, scale, kind of bias and
// mask, LSE and alignment class, in the same family of layouts. `extents.kv_heads` is at most the
// problem's.
AttentionProblem resized(const AttentionProblem& problem, const Extents& extents);

// The sizes to try for `problem`, unless its kernel holds the key count as a constant only a few:
// one query, 17 queries, few heads, and key counts of 1, 16, 63, nk - 7 and nk + 1.
std::vector<Extents> edge_extents(const AttentionProblem& problem, bool constant_keys);

// The problems other than `problem` itself on which the kernel compiled for (`problem`, `config`)
// must be right too, cheapest first: those of edge_extents() whose kernel source is the very same.
std::vector<AttentionProblem> edge_problems(const AttentionProblem& problem, const Config& config,
                                            const DeviceInfo& device);

// Equal for configs of the problem's space that have the same edge_problems(): whether their
// sources are the same as the edges' is a matter of the problem alone, so that they need not be
// rendered.
std::int64_t edge_class(const AttentionProblem& problem, const Config& config,
                        const DeviceInfo& device);

}  // namespace vitune
