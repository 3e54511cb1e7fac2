// tests/faults/engines_test.cpp -- Each engine for a minute at most; `make soak` runs them long.
// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/engines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>

#include "tests/patience.h"

namespace vitune::faults {
namespace {

// FAULTS_SEED repeats a run.
std::uint32_t seed() {
  const char* given = std::getenv("FAULTS_SEED");
  static const std::uint32_t chosen =
      given != nullptr ? static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10))
                       : std::random_device()();
  std::cout << "FAULTS_SEED=" << chosen << "\n";
  return chosen;
}

std::string first_of(const Tally& tally) {
  std::string text;
  const std::size_t shown = std::min<std::size_t>(tally.findings.size(), 10);
  for (std::size_t i = 0; i < shown; ++i) text += tally.findings[i] + "\n";
  return text;
}

TEST(FaultEngines, NoFileCallThatFailsLosesOrLeavesAnything) {
  const Tally tally = fail_calls({300 / test::kSlowness, seed()});
  EXPECT_EQ(tally.findings.size(), 0U) << first_of(tally);
  EXPECT_GT(tally.effective, tally.runs * 9 / 10);
}

TEST(FaultEngines, NoKillAtAFileCallLosesAnything) {
  const Tally tally = kill_at_calls({300 / test::kSlowness, seed()});
  EXPECT_EQ(tally.findings.size(), 0U) << first_of(tally);
  EXPECT_GT(tally.effective, tally.runs * 9 / 10);
}

TEST(FaultEngines, NoPowerCutLosesWhatWasReported) {
  const Tally tally = cut_power({3000 / test::kSlowness, seed()});
  EXPECT_EQ(tally.findings.size(), 0U) << first_of(tally);
  // Without syncs a disk loses much: the simulation bites.
  EXPECT_GT(tally.control_findings, tally.controls / 10);
}

TEST(FaultEngines, NoDamageServesAWrongRowOrABlockedKernel) {
  const Tally tally = damage_files({3000 / test::kSlowness, seed()});
  EXPECT_EQ(tally.findings.size(), 0U) << first_of(tally);
  EXPECT_GT(tally.effective, tally.runs / 2);
  EXPECT_EQ(tally.control_findings, tally.controls);
}

}  // namespace
}  // namespace vitune::faults
