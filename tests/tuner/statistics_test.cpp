// tests/tuner/statistics_test.cpp -- Medians and intervals.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/measure/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/error.h"

namespace vitune {
namespace {

TEST(Statistics, TheMedianOfAnEvenCountLiesBetweenTheMiddleTwo) {
  EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_DOUBLE_EQ(median({7}), 7);
  EXPECT_THROW(median({}), Error);
}

TEST(Statistics, TheIntervalIsTheOrderStatisticsOfTheBinomial) {
  struct Case {
    int count;
    double low, high;  // ranks from 1, as tables of the sign test give them for 95 %
  };
  for (const Case& c :
       {Case{5, 1, 5}, Case{6, 1, 6}, Case{10, 2, 9}, Case{20, 6, 15}, Case{30, 10, 21}}) {
    std::vector<double> values;
    for (int i = c.count; i >= 1; --i) values.push_back(i);
    const Interval interval = median_interval(values);
    EXPECT_EQ(interval.low, c.low) << c.count;
    EXPECT_EQ(interval.high, c.high) << c.count;
  }
}

TEST(Statistics, TheIntervalCoversTheTrueMedianOfASkewedDistribution) {
  std::mt19937_64 random(3);
  std::lognormal_distribution<double> values(0, 0.7);  // median 1
  int covered = 0;
  constexpr int kRuns = 4000;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> sample(25);
    for (double& value : sample) value = values(random);
    const Interval interval = median_interval(sample);
    covered += interval.low <= 1 && 1 <= interval.high;
  }
  // At least 95 %; three standard deviations of the count (14 each) below that at the least.
  EXPECT_GT(covered, 0.95 * kRuns - 42);
  EXPECT_LT(covered, 0.995 * kRuns);
}

TEST(Statistics, PairingRemovesADriftThatBothShare) {
  std::vector<double> base, other;
  for (int round = 0; round < 30; ++round) {
    const double clock = 1 + 0.05 * round;
    base.push_back(10 * clock);
    other.push_back(10.1 * clock);
  }
  const Interval slowdown = paired_slowdown_percent(base, other);
  EXPECT_NEAR(slowdown.median, 1, 1e-9);
  EXPECT_NEAR(slowdown.low, 1, 1e-9);
  EXPECT_THROW(paired_slowdown_percent(base, {1.0}), Error);
}

TEST(Statistics, SeparateTimingsDifferByIntervalArithmetic) {
  const Interval slowdown = separate_slowdown_percent({100, 99, 101, 5}, {110, 108, 112, 5});
  EXPECT_DOUBLE_EQ(slowdown.median, 10);
  EXPECT_DOUBLE_EQ(slowdown.low, 7);
  EXPECT_DOUBLE_EQ(slowdown.high, 13);
}

TEST(Statistics, ATimingKeepsItsSampleCount) {
  const Timing timing = timing_of({5, 4, 6, 5, 5, 4, 7});
  EXPECT_EQ(timing.samples, 7);
  EXPECT_DOUBLE_EQ(timing.median_us, 5);
  EXPECT_LE(timing.low_us, timing.median_us);
  EXPECT_GE(timing.high_us, timing.median_us);
}

}  // namespace
}  // namespace vitune
