// generator/attention/tensor_maps.cpp -- How the tensor memory accelerator is told of tensors.
#include "generator/attention/tensor_maps.h"

#include <cstddef>
#include <cstdint>

#include "core/checked.h"
#include "core/cuda_driver_api.h"
#include "core/format.h"
#include "generator/attention/facts.h"
#include "generator/attention/operator.h"

namespace vitune {
namespace {

constexpr std::uint32_t kRank = 4;           // d, rows, heads, batches
constexpr std::int64_t kElementBytes = 2;    // of fp16 and bf16, which are moved alike
constexpr std::uintptr_t kNoAddress = 4096;  // of a tensor to come; only its alignment counts
constexpr CuResult kInvalidValue = 1, kNotSupported = 801;

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

// Copying warps bring a bias of 16 bits whose keys are contiguous (bias_copies.cuh).
bool bias_fits(const AttentionProblem& problem) {
  if (!problem.bias) return true;
  const AttentionFacts facts = attention_facts(problem);
  return problem.bias->type != ElementType::kFp32 && facts.bias_vector > 0 &&
         (!facts.bias_one_row || facts.bias_whole_rows);
}

int swizzle_code(std::int64_t bytes) {
  if (bytes == 0) return kCuTensorMapSwizzleNone;
  if (bytes == 128) return kCuTensorMapSwizzle128;
  return bytes == 64 ? kCuTensorMapSwizzle64 : kCuTensorMapSwizzle32;
}

CuTensorMap* as_map(unsigned char (&bytes)[sizeof(CuTensorMap)]) {
  return reinterpret_cast<CuTensorMap*>(bytes);
}

// A tensor of 16-bit elements, its innermost dimension contiguous: {d or keys, rows, heads,
// batches}.
struct MappedTensor {
  const void* address;
  std::int64_t sizes[kRank];
  std::int64_t strides[kRank - 1];  // in elements, of the dimensions after the first
};

// `advice` is for values that the driver refuses; other failures are not of the call.
void check_map(const CudaDriver& driver, CuResult result, const char* call, const char* advice) {
  try {
    driver.check(result, call);
  } catch (const CudaError& error) {
    if (result != kInvalidValue) throw;
    throw CudaError(result, formatted("{}; {}", error.what(), advice));
  }
}

// `swizzle` is in bytes, 0 for none; a box has `columns` x `rows` elements.
void encode(const CudaDriver& driver, unsigned char (&map)[sizeof(CuTensorMap)],
            const MappedTensor& tensor, std::int64_t swizzle, std::int64_t columns,
            std::int64_t rows) {
  std::uint64_t sizes[kRank], strides[kRank - 1];
  for (std::uint32_t i = 0; i < kRank; ++i) {
    sizes[i] = static_cast<std::uint64_t>(tensor.sizes[i]);
    if (i == 0) continue;
    // Where there is only one of something its stride says nothing.
    const std::int64_t bytes = sizes[i] == 1 ? 16 : tensor.strides[i - 1] * kElementBytes;
    strides[i - 1] = static_cast<std::uint64_t>(bytes);
  }
  const std::uint32_t box[kRank] = {static_cast<std::uint32_t>(columns),
                                    static_cast<std::uint32_t>(rows), 1, 1};
  const std::uint32_t every[kRank] = {1, 1, 1, 1};
  void* const at = tensor.address != nullptr ? const_cast<void*>(tensor.address)
                                             : reinterpret_cast<void*>(kNoAddress);
  const CuResult result = driver.api().tensor_map_encode_tiled(
      as_map(map), kCuTensorMapFloat16, kRank, at, sizes, strides, box, every,
      kCuTensorMapInterleaveNone, swizzle_code(swizzle), kCuTensorMapL2Promotion128,
      kCuTensorMapFillZeros);
  check_map(driver, result, "cuTensorMapEncodeTiled",
            "the driver does not take this problem's sizes and strides for a kernel that copies by "
            "tensor maps: tune the problem again with this driver");
}

MappedTensor mapped(const void* address, std::int64_t d, const AttentionView& view,
                    const Extents& extents) {
  return {
      address, {d, extents.rows, extents.heads, extents.batch}, {view.row, view.head, view.batch}};
}

// All heads, or batches, of a bias that is broadcast over them are one.
MappedTensor mapped_bias(const AttentionProblem& problem, const AttentionParams& params) {
  const AttentionScoreView& view = params.bias_view;
  const std::int64_t heads = view.head != 0 ? problem.heads : 1;
  const std::int64_t batches = view.batch != 0 ? view.batches : 1;
  return {params.bias, {problem.nk, problem.nq, heads, batches}, {view.row, view.head, view.batch}};
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

bool reads_bias_map(const AttentionProblem& problem, const Config& config) {
  return AttentionShape(problem, config).bias_boxes();
}

std::optional<std::string> driver_lacks_maps(const CudaDriver& driver, const Config& config) {
  const DriverApi& api = driver.api();
  const bool has_maps =
      api.tensor_map_encode_tiled != nullptr && api.tensor_map_replace_address != nullptr;
  if (has_maps || !reads_tensor_maps(config)) return std::nullopt;
  const int version = driver.version();
  return formatted(
      "it copies by tensor maps, which the driver (CUDA {}.{}) does not have; install one for CUDA "
      "12.0 or newer",
      version / 1000, version % 1000 / 10);
}

AttentionTensorMaps encode_tensor_maps(const CudaDriver& driver, const AttentionProblem& problem,
                                       const Config& config, const AttentionParams& params) {
  AttentionTensorMaps maps{};
  if (!reads_tensor_maps(config)) return maps;
  if (const auto lack = driver_lacks_maps(driver, config)) {
    throw CudaError(kNotSupported, "the kernel cannot be launched: " + *lack);
  }
  const AttentionShape shape(problem, config);
  const Extents queries{problem.nq, problem.heads, problem.batch};
  const Extents keys{problem.nk, problem.kv_heads, problem.batch};
  const auto rows_of = [&](unsigned char(&map)[sizeof(CuTensorMap)], const MappedTensor& tensor,
                           std::int64_t tile_rows) {
    encode(driver, map, tensor, shape.swizzle, shape.swizzle / kElementBytes, box_rows(tile_rows));
  };
  rows_of(maps.q, mapped(params.q, problem.d, params.q_view, queries), kGroupRows);
  rows_of(maps.k, mapped(params.k, problem.d, params.k_view, keys), shape.key_rows());
  rows_of(maps.v, mapped(params.v, problem.d, params.v_view, keys), shape.value_rows());
  if (shape.bias_boxes()) {
    encode(driver, maps.bias, mapped_bias(problem, params), 0, shape.bias_box_keys(),
           shape.bias_box_rows());
  }
  return maps;
}

CuResult replace_addresses(const CudaDriver& driver, const AttentionParams& params, bool bias,
                           AttentionTensorMaps& maps) noexcept {
  const auto replace = driver.api().tensor_map_replace_address;
  if (const CuResult q = replace(as_map(maps.q), const_cast<void*>(params.q))) return q;
  if (const CuResult k = replace(as_map(maps.k), const_cast<void*>(params.k))) return k;
  if (const CuResult v = replace(as_map(maps.v), const_cast<void*>(params.v))) return v;
  return bias ? replace(as_map(maps.bias), const_cast<void*>(params.bias)) : kCuSuccess;
}

void check_replaced_addresses(const CudaDriver& driver, CuResult result) {
  check_map(driver, result, "cuTensorMapReplaceAddress",
            "look whether q, k, v and the bias of this call are in the device's memory, at "
            "multiples of 16 bytes");
}

}  // namespace vitune
