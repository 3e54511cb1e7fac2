// generator/attention/tensor_maps.cpp -- How the tensor memory accelerator is told of q, k and v.
#include "generator/attention/tensor_maps.h"

#include <cstdint>

#include "core/checked.h"
#include "core/cuda_driver_api.h"
#include "generator/attention/facts.h"

namespace vitune {
namespace {

constexpr std::uint32_t kRank = 4;           // d, rows, heads, batches
constexpr std::int64_t kElementBytes = 2;    // of fp16 and bf16, which are moved alike
constexpr std::uintptr_t kNoAddress = 4096;  // of a tensor to come; only its alignment counts

static_assert(sizeof(AttentionTensorMaps::q) == sizeof(CuTensorMap));

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

// Copying warps bring a bias of 16 bits whose keys are contiguous (bias_tiles.cuh).
bool bias_fits(const AttentionProblem& problem) {
  if (!problem.bias) return true;
  const AttentionFacts facts = attention_facts(problem);
  return problem.bias->type != ElementType::kFp32 && facts.bias_vector > 0 &&
         (!facts.bias_one_row || facts.bias_whole_rows);
}

int swizzle_code(std::int64_t bytes) {
  if (bytes == 128) return kCuTensorMapSwizzle128;
  return bytes == 64 ? kCuTensorMapSwizzle64 : kCuTensorMapSwizzle32;
}

CuTensorMap* as_map(unsigned char (&bytes)[sizeof(CuTensorMap)]) {
  return reinterpret_cast<CuTensorMap*>(bytes);
}

void encode(const CudaDriver& driver, unsigned char (&map)[sizeof(CuTensorMap)],
            const void* address, const AttentionShape& shape, const AttentionView& view,
            const Extents& extents, std::int64_t tile_rows) {
  // Where there is only one of something its stride says nothing.
  const auto bytes = [](std::int64_t extent, std::int64_t stride) {
    return static_cast<std::uint64_t>(extent == 1 ? 16 : stride * kElementBytes);
  };
  const auto count = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const std::uint64_t sizes[kRank] = {count(shape.head_dim), count(extents.rows),
                                      count(extents.heads), count(extents.batch)};
  const std::uint64_t strides[kRank - 1] = {bytes(extents.rows, view.row),
                                            bytes(extents.heads, view.head),
                                            bytes(extents.batch, view.batch)};
  const std::uint32_t box[kRank] = {static_cast<std::uint32_t>(shape.swizzle / kElementBytes),
                                    static_cast<std::uint32_t>(box_rows(tile_rows)), 1, 1};
  const std::uint32_t every[kRank] = {1, 1, 1, 1};
  void* const at =
      address != nullptr ? const_cast<void*>(address) : reinterpret_cast<void*>(kNoAddress);
  driver.check(driver.api().tensor_map_encode_tiled(
                   as_map(map), kCuTensorMapFloat16, kRank, at, sizes, strides, box, every,
                   kCuTensorMapInterleaveNone, swizzle_code(shape.swizzle),
                   kCuTensorMapL2Promotion128, kCuTensorMapFillZeros),
               "cuTensorMapEncodeTiled");
}

}  // namespace

bool tensor_maps_fit(const AttentionProblem& problem) {
  if (problem.mask || problem.vector_bytes() != 16 || !bias_fits(problem)) return false;
  return strides_fit(problem.q, {problem.nq, problem.heads, problem.batch}) &&
         strides_fit(problem.k, {problem.nk, problem.kv_heads, problem.batch}) &&
         strides_fit(problem.v, {problem.nk, problem.kv_heads, problem.batch});
}

bool reads_tensor_maps(const Config& config) { return config.find("kProducer").value_or(0) == 2; }

AttentionTensorMaps encode_tensor_maps(const CudaDriver& driver, const AttentionProblem& problem,
                                       const Config& config, const AttentionParams& params) {
  AttentionTensorMaps maps{};
  if (!reads_tensor_maps(config)) return maps;
  const AttentionShape shape(problem, config);
  const Extents queries{problem.nq, problem.heads, problem.batch};
  const Extents keys{problem.nk, problem.kv_heads, problem.batch};
  encode(driver, maps.q, params.q, shape, params.q_view, queries, kGroupRows);
  encode(driver, maps.k, params.k, shape, params.k_view, keys, shape.key_rows());
  encode(driver, maps.v, params.v, shape, params.v_view, keys, shape.value_rows());
  return maps;
}

CuResult replace_addresses(const CudaDriver& driver, const AttentionParams& params,
                           AttentionTensorMaps& maps) noexcept {
  const auto replace = driver.api().tensor_map_replace_address;
  if (const CuResult q = replace(as_map(maps.q), const_cast<void*>(params.q))) return q;
  if (const CuResult k = replace(as_map(maps.k), const_cast<void*>(params.k))) return k;
  return replace(as_map(maps.v), const_cast<void*>(params.v));
}

}  // namespace vitune
