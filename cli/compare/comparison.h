// cli/compare/comparison.h -- How the times of one file relate to those of another, with intervals.
//
// Ratios are B / A: above 1, B is slower. The interval of a ratio says what chance in the two
// measurements explains; what moves a whole file (other clocks, a warmer GPU) it cannot know.
//
// - bootstrap: both sides have 6 to 200 single measurements. Percentile interval over 2,000
//   resamples of the ratio of medians (B. Efron, R. Tibshirani, An Introduction to the Bootstrap,
//   1993, chapter 13), drawn with a fixed seed.
// - intervals: both sides have a 95 % interval of their median: stored, of order statistics
//   (tuner/measure/statistics.h), or 1.96 times the median's standard error out of percentiles or a
//   standard deviation. The distances of the logarithms combine as the root of the sum of squares,
//   each side's own way (G. Zou, A. Donner, Statistics in Medicine 27, 2008, pages 1693-1702).
// - extremes: a side has two to five measurements, or percentiles without their count: the least
//   of B over the most of A, and the most of B over the least of A.
// - none: a side is a single figure.
//
// The interval of a geometric mean combines those of its rows like "intervals" does; its problems
// are taken as given, not as a sample of problems. No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cli/compare/timing_files.h"

namespace vitune {

struct RatioInterval {
  double ratio = 1;
  std::optional<Interval> interval;  // of the ratio, 95 %
  std::string method = "none";
};

RatioInterval time_ratio(const TimedFigure& a, const TimedFigure& b);

enum class TimeChange {
  kSame,    // within the threshold
  kSlower,  // beyond it, and the interval lies above 1
  kFaster,  // beyond it, and the interval lies below 1
  kUnclear  // beyond it, but chance may explain it or there is no interval
};

// "same", "slower", "faster", "unclear".
std::string verdict_name(TimeChange verdict);

struct ComparedRow {
  std::string name, problem, kind;
  double a_us = 0, b_us = 0;
  RatioInterval ratio;
  TimeChange verdict = TimeChange::kSame;
  bool low_confidence = false;  // of either
};

struct MeanRatio {
  std::string kind;
  std::size_t rows = 0;
  RatioInterval ratio;  // no interval if a row has none
};

struct Comparison {
  std::vector<ComparedRow> rows;  // in A's order
  std::vector<TimedRow> only_a, only_b;
  std::vector<MeanRatio> means;  // per kind that has rows
  std::size_t slower() const;
};

// Pairs rows of the same kind by their problem, or by name where a side names no problem.
// `threshold` is a share (0.05: 5 %); `kind` is one of a row's, or "both" for all. Throws
// Error(kInterrupted) once `stop` is set.
Comparison compare(const TimingFile& a, const TimingFile& b, double threshold,
                   const std::string& kind, const std::atomic<bool>& stop);

}  // namespace vitune
