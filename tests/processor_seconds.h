// tests/processor_seconds.h -- How much a function computes, however busy the machine is.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>

namespace vitune::test {

// Processor time of this process and all its threads while `body` runs. For bounds that are far
// from what is usual and farther from what is wrong: processors differ.
template <typename Body>
double processor_seconds(const Body& body) {
  const std::clock_t begin = std::clock();
  body();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

}  // namespace vitune::test
