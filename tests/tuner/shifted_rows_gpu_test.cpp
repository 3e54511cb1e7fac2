// tests/tuner/shifted_rows_gpu_test.cpp -- Bias and mask rows that are not aligned: each value
// reaches the thread that owns its key, and nothing outside the tensor is read.
//
// A kernel of one warp reads rows step by step as the attention kernels do and writes down what
// each thread got. The tensor fills its allocation to the last byte, so on the emulated device a
// read beyond it is a fault; what lies between rows is poison.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/cuda_driver.h"
#include "core/env.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/attention/kernel_spec.h"
#include "generator/compiler.h"
#include "generator/source.h"
#include "templates/attention/params.cuh"

namespace vitune::shifted_rows_gpu_test {
namespace {

constexpr int kRows = 16;  // of one warp
constexpr float kNotThere = -1.f;
constexpr int kMaskType = 0, kFp16 = 2, kBf16 = 3;  // kBias, 0 stands for a mask

// `items` of the launch is the layout: what of a kernel is a constant there. Key counts are those
// of KeyTiles; kWhole: the last step has the full width, as in the streaming warpgroup kernels.
constexpr char kKernel[] = R"(
#include "attention/scores.cuh"
namespace vitune {
template <int kCount, int kWidth, int kType, bool kHeld>
struct Layout {
  static constexpr int kKeys = kCount, kBlockN = kWidth;
  static constexpr int kBias = kType, kBiasVector = 1, kMaskVector = 1;
  static constexpr int kRowTiles = 1, kBiasInRegisters = kHeld;
  static constexpr bool kPermuted = true;
  using Keys = KeyTiles<Layout>;
};
// Reads a step's keys into scores that were 0; where a mask has said no they are minus infinity.
template <class T, int kWidth, bool kTail>
__device__ void read_scores(const AttentionParams& p, const RowPlace& place, int key0, int limit,
                            float (&s)[1][T::kBlockN / 8][4]) {
  if constexpr (T::kBias == 0) {
    ScoreRows<T, unsigned char> rows;
    rows.init(p.bias, p.bias_view, p.by_bias_batches, place, p.queries);
    MaskTile<T, T::kBlockN> tile;
    tile.template load<kWidth, kTail>(rows, key0, limit, place.t);
    tile.template settle<kWidth, kTail>(rows, limit, place.t);
    tile.template apply<kWidth>(s);
  } else {
    ScoreRows<T, u16> rows;
    rows.init(p.bias, p.bias_view, p.by_bias_batches, place, p.queries);
    BiasTile<T, T::kBlockN> tile;
    tile.template load<kWidth, kTail>(rows, key0, limit, place.t);
    tile.template settle<kWidth, kTail>(rows, limit, place.t);
    tile.template add<kWidth>(s, 1.f);
  }
}
template <class T, int kWidth, bool kTail>
__device__ void read_step(const AttentionParams& p, int key0, int limit) {
  const int lane = threadIdx.x;
  const RowPlace place{0, lane / 4, lane % 4, 0, 0};
  float s[1][T::kBlockN / 8][4] = {};
  read_scores<T, kWidth, kTail>(p, place, key0, limit, s);
  for (int j = 0; j < kWidth / 8; ++j) {
    for (int i = 0; i < 4; ++i) {
      const int row = place.g + 8 * (i / 2);
      const int key = key0 + key_of<T, kWidth / 8>(j, place.t, i % 2);
      if (row < p.queries && key < p.keys) p.lse[row * p.keys + key] = s[0][j][i];
    }
  }
}
template <int kCount, int kWidth, int kType, bool kHeld, bool kWhole>
__device__ void read_rows(const AttentionParams& p) {
  using T = Layout<kCount, kWidth, kType, kHeld>;
  for (int key0 = 0; key0 < p.keys; key0 += kWidth) {
    const int limit = p.keys - key0;
    if (limit < kWidth && !kWhole) {
      read_step<T, T::Keys::kTailWidth, true>(p, key0, limit);
    } else if (limit < kWidth || kHeld) {
      read_step<T, kWidth, true>(p, key0, limit);  // also as on a diagonal: checked but whole
    } else {
      read_step<T, kWidth, false>(p, key0, limit);
    }
  }
}
}  // namespace vitune
extern "C" __global__ void read_rows(const __grid_constant__ vitune::AttentionParams p) {
  switch (p.items) {
#define VITUNE_CASE(index, ...) case index: return vitune::read_rows<__VA_ARGS__>(p);
VITUNE_CASES
  }
}
)";

// keys == 0: the count is an argument.
struct Layout {
  int keys, width, type;
  bool held, whole;
};
constexpr Layout kLayouts[] = {
    {0, 8, kBf16, false, false},         {0, 16, kBf16, false, false},
    {0, 24, kBf16, false, false},        {0, 56, kFp16, true, false},
    {0, 64, kBf16, false, false},        {1, 32, kBf16, false, false},
    {7, 8, kBf16, false, false},         {16, 16, kFp16, false, false},
    {17, 24, kBf16, true, false},        {31, 32, kBf16, false, false},
    {33, 48, kFp16, false, true},        {49, 56, kBf16, false, false},
    {49, 56, kBf16, true, false},        {63, 64, kBf16, false, false},
    {64, 64, kFp16, false, false},       {65, 64, kFp16, false, true},
    {95, 64, kBf16, false, false},       {95, 64, kFp16, true, true},
    {197, 72, kBf16, false, false},      {197, 200, kFp16, false, false},
    {197, 112, kBf16, false, true},      {577, 96, kBf16, false, true},
    {0, 8, kMaskType, false, false},     {0, 24, kMaskType, false, false},
    {0, 64, kMaskType, true, false},     {1, 32, kMaskType, false, false},
    {49, 56, kMaskType, false, false},   {64, 64, kMaskType, false, false},
    {65, 64, kMaskType, false, true},    {95, 64, kMaskType, true, false},
    {197, 200, kMaskType, false, false}, {577, 96, kMaskType, false, true},
};

std::string kernel_text() {
  std::string cases = "#define VITUNE_CASES";
  for (std::size_t i = 0; i < std::size(kLayouts); ++i) {
    const Layout& layout = kLayouts[i];
    cases += formatted(" VITUNE_CASE({}, {}, {}, {}, {}, {})", i, layout.keys, layout.width,
                       layout.type, layout.held, layout.whole);
  }
  return cases + "\n" + kKernel;
}

// Rows that start `base` elements after an aligned address.
struct Tensor {
  int rows, keys, row_stride, base, type;
};

class ShiftedRowsGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      driver_ = CudaDriver::open();
      context_ = std::make_unique<CudaContext>(driver_, 0);
      stream_ = std::make_unique<CudaStream>(*driver_);
      CompileRequest request;
      request.source = assemble(kernel_text());
      request.arch = driver_->device_info(0).arch();
      request.entry = "read_rows";
      const CompileResult compiled = Compiler::open(read_environment())->compile(request);
      ASSERT_EQ(compiled.status, CompileStatus::kOk) << compiled.log;
      kernel_ = std::make_unique<CudaKernel>(*driver_, compiled.cubin, request.entry);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  // The score that each key of each row got.
  std::vector<float> read(const std::vector<std::uint8_t>& bytes, const Tensor& tensor,
                          std::size_t layout) {
    DeviceBuffer operand(*driver_, bytes.size());
    operand.upload(std::as_bytes(std::span(bytes)));
    std::vector<float> got(static_cast<std::size_t>(tensor.rows * tensor.keys), kNotThere);
    DeviceBuffer out(*driver_, got.size() * sizeof(float));
    out.upload(std::as_bytes(std::span(got)));
    const auto start = static_cast<CuPointer>(tensor.base * (tensor.type == kMaskType ? 1 : 2));
    AttentionParams params{};
    params.bias = reinterpret_cast<const void*>(operand.address() + start);
    params.bias_view = {0, 0, tensor.row_stride, 1, 1};
    params.by_bias_batches = attention_divisor(1);
    params.lse = reinterpret_cast<float*>(out.address());
    params.queries = tensor.rows;
    params.keys = tensor.keys;
    params.items = static_cast<int>(layout);
    kernel_->launch({.block = {32, 1, 1}}, &params, *stream_);
    stream_->synchronize();
    out.download(std::as_writable_bytes(std::span(got)));
    return got;
  }

  std::shared_ptr<const CudaDriver> driver_;
  std::unique_ptr<CudaContext> context_;
  std::unique_ptr<CudaStream> stream_;
  std::unique_ptr<CudaKernel> kernel_;
};

// Small numbers that both 16-bit types hold exactly; of a mask, whether there is a key.
int value_of(int row, int key, const Tensor& tensor) {
  const int value = tensor.row_stride == 0 ? key * 7 % 251 : (row * 61 + key * 7) % 251;
  return tensor.type == kMaskType ? value % 3 % 2 : value;
}
unsigned bits_of(int value, int type) {
  if (type == kMaskType) return static_cast<unsigned>(value);
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (type == kBf16) return bits >> 16;
  return value == 0 ? 0 : (bits >> 13) - ((127 - 15) << 10);  // exponents of fp16 and fp32
}

// The tensor as bytes, all of them 0xff outside its rows: NaN, or a key to attend to.
std::vector<std::uint8_t> bytes_of(const Tensor& tensor) {
  const int size = tensor.type == kMaskType ? 1 : 2;
  const int end = tensor.base + (tensor.rows - 1) * tensor.row_stride + tensor.keys;
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(end * size), 0xff);
  for (int row = 0; row < tensor.rows; ++row) {
    for (int key = 0; key < tensor.keys; ++key) {
      const unsigned bits = bits_of(value_of(row, key, tensor), tensor.type);
      const int at = (tensor.base + row * tensor.row_stride + key) * size;
      for (int i = 0; i < size; ++i)
        bytes[static_cast<std::size_t>(at + i)] = static_cast<std::uint8_t>(bits >> 8 * i);
    }
  }
  return bytes;
}

// The first key that did not arrive, or nothing.
std::string first_difference(const std::vector<float>& got, const Tensor& tensor) {
  for (int row = 0; row < tensor.rows; ++row) {
    for (int key = 0; key < tensor.keys; ++key) {
      const float score = got[static_cast<std::size_t>(row * tensor.keys + key)];
      const int expected = value_of(row, key, tensor);
      const bool arrived = tensor.type == kMaskType ? score == (expected ? 0.f : -HUGE_VALF)
                                                    : score == static_cast<float>(expected);
      if (arrived) continue;
      return "row " + std::to_string(row) + " key " + std::to_string(key) + ": a score of " +
             std::to_string(score) + " for " + std::to_string(expected);
    }
  }
  return {};
}

// The count of a layout or, where it is an argument, many up to several steps.
std::vector<int> key_counts(const Layout& layout, std::mt19937& random) {
  if (layout.keys > 0) return {layout.keys};
  std::vector<int> counts = {layout.width};
  for (int keys = 1; keys <= 2 * layout.width + 3; keys += 1 + static_cast<int>(random() % 3))
    counts.push_back(keys);
  return counts;
}

TEST_F(ShiftedRowsGpuTest, EveryKeyArrivesForEveryPhaseAndNothingElseIsRead) {
  std::mt19937 random(20261120);
  const auto below = [&](int end) { return static_cast<int>(random() % unsigned(end)); };
  for (std::size_t i = 0; i < std::size(kLayouts); ++i) {
    for (const int keys : key_counts(kLayouts[i], random)) {
      // Odd strides go through all phases, multiples of four stay in one, 0 is a broadcast row.
      for (const int stride : {keys | 1, (keys | 1) + 2, (keys + 3) / 4 * 4, keys, 0}) {
        const Tensor tensor{1 + below(kRows), keys, stride, below(4), kLayouts[i].type};
        ASSERT_EQ(first_difference(read(bytes_of(tensor), tensor, i), tensor), "")
            << "layout " << i << ": " << keys << " keys in steps of " << kLayouts[i].width << ", "
            << tensor.rows << " rows, stride " << stride << ", base " << tensor.base;
      }
    }
  }
}

}  // namespace
}  // namespace vitune::shifted_rows_gpu_test
