// tuner/measure/statistics.h -- Medians and distribution-free intervals of timings, alone and
// paired.
//
// Timings have outliers to one side and drift together, so nothing here assumes a distribution: an
// interval is a pair of order statistics whose binomial coverage is at least 95 %.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "db/records.h"

namespace vitune {

// A figure with the bounds of its 95 % interval.
struct Interval {
  double median = 0;
  double low = 0;
  double high = 0;
};

// Median of `values`, which must not be empty.
double median(std::vector<double> values);

// Median with its 95 % interval; below six values, where no pair of order statistics covers 95 %,
// the bounds are the extremes. `values` must not be empty.
Interval median_interval(std::vector<double> values);

// The same for call times in microseconds.
Timing timing_of(const std::vector<double>& samples_us);

// How much slower `other` was than `base`, in percent of base, from rounds in which both ran next
// to each other: the median of the paired log ratios. Both have one entry per round, all positive.
Interval paired_slowdown_percent(const std::vector<double>& base, const std::vector<double>& other);

// The same from two separate timings; the interval is what interval arithmetic leaves.
Interval separate_slowdown_percent(const Timing& base, const Timing& other);

}  // namespace vitune
