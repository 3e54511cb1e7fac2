// tests/faults/allocations_test.cpp -- No allocation that fails ends a program by a signal, loses a
// row or leaves the library unusable.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "tests/db/test_support.h"
#include "tests/faults/failed_allocations.h"
#include "tests/patience.h"

namespace vitune::faults {
namespace {

// FAULTS_SEED repeats a run; FAULTS_ALLOCATIONS says how many per program, 0: each.
Work work(std::size_t count) {
  const char* const seed = std::getenv("FAULTS_SEED");
  const char* const asked = std::getenv("FAULTS_ALLOCATIONS");
  Work work{count / test::kSlowness, std::random_device()()};
  if (seed != nullptr) work.seed = static_cast<std::uint32_t>(std::strtoul(seed, nullptr, 10));
  if (asked != nullptr) work.count = std::strtoul(asked, nullptr, 10);
  if (work.count == 0) work.count = static_cast<std::size_t>(-1);
  std::cout << "FAULTS_SEED=" << work.seed << "\n";
  return work;
}

void expect_no_findings(std::size_t count, bool for_ever) {
  const test::TempDir scratch;
  const Work chosen = work(count);
  for (const Subject& subject : allocating_subjects(scratch.path())) {
    // The mock driver does not live without memory.
    if (for_ever && subject.name == "libvitune") continue;
    const Tally tally = fail_allocations(subject, scratch.path(), chosen, for_ever);
    std::cout << subject.name << ": " << tally.runs << " runs, " << tally.effective << " failed, "
              << tally.findings.size() << " findings\n";
    EXPECT_GT(tally.runs, 0u);
    for (std::size_t i = 0; i < tally.findings.size() && i < 5; ++i) {
      ADD_FAILURE() << tally.findings[i];
    }
  }
}

TEST(FailedAllocations, OneLosesNothingAndEndsNothing) { expect_no_findings(40, false); }

// Files take each other's places at the end.
TEST(FailedAllocations, NoneOfTheLastLosesWhatIsReplaced) {
  const test::TempDir scratch;
  for (const Subject& subject : allocating_subjects(scratch.path())) {
    const Tally tally = fail_last_allocations(subject, scratch.path(), 64 / test::kSlowness);
    EXPECT_GT(tally.runs, 0u);
    for (std::size_t i = 0; i < tally.findings.size() && i < 5; ++i) {
      ADD_FAILURE() << tally.findings[i];
    }
  }
}

TEST(FailedAllocations, AllFromOneOnLoseNothingAndEndNothing) { expect_no_findings(20, true); }

}  // namespace
}  // namespace vitune::faults
