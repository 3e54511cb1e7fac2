// probe/ceiling_checks.h -- What the probes of a GPU's ceilings must give, computed on the host.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace vitune {

// The sum of what one thread of a CTA computes, and how far a right one may be off.
struct ExpectedSum {
  int thread = 0;
  double value = 0;
  double tolerance = 0;
};

// The sum of all words that the fill probe writes, read `rounds` times, modulo 2^32.
std::uint32_t expected_read_sum(std::uint64_t words, int rounds);

// The sums of a few threads of a CTA: multiply-adds are exact, so the tolerance is 0.
std::vector<ExpectedSum> expected_fma(int rounds);
// The sums of every thread.
std::vector<ExpectedSum> expected_exp2(int rounds);
std::vector<ExpectedSum> expected_mma(int rounds);
std::vector<ExpectedSum> expected_wgmma(int rounds);

}  // namespace vitune
