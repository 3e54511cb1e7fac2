// cli/report/axes.h -- Ranges and ticks of logarithmic axes, and points as rows of data blocks.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

namespace vitune {

// The least range that holds all values it was shown.
class Range {
 public:
  void add(double value);
  bool empty() const { return !(low_ <= high_); }
  // From the least over `factor` to the most times `factor`.
  std::pair<double, double> widened(double factor) const;

 private:
  double low_ = 1e300, high_ = -1e300;
};

// `set xtics (...)`: 1, 2, 5, 10, ... within [low, high] of a logarithmic axis ("x" or "y"); only
// powers of ten where the range is longer than two decades.
std::string log_ticks(const std::string& axis, double low, double high);

// `set xrange [low:high]` and a logarithmic axis with log_ticks().
std::string log_axis(const std::string& axis, std::pair<double, double> range);

}  // namespace vitune
