// generator/tensor_spec.cpp -- How far a tensor reaches.
// SPDX-License-Identifier: Apache-2.0
#include "generator/tensor_spec.h"

#include "core/checked.h"
#include "core/error.h"

namespace vitune {
namespace {

std::int64_t require(std::optional<std::int64_t> value, const std::string& name) {
  if (value) return *value;
  throw Error(ErrorCode::kUsage,
              "the extent of " + name + " does not fit 64 bits: use smaller strides");
}

}  // namespace

std::int64_t TensorSpec::span() const {
  if (!given) return 0;
  std::int64_t last = 0;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const std::int64_t reach = require(checked_mul(extents[i] - 1, strides[i]), name);
    last = require(checked_add(last, reach), name);
  }
  return require(checked_add(last, 1), name);
}

std::int64_t TensorSpec::bytes() const {
  return require(checked_mul(span(), element_bytes(type)), name);
}

}  // namespace vitune
