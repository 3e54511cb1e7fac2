// generator/group_norm/problem.cpp -- What of a group norm is valid, and what it moves.
// SPDX-License-Identifier: Apache-2.0
#include "generator/group_norm/problem.h"

#include <algorithm>

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr std::int64_t kMostGroups = std::int64_t{1} << 30;  // of all images
constexpr std::int64_t kMostImageElements = 2147483647;      // of one image
constexpr std::int64_t kMostBytes = std::int64_t{1} << 47;   // exclusive, per tensor

void refuse(ErrorCode code, const std::string& what) { throw Error(code, what); }

void check_least(std::string_view name, std::int64_t value) {
  if (value < 1) refuse(ErrorCode::kUsage, formatted("{}={}: 1 is the least", name, value));
}

void check_type(std::string_view name, ElementType type) {
  if (type != ElementType::kBool) return;
  refuse(ErrorCode::kUsage, formatted("{} cannot be bool: use bf16, fp16 or fp32", name));
}

void check_sizes(const GroupNormProblem& p) {
  check_least("n", p.images);
  check_least("c", p.channels);
  check_least("l", p.positions);
  check_least("g", p.groups);
  if (p.channels % p.groups != 0) {
    refuse(ErrorCode::kUsage,
           formatted("g={} does not divide c={}: groups have equally many channels", p.groups,
                     p.channels));
  }
  const auto image = checked_mul(p.channels, p.positions);
  if (!image || *image > kMostImageElements) {
    refuse(ErrorCode::kUnsupported,
           formatted("c={} l={}: an image may have 2^31 - 1 elements", p.channels, p.positions));
  }
  const auto groups = checked_mul(p.images, p.groups);
  if (!groups || *groups > kMostGroups) {
    refuse(ErrorCode::kUnsupported,
           formatted("n={} g={}: all images may have 2^30 groups", p.images, p.groups));
  }
  const auto all = checked_mul(*image, p.images);
  if (!all || *all >= kMostBytes / element_bytes(p.type)) {
    refuse(ErrorCode::kUnsupported, "x spans 2^47 bytes or more: use fewer images");
  }
}

void check_alignment(const GroupNormProblem& p) {
  const std::int64_t align = p.alignment;
  if (align != 2 && align != 4 && align != 8 && align != 16) {
    refuse(ErrorCode::kUsage, formatted("align={}: use 2, 4, 8 or 16", align));
  }
  const bool has_parameters = p.weight || p.bias;
  const std::int64_t least = std::max<std::int64_t>(
      element_bytes(p.type), has_parameters ? element_bytes(p.parameters) : 0);
  if (align >= least) return;
  refuse(ErrorCode::kUsage,
         formatted("align={}: fp32 elements lie at multiples of {} bytes", align, least));
}

}  // namespace

void GroupNormProblem::validate() const {
  check_type("the type of x", type);
  check_type("params", parameters);
  check_sizes(*this);
  if (!(eps >= 1e-30 && eps <= 1e30)) {
    refuse(ErrorCode::kUsage, formatted("eps={}: it must be from 1e-30 to 1e30", eps));
  }
  check_alignment(*this);
}

GroupNormProblem GroupNormProblem::canonical() const {
  GroupNormProblem p = *this;
  if (positions == 1 || channels == 1) p.nhwc = false;
  if (!weight && !bias) p.parameters = type;
  return p;
}

double GroupNormProblem::flops() const {
  // Subtract, square, add; subtract, scale, add; an activation is an exponential and a quotient.
  const double each = activation == GroupNormActivation::kNone ? 6.0 : 10.0;
  return each * static_cast<double>(elements());
}

double GroupNormProblem::min_bytes() const {
  const double parameter_count = (weight ? 1.0 : 0.0) + (bias ? 1.0 : 0.0);
  return 2.0 * static_cast<double>(elements()) * static_cast<double>(element_bytes(type)) +
         parameter_count * static_cast<double>(channels) *
             static_cast<double>(element_bytes(parameters));
}

}  // namespace vitune
