// generator/attention/tensor_maps.cpp -- How the tensor memory accelerator is told of tensors.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/tensor_maps.h"

#include <cstddef>
#include <cstdint>

#include "core/checked.h"
#include "generator/attention/facts.h"
#include "generator/attention/operator.h"

namespace vitune {
namespace {

constexpr std::int64_t kElementBytes = 2;  // of fp16 and bf16, which are moved alike

struct Extents {
  std::int64_t rows, heads, batch;
};

// As box_rows() in templates/attention/config_sm90_pipelined.cuh.
std::int64_t box_rows(std::int64_t rows) {
  std::int64_t boxes = ceil_div(rows, 256);
  while (rows % (8 * boxes) != 0) ++boxes;
  return rows / boxes;
}

bool strides_fit(const TensorStrides& strides, const Extents& extents) {
  const auto fits = [](std::int64_t extent, std::int64_t stride) {
    return extent == 1 || (stride > 0 && stride * kElementBytes < (std::int64_t{1} << 40));
  };
  return fits(extents.rows, strides.row) && fits(extents.heads, strides.head) &&
         fits(extents.batch, strides.batch);
}

// Copying warps bring a bias of 16 bits whose keys are contiguous (bias_producer_sm90.cuh).
bool bias_fits(const AttentionProblem& problem) {
  if (!problem.bias) return true;
  const AttentionFacts facts = attention_facts(problem);
  return problem.bias->type != ElementType::kFp32 && facts.bias_vector > 0 &&
         (!facts.bias_one_row || facts.bias_whole_rows);
}

}  // namespace

bool tensor_maps_fit(const AttentionProblem& problem) {
  if (problem.mask || problem.vector_bytes() != 16 || !bias_fits(problem)) return false;
  return strides_fit(problem.q, {problem.nq, problem.heads, problem.batch}) &&
         strides_fit(problem.k, {problem.nk, problem.kv_heads, problem.batch}) &&
         strides_fit(problem.v, {problem.nk, problem.kv_heads, problem.batch});
}

std::vector<TensorMapSlot> attention_maps(const AttentionProblem& problem, const Config& config) {
  if (!reads_tensor_maps(config)) return {};
  const AttentionShape shape(problem, config);
  const auto of_rows = [&](AttentionTensor tensor, std::size_t at, const TensorStrides& strides,
                           const Extents& extents, std::int64_t tile_rows) {
    return TensorMapSlot{.tensor = tensor,
                         .at = static_cast<std::uint32_t>(at),
                         .sizes = {problem.d, extents.rows, extents.heads, extents.batch},
                         .strides = {strides.row, strides.head, strides.batch},
                         .columns = shape.swizzle / kElementBytes,
                         .rows = box_rows(tile_rows),
                         .swizzle = shape.swizzle};
  };
  const Extents queries{problem.nq, problem.heads, problem.batch};
  const Extents keys{problem.nk, problem.kv_heads, problem.batch};
  std::vector<TensorMapSlot> maps = {
      of_rows(kTensorQ, offsetof(AttentionTensorMaps, q), problem.q, queries, kGroupRows),
      of_rows(kTensorK, offsetof(AttentionTensorMaps, k), problem.k, keys, shape.key_rows()),
      of_rows(kTensorV, offsetof(AttentionTensorMaps, v), problem.v, keys, shape.value_rows())};
  if (!shape.bias_boxes()) return maps;
  // All heads, or batches, of a bias that is broadcast over them are one.
  const auto& [batch, head, row, key] = problem.bias->strides;
  maps.push_back({.tensor = kTensorBias,
                  .at = offsetof(AttentionTensorMaps, bias),
                  .sizes = {problem.nk, problem.nq, head != 0 ? problem.heads : 1,
                            batch != 0 ? problem.bias->batches : 1},
                  .strides = {row, head, batch},
                  .columns = shape.bias_box_keys(),
                  .rows = shape.bias_box_rows()});
  return maps;
}

bool reads_tensor_maps(const Config& config) { return config.find("kProducer").value_or(0) == 2; }

}  // namespace vitune
