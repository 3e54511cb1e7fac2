// cli/report/axes.cpp -- Ticks where people expect them.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/axes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/report/html.h"
#include "core/format.h"

namespace vitune {

void Range::add(double value) {
  low_ = std::min(low_, value);
  high_ = std::max(high_, value);
}

std::pair<double, double> Range::widened(double factor) const {
  return {low_ / factor, high_ * factor};
}

std::string log_ticks(const std::string& axis, double low, double high) {
  const bool tens_only = std::log10(high / low) > 2;
  std::vector<std::string> ticks;
  for (int power = static_cast<int>(std::floor(std::log10(low))); power <= std::log10(high);
       ++power) {
    for (const int digit : {1, 2, 5}) {
      const double value = digit * std::pow(10.0, power);
      if (value < low * 0.999 || value > high * 1.001) continue;
      const bool minor = tens_only && digit != 1;
      ticks.push_back(
          formatted("\"{}\" {:g}{}", minor ? "" : figure_text(value, 1), value, minor ? " 1" : ""));
    }
  }
  return formatted("set {}tics ({})\n", axis, fmt::join(ticks, ", "));
}

std::string log_axis(const std::string& axis, std::pair<double, double> range) {
  return formatted("set logscale {0}\nset {0}range [{1:g}:{2:g}]\n{3}", axis, range.first,
                   range.second, log_ticks(axis, range.first, range.second));
}

}  // namespace vitune
