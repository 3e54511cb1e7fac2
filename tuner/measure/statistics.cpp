// tuner/measure/statistics.cpp -- Medians and distribution-free intervals of timings, alone and
// paired.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/error.h"

namespace vitune {
namespace {

constexpr double kTail = 0.025;  // outside the interval on each side

double sorted_median(const std::vector<double>& sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : 0.5 * (sorted[half - 1] + sorted[half]);
}

// Largest rank r with P(Binomial(n, 1/2) <= r) <= kTail, or -1: the r-th smallest (from 0) value is
// then a lower bound of the median.
std::ptrdiff_t lower_rank(std::size_t n) {
  double probability = 0;
  const double count = static_cast<double>(n);
  for (std::size_t k = 0; k <= n; ++k) {
    const double of = static_cast<double>(k);
    probability += std::exp(std::lgamma(count + 1) - std::lgamma(of + 1) -
                            std::lgamma(count - of + 1) - count * std::log(2.0));
    if (probability > kTail) return static_cast<std::ptrdiff_t>(k) - 1;
  }
  return -1;
}

double percent(double log_ratio) { return 100 * std::expm1(log_ratio); }

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) throw Error(ErrorCode::kFailure, "the median of no values was asked for");
  std::sort(values.begin(), values.end());
  return sorted_median(values);
}

Interval median_interval(std::vector<double> values) {
  if (values.empty()) throw Error(ErrorCode::kFailure, "the median of no values was asked for");
  std::sort(values.begin(), values.end());
  const auto rank =
      static_cast<std::size_t>(std::max<std::ptrdiff_t>(lower_rank(values.size()), 0));
  return {sorted_median(values), values[rank], values[values.size() - 1 - rank]};
}

Timing timing_of(const std::vector<double>& samples_us) {
  const Interval interval = median_interval(samples_us);
  return {interval.median, interval.low, interval.high, static_cast<int>(samples_us.size())};
}

Interval paired_slowdown_percent(const std::vector<double>& base,
                                 const std::vector<double>& other) {
  if (base.size() != other.size()) {
    throw Error(ErrorCode::kFailure, "paired timings need the same number of rounds");
  }
  std::vector<double> ratios(base.size());
  for (std::size_t i = 0; i < base.size(); ++i) ratios[i] = std::log(other[i] / base[i]);
  const Interval interval = median_interval(std::move(ratios));
  return {percent(interval.median), percent(interval.low), percent(interval.high)};
}

Interval separate_slowdown_percent(const Timing& base, const Timing& other) {
  const double scale = 100 / base.median_us;
  return {(other.median_us - base.median_us) * scale, (other.low_us - base.high_us) * scale,
          (other.high_us - base.low_us) * scale};
}

}  // namespace vitune
