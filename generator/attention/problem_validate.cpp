// generator/attention/problem_validate.cpp -- What the kernels accept, and a sentence for the rest.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/attention/problem_internal.h"

namespace vitune {
namespace {

using problem_internal::extent_of;
using problem_internal::extents_of;
using problem_internal::kMaxBytes;
using problem_internal::kMaxInt32;
using problem_internal::kMaxRows;
using problem_internal::kTensors;
using problem_internal::strides_of;
using problem_internal::Tensor;
using problem_internal::tensor_name;
using problem_internal::TensorExtents;

struct Dimension {
  std::string_view name;
  std::int64_t extent, stride;
};

[[noreturn]] void unsupported(const std::string& what) {
  throw Error(ErrorCode::kUnsupported, what);
}

[[noreturn]] void contradiction(const std::string& what) { throw Error(ErrorCode::kUsage, what); }

void check_range(std::string_view what, std::string_view key, std::int64_t value,
                 std::int64_t most) {
  if (value >= 1 && value <= most) return;
  unsupported(formatted("{} {}={} is not supported: use 1 to {}", what, key, value, most));
}

void check_grid(const AttentionProblem& p) {
  const auto rows = checked_mul(p.batch, p.heads);
  const auto tiles = rows ? checked_mul(*rows, ceil_div(p.nq, 16)) : std::nullopt;
  if (tiles && *tiles <= kMaxInt32) return;
  unsupported(formatted(
      "b={} h={} nq={} is not supported: batch * heads * (query rows / 16, rounded up) may be "
      "{} at most; split the batch over several calls",
      p.batch, p.heads, p.nq, kMaxInt32));
}

void check_scale(double scale) {
  const double least = std::ldexp(1.0, -40), most = std::ldexp(1.0, 40);
  if (std::isfinite(scale) && scale >= least && scale <= most) return;
  unsupported(formatted(
      "scale={} is not supported: use a finite number from 2^-40 to 2^40 (default 1/sqrt(d))",
      scale));
}

std::vector<Dimension> dimensions(const AttentionProblem& p, Tensor tensor) {
  const TensorExtents extents = extents_of(p, tensor);
  const TensorStrides& strides = strides_of(p, tensor);
  return {{"batch", extents.batch, strides.batch},
          {"head", extents.heads, strides.head},
          {"row", extents.rows, strides.row}};
}

void check_signs(std::string_view name, const std::vector<Dimension>& dimensions) {
  for (const Dimension& dimension : dimensions) {
    if (dimension.extent == 1 || dimension.stride >= 0) continue;
    unsupported(formatted("{} stride {} of {} is not supported: strides are 0 or more",
                          dimension.name, dimension.stride, name));
  }
}

void check_bytes(std::string_view name, std::optional<std::int64_t> extent, ElementType type) {
  const auto bytes = extent ? checked_mul(*extent, element_bytes(type)) : std::nullopt;
  if (bytes && *bytes < kMaxBytes) return;
  contradiction(
      formatted("{} spans {} of {} bytes, which overflows: a tensor must span less than 2^47 "
                "bytes; check its "
                "extents and strides",
                name, extent ? formatted("{} elements", *extent) : "more than 2^63 elements",
                element_bytes(type)));
}

// Each dimension, from the innermost out, must step over all that lies inside it.
void check_no_overlap(std::string_view name, std::vector<Dimension> dimensions, std::int64_t d) {
  std::erase_if(dimensions, [](const Dimension& dimension) { return dimension.extent == 1; });
  std::ranges::sort(dimensions, {}, &Dimension::stride);
  std::int64_t block = d;
  for (const Dimension& dimension : dimensions) {
    if (dimension.stride < block) {
      unsupported(formatted(
          "{} overlaps itself: its {} stride {} is less than the {} elements inside it; the output "
          "needs an element of its own for every result",
          name, dimension.name, dimension.stride, block));
    }
    block += (dimension.extent - 1) * dimension.stride;
  }
}

void check_operand(const AttentionProblem& p, std::string_view name, const ScoreOperand& operand) {
  if (operand.batches < 1 || p.batch % operand.batches != 0) {
    contradiction(formatted(
        "{} has {} batch entries for b={}: use 1, b, or a number of windows that divides b", name,
        operand.batches, p.batch));
  }
  check_signs(name, {{"batch", operand.batches, operand.strides[0]},
                     {"head", p.heads, operand.strides[1]},
                     {"query row", p.nq, operand.strides[2]},
                     {"key row", p.nk, operand.strides[3]}});
  check_bytes(name, extent_of(p, operand), operand.type);
}

void check_types(const AttentionProblem& p) {
  if (p.dtype != ElementType::kBf16 && p.dtype != ElementType::kFp16) {
    unsupported(formatted("dtype {} is not supported: use bf16 or fp16", element_name(p.dtype)));
  }
  if (p.bias && p.bias->type == ElementType::kBool) {
    unsupported("bias type bool is not supported: use fp32, fp16 or bf16, or mask=bool:...");
  }
  if (p.mask && p.mask->type != ElementType::kBool) {
    unsupported(formatted("mask type {} is not supported: use bool, or bias={}:... to add it",
                          element_name(p.mask->type), element_name(p.mask->type)));
  }
}

}  // namespace

void problem_internal::validate_sizes(const AttentionProblem& p) {
  check_types(p);
  check_range("batch", "b", p.batch, kMaxInt32);
  check_range("head count", "h", p.heads, kMaxInt32);
  check_range("kv head count", "hkv", p.kv_heads, kMaxInt32);
  if (p.heads % p.kv_heads != 0) {
    unsupported(
        formatted("hkv={} is not supported with h={}: use a divisor of h", p.kv_heads, p.heads));
  }
  check_range("query row count", "nq", p.nq, kMaxRows);
  check_range("key row count", "nk", p.nk, kMaxRows);
  if (p.d < 8 || p.d > 128 || p.d % 8 != 0) {
    unsupported(formatted("head size d={} is not supported: use 8 to 128 in steps of 8", p.d));
  }
  check_grid(p);
  check_scale(p.scale);
  if (p.dropout < 0 || p.dropout > 255) {
    unsupported(formatted("{} dropped weights of 256 are not supported: use 0 to 255", p.dropout));
  }
  if (p.alignment != 2 && p.alignment != 4 && p.alignment != 8 && p.alignment != 16) {
    unsupported(formatted("align={} is not supported: use 2, 4, 8 or 16 bytes", p.alignment));
  }
}

void problem_internal::validate_view(const AttentionProblem& p, Tensor tensor,
                                     std::string_view name, bool is_written) {
  check_signs(name, dimensions(p, tensor));
  check_bytes(name, extent_of(p, tensor), p.dtype);
  if (is_written) check_no_overlap(name, dimensions(p, tensor), p.d);
}

void AttentionProblem::validate() const {
  problem_internal::validate_sizes(*this);
  for (const Tensor tensor : kTensors) {
    problem_internal::validate_view(*this, tensor, tensor_name(tensor), tensor == Tensor::kO);
  }
  if (bias) check_operand(*this, "bias", *bias);
  if (mask) check_operand(*this, "mask", *mask);
}

}  // namespace vitune
