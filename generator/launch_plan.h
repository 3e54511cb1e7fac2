// generator/launch_plan.h -- All that one call does, its pointers left open.
//
// The only launch recipe: the judge, the timer, the runtime and the benchmarks run the plan of
// (problem, config) on kernels that were loaded for it (generator/prepared_plan.h), so what was
// measured is what runs. Plain values; making one asks no driver.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/cuda_driver.h"
#include "generator/element_type.h"

namespace vitune {

// Bytes that parts of scratch memory begin at multiples of.
inline constexpr std::int64_t kScratchUnit = 256;

// Where an address goes: the tensors of the call come first, by their place in
// Operator::tensors(); then, in plans of the judge, the answers to them: dense fp32, the one to
// tensor i at place i + the number of tensors.
struct PointerSlot {
  static constexpr int kScratch = -1;  // the call's scratch memory
  int tensor = 0;
  std::uint32_t at = 0;     // byte of the parameters that it begins at
  std::int64_t offset = 0;  // bytes after the tensor's, or the scratch memory's, first
};

// A tensor of 16-bit elements as the tensor memory accelerator sees it (CUDA driver API, "Tensor
// Map Object Management"), its innermost dimension contiguous.
struct TensorMapSlot {
  static constexpr std::uint32_t kRank = 4;
  std::uint32_t rank = kRank;            // dimensions, 2 to 4
  int tensor = 0;                        // or PointerSlot::kScratch
  std::uint32_t at = 0;                  // byte of the maps that it begins at
  std::int64_t sizes[kRank] = {};        // innermost first
  std::int64_t strides[kRank - 1] = {};  // in elements, of the dimensions after the first
  std::int64_t columns = 0, rows = 0;    // elements of a box: along the first, the second dimension
  std::int64_t swizzle = 0;              // bytes; 0 for none
  std::int64_t offset = 0;               // as PointerSlot's; a multiple of 16
};

// One kernel of a plan.
struct KernelLaunch {
  std::size_t kernel = 0;  // by its place in Operator::kernels()
  LaunchShape shape;
  std::vector<std::byte> params;  // the kernel's first parameter, all pointers null
  std::vector<PointerSlot> pointers;
  std::size_t map_bytes = 0;        // of its second parameter; 0: it has none
  std::vector<TensorMapSlot> maps;  // in there; what lies between them is zero
};

// A matrix as cuBLASLt sees it: its element (row, column) lies `row + column * stride` elements
// after the first.
struct MatrixSlot {
  int tensor = 0;           // or PointerSlot::kScratch
  std::int64_t offset = 0;  // as PointerSlot's
  ElementType type = ElementType::kBf16;
  std::int64_t rows = 0, columns = 0, stride = 0;
  std::int64_t alignment = 16;  // least, of its address, in bytes
};

// One of the library's algorithms for a product, as the library itself writes it down: its words
// mean nothing to another version.
struct MatmulAlgorithm {
  std::int64_t version = 0;  // cublasLtGetVersion()
  std::array<std::int64_t, 8> words = {};
  std::int64_t workspace_bytes = 0;
};

// One product of a plan, by cuBLASLt: d = activation(op(a) op(b) + c + bias), in fp32, rounded
// once.
struct MatmulCall {
  enum class Activation { kNone, kRelu, kGeluTanh };
  std::size_t before = 0;  // runs ahead of the plan's kernel at this place; their number: last
  MatrixSlot a, b, d;
  bool transpose_a = false, transpose_b = false;
  std::optional<MatrixSlot> c;     // of d's type
  std::optional<MatrixSlot> bias;  // one column, a value for each row of d; of d's type
  // Written, where there is neither a bias nor an activation: the sum of each column of op(b), one
  // for each column of d; one column of d's type.
  std::optional<MatrixSlot> b_sums;
  Activation activation = Activation::kNone;
  MatmulAlgorithm algorithm;
  std::int64_t workspace_at = 0;  // byte of the scratch memory, a multiple of 256
};

struct LaunchPlan {
  std::vector<KernelLaunch> kernels;  // one after the other on the call's stream
  std::vector<MatmulCall> matmuls;    // between them, in the order of their `before`
  // Device memory that they share, aligned to 256 bytes; nothing is asked of what it holds before,
  // and nothing left in it is read by a later call.
  std::int64_t scratch_bytes = 0;
};

// Where a part's tensor lies in the call: that of this place, or the scratch memory, so many bytes
// after its first.
struct TensorPlace {
  int tensor = 0;  // or PointerSlot::kScratch
  std::int64_t offset = 0;
};

// The plan of another problem as a part of a call: its steps come after those that are there.
struct SubPlan {
  LaunchPlan plan;
  std::size_t first_kernel = 0;      // place of its kernel 0 among the call's
  std::vector<TensorPlace> tensors;  // of the other problem, in its order
};

// Puts `part` behind what `plan` does. Its scratch memory becomes the plan's own: at `scratch_at`,
// a multiple of 256, so that parts that need it one after the other may share it. Throws
// Error(kFailure) for a tensor that the part uses and has no place for, and for a place that is no
// multiple of 256.
void append(LaunchPlan& plan, const SubPlan& part, std::int64_t scratch_at);

// Resources of a device that a kernel needs before it can be launched.
struct KernelNeeds {
  std::string entry;              // name of the extern "C" function
  int threads = 0;                // of a CTA
  std::int64_t shared_bytes = 0;  // dynamic
};

// The parameters `params` as a plan holds them.
template <class Params>
std::vector<std::byte> parameter_bytes(const Params& params) {
  std::vector<std::byte> bytes(sizeof(Params));
  std::memcpy(bytes.data(), &params, sizeof(Params));
  return bytes;
}

}  // namespace vitune
