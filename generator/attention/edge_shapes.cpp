// generator/attention/edge_shapes.cpp -- Deriving small problems that run the same kernel.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/edge_shapes.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <string>

#include "core/checked.h"
#include "core/error.h"
#include "generator/attention/kernel_spec.h"

namespace vitune {
namespace {

std::int64_t product(std::int64_t a, std::int64_t b) {
  // validate() refuses what does not fit.
  return checked_mul(a, b).value_or(std::numeric_limits<std::int64_t>::max());
}

struct TensorExtent {
  std::int64_t batch, heads, rows;
};

// Strides of no named layout: the order of the dimensions and what lies inside a row or head stay,
// the outer strides follow the new sizes.
TensorStrides resized_view(const TensorStrides& old, const TensorExtent& from,
                           const TensorExtent& to, std::int64_t d) {
  const bool unknown = (from.rows == 1 && to.rows > 1) || (from.heads == 1 && to.heads > 1);
  if (unknown) return bnhd_strides(to.heads, to.rows, d);
  TensorStrides result = old;
  const std::int64_t rows_span = std::max(product(old.row, to.rows), d);
  const bool rows_outside = old.row >= old.head || from.heads == 1;
  if (!rows_outside) result.head = rows_span;
  const std::int64_t heads_span = std::max(product(result.head, to.heads), d);
  const bool broadcast = old.batch == 0 && from.batch > 1;
  result.batch = broadcast ? 0 : std::max(rows_span, heads_span);
  return result;
}

TensorStrides resized_tensor(const AttentionProblem& p, const AttentionProblem& to,
                             const TensorStrides& old, bool of_queries) {
  const TensorExtent before = {p.batch, of_queries ? p.heads : p.kv_heads,
                               of_queries ? p.nq : p.nk};
  const TensorExtent after = {to.batch, of_queries ? to.heads : to.kv_heads,
                              of_queries ? to.nq : to.nk};
  if (old == packed_gqa_strides(p.heads, p.kv_heads, before.rows, p.d)) {
    return packed_gqa_strides(to.heads, to.kv_heads, after.rows, p.d);
  }
  if (old == bnhd_strides(before.heads, before.rows, p.d)) {
    return bnhd_strides(after.heads, after.rows, p.d);
  }
  if (old == bhnd_strides(before.heads, before.rows, p.d)) {
    return bhnd_strides(after.heads, after.rows, p.d);
  }
  return resized_view(old, before, after, p.d);
}

// The least value from `least` on that is divisible by the same power of two up to 8 as `like`:
// vector loads depend on it.
std::int64_t aligned_like(std::int64_t least, std::int64_t like) {
  const std::int64_t unit = std::gcd(like, std::int64_t{8});
  std::int64_t value = least;
  while (std::gcd(value, std::int64_t{8}) != unit) ++value;
  return value;
}

std::int64_t resized_batches(std::int64_t batches, std::int64_t old_batch, std::int64_t batch) {
  if (batches == 1) return 1;
  const bool windows = batches != old_batch;
  return windows && batch % 2 == 0 ? 2 : batch;
}

ScoreOperand resized_scores(const AttentionProblem& p, const AttentionProblem& to,
                            const ScoreOperand& old) {
  ScoreOperand result = old;
  result.batches = resized_batches(old.batches, p.batch, to.batch);
  const std::array<std::int64_t, 4> extents = {result.batches, to.heads, to.nq, to.nk};
  std::int64_t span = 1;
  for (std::size_t i = 4; i-- > 0;) {
    const std::int64_t stride = old.strides[i];
    if (stride == 0) continue;
    // Strided keys keep their stride: the kernel reads them one by one.
    result.strides[i] = i == 3 ? stride : aligned_like(span, stride);
    span = std::max(span, product(result.strides[i], extents[i]));
  }
  return result;
}

// More keys than the config was made for may be more than it can hold.
bool holds_more_keys(const AttentionProblem& edge, const Config& config, const DeviceInfo& device) {
  try {
    return !attention_space(edge, device).explain(config).has_value();
  } catch (const Error&) {
    return false;  // the edge is outside the kernels' reach
  }
}

// True if `edge` is served by the kernel of `source`, which was made for (`problem`, `config`).
bool same_kernel(const AttentionProblem& problem, const AttentionProblem& edge,
                 const Config& config, const std::string& source, const DeviceInfo& device) {
  try {
    edge.validate();
    if (attention_source(edge, config) != source) return false;
    return edge.nk <= problem.nk || holds_more_keys(edge, config, device);
  } catch (const Error&) {
    return false;  // the edge is outside the kernels' reach
  }
}

}  // namespace

AttentionProblem resized(const AttentionProblem& problem, const Extents& extents) {
  const AttentionProblem p = problem.canonical();
  AttentionProblem to = p;
  to.batch = extents.batch;
  to.kv_heads = extents.kv_heads;
  to.heads = p.heads / p.kv_heads * extents.kv_heads;
  to.nq = extents.nq;
  to.nk = extents.nk;
  to.q = resized_tensor(p, to, p.q, true);
  to.k = resized_tensor(p, to, p.k, false);
  to.v = resized_tensor(p, to, p.v, false);
  to.o = resized_tensor(p, to, p.o, true);
  if (p.bias) to.bias = resized_scores(p, to, *p.bias);
  if (p.mask) to.mask = resized_scores(p, to, *p.mask);
  return to.canonical();
}

std::vector<Extents> edge_extents(const AttentionProblem& p, bool constant_keys) {
  const std::int64_t few = std::min<std::int64_t>(p.kv_heads, 3);
  const std::int64_t rows = p.nq <= 300 ? p.nq : 129;
  std::vector<Extents> edges = {{1, 1, 1, p.nk}, {3, 1, 17, p.nk}, {4, few, rows, p.nk}};
  if (constant_keys) return edges;
  std::int64_t batch = 1;
  for (const std::int64_t nk :
       {std::int64_t{1}, std::int64_t{16}, std::int64_t{63}, p.nk - 7, p.nk + 1}) {
    if (nk < 1 || nk == p.nk) continue;
    edges.push_back({batch, few, 65, nk});
    batch = batch % 4 + 1;
  }
  return edges;
}

std::vector<AttentionProblem> edge_problems(const AttentionProblem& problem, const Config& config,
                                            const DeviceInfo& device) {
  const std::string source = attention_source(problem, config);
  std::vector<AttentionProblem> edges;
  for (const Extents& extents : edge_extents(problem, attention_keys_are_constant(config))) {
    AttentionProblem edge = resized(problem, extents);
    const bool known =
        edge == problem || std::find(edges.begin(), edges.end(), edge) != edges.end();
    if (!known && same_kernel(problem, edge, config, source, device))
      edges.push_back(std::move(edge));
  }
  std::stable_sort(edges.begin(), edges.end(),
                   [](const auto& a, const auto& b) { return a.flops() < b.flops(); });
  return edges;
}

std::int64_t edge_class(const AttentionProblem& problem, const Config& config,
                        const DeviceInfo& device) {
  if (attention_keys_are_constant(config)) return 0;
  std::int64_t held = 1;  // and a bit for each edge of more keys
  for (const Extents& extents : edge_extents(problem, false)) {
    if (extents.nk <= problem.nk) continue;
    held = 2 * held + (holds_more_keys(resized(problem, extents), config, device) ? 1 : 0);
  }
  return held;
}

}  // namespace vitune
