// generator/operator_of.h -- OperatorOf<P>: an operator whose problems are values of a struct P.
//
// P has parse(text), text(), canonical(), flops() and min_bytes(), as generator/norm/problem.h
// says.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "generator/operator.h"

namespace vitune {

template <class P>
class OperatorOf : public Operator {
 public:
  ProblemPtr parse(std::string_view text) const final { return asked(P::parse(text)); }
  double flops(const Problem& problem) const final { return of(problem).flops(); }
  double min_bytes(const Problem& problem) const final { return of(problem).min_bytes(); }

  // A valid problem as the neutral rooms know it.
  ProblemPtr asked(const P& problem) const {
    return std::make_shared<Asked>(*this, problem.canonical());
  }
  // The problem as P; throws Error(kFailure) for a problem of another operator.
  const P& of(const Problem& problem) const {
    if (&problem.op() == this) return static_cast<const Asked&>(problem).value;
    throw Error(ErrorCode::kFailure, formatted("'{}' is no problem of {}", problem.text(), name()));
  }

 private:
  struct Asked final : Problem {
    Asked(const Operator& op, P canonical)
        : Problem(op, canonical.text()), value(std::move(canonical)) {}
    const P value;
  };
};

// How far two counts are from each other: the logarithm of their ratio.
inline double log_ratio(std::int64_t a, std::int64_t b) {
  return std::abs(std::log(static_cast<double>(a) / static_cast<double>(b)));
}

inline bool is_within_twice(std::int64_t a, std::int64_t b) { return a <= 2 * b && b <= 2 * a; }

// True if so many independent parts fill the device alike: beyond 64 for each SM more do not
// matter.
inline bool fill_alike(std::int64_t a, std::int64_t b, const DeviceInfo& device) {
  const std::int64_t most = std::int64_t{64} * std::max(device.sm_count, 1);
  return is_within_twice(std::min(a, most), std::min(b, most));
}

}  // namespace vitune
