// generator/attention_backward/tensor_maps.cpp -- Tensor maps of q, k, v, dout and out.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention_backward/tensor_maps.h"

#include <cstddef>
#include <cstdint>

#include "core/format.h"
#include "generator/attention_backward/kernel_spec.h"
#include "templates/attention_backward/sm90_params.cuh"

namespace vitune {
namespace {

constexpr std::int64_t kElementBytes = 2;

struct PassExtents {
  std::int64_t rows, heads, batch;
};

PassExtents of_queries(const AttentionProblem& f) { return {f.nq, f.heads, f.batch}; }
PassExtents of_keys(const AttentionProblem& f) { return {f.nk, f.kv_heads, f.batch}; }

bool strides_fit(const TensorStrides& strides, const PassExtents& extents) {
  const auto fits = [](std::int64_t extent, std::int64_t stride) {
    return extent == 1 || (stride > 0 && stride < (std::int64_t{1} << 40) / kElementBytes);
  };
  return fits(extents.rows, strides.row) && fits(extents.heads, strides.head) &&
         fits(extents.batch, strides.batch);
}

}  // namespace

std::optional<std::string> attention_backward_maps_refusal(const AttentionBackwardProblem& p) {
  const AttentionProblem& f = p.forward;
  if (p.vector_bytes() != 16) {
    return formatted("tensor maps need 16-byte alignment, not {}", p.vector_bytes());
  }
  const PassExtents queries = of_queries(f), keys = of_keys(f);
  if (strides_fit(f.q, queries) && strides_fit(p.dout, queries) && strides_fit(f.o, queries) &&
      strides_fit(f.k, keys) && strides_fit(f.v, keys)) {
    return std::nullopt;
  }
  return "tensor maps need strides that are not 0 and below 2^40 bytes";
}

std::vector<TensorMapSlot> attention_backward_maps(const AttentionBackwardProblem& p,
                                                   const BackwardBoxes& boxes) {
  const AttentionProblem& f = p.forward;
  const auto slot = [&](AttentionBackwardTensor tensor, std::size_t at,
                        const TensorStrides& strides, const PassExtents& extents, int rows) {
    return TensorMapSlot{.tensor = tensor,
                         .at = static_cast<std::uint32_t>(at),
                         .sizes = {f.d, extents.rows, extents.heads, extents.batch},
                         .strides = {strides.row, strides.head, strides.batch},
                         .columns = boxes.swizzle / kElementBytes,
                         .rows = rows,
                         .swizzle = boxes.swizzle};
  };
  using Maps = AttentionBackwardTensorMaps;
  const PassExtents queries = of_queries(f), keys = of_keys(f);
  std::vector<TensorMapSlot> maps = {
      slot(kAttentionBackwardQ, offsetof(Maps, q), f.q, queries, boxes.query_rows),
      slot(kAttentionBackwardK, offsetof(Maps, k), f.k, keys, boxes.key_rows),
      slot(kAttentionBackwardV, offsetof(Maps, v), f.v, keys, boxes.key_rows),
      slot(kAttentionBackwardDout, offsetof(Maps, dout), p.dout, queries, boxes.query_rows)};
  if (boxes.has_out) {
    maps.push_back(
        slot(kAttentionBackwardOut, offsetof(Maps, out), f.o, queries, boxes.query_rows));
  }
  return maps;
}

}  // namespace vitune
