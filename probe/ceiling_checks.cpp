// probe/ceiling_checks.cpp -- The probes' arithmetic, done again on the host.
// SPDX-License-Identifier: Apache-2.0
#include "probe/ceiling_checks.h"

#include <cmath>

#include "templates/probes/probe_params.cuh"

namespace vitune {
namespace {

// The fp32 sums of the tensor cores cut off what does not fit; after many products that is far less
// than this share of what was added.
constexpr double kTensorTolerance = 0.01;
constexpr double kFixedPoint = 0.6411857445;  // of 2^-x

struct Dot {
  double value = 0, magnitude = 0;
};

Dot dot(unsigned row, unsigned column, unsigned depth) {
  Dot sum;
  for (unsigned k = 0; k < depth; ++k) {
    const double product =
        double{probe_value(0, row, k)} * static_cast<double>(probe_value(1, column, k));
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

// The sum over the elements that a thread holds of a 16-row tile of accumulators: rows g and g + 8,
// columns 2 t and 2 t + 1 of each eight (PTX ISA, fragments of m16n8k16 and of wgmma).
ExpectedSum fragment_sum(int thread, unsigned first_row, unsigned columns, unsigned depth,
                         double products) {
  const unsigned lane = static_cast<unsigned>(thread) % 32, g = lane / 4, t = lane % 4;
  Dot sum;
  for (unsigned column = 0; column < columns; ++column) {
    if (column % 8 / 2 != t) continue;
    for (const unsigned row : {g, g + 8}) {
      const Dot each = dot(first_row + row, column, depth);
      sum.value += each.value;
      sum.magnitude += each.magnitude;
    }
  }
  return {thread, products * sum.value, products * sum.magnitude * kTensorTolerance};
}

}  // namespace

std::uint32_t expected_read_sum(std::uint64_t words, int rounds) {
  // n (n - 1) / 2 without overflow: one of the two is even.
  const std::uint64_t pairs = words % 2 == 0 ? words / 2 * (words - 1) : (words - 1) / 2 * words;
  return static_cast<std::uint32_t>(pairs * kProbeStep * static_cast<std::uint64_t>(rounds));
}

std::vector<ExpectedSum> expected_fma(int rounds) {
  std::vector<ExpectedSum> sums;
  for (const int thread : {0, 1, 255, kProbeThreads - 1}) {
    float x[kProbeChains];
    for (int i = 0; i < kProbeChains; ++i) {
      x[i] = probe_value(0, static_cast<unsigned>(thread), static_cast<unsigned>(i));
    }
    for (std::int64_t step = 0; step < std::int64_t{rounds} * kProbeUnroll; ++step) {
      for (int i = 0; i < kProbeChains; i += 2) {
        x[i] = std::fma(x[i + 1], kProbeAngle, x[i]);
        x[i + 1] = std::fma(x[i], -kProbeAngle, x[i + 1]);
      }
    }
    float sum = 0;
    for (const float each : x) sum += each;
    sums.push_back({thread, sum, 0});
  }
  return sums;
}

std::vector<ExpectedSum> expected_exp2(int) {
  std::vector<ExpectedSum> sums;
  for (int thread = 0; thread < kProbeThreads; ++thread) {
    sums.push_back({thread, kProbeChains * kFixedPoint, 1e-4});
  }
  return sums;
}

std::vector<ExpectedSum> expected_mma(int rounds) {
  std::vector<ExpectedSum> sums;
  for (int thread = 0; thread < kTensorThreads; ++thread) {
    // Every warp does the same.
    if (thread >= 32) {
      sums.push_back(sums[static_cast<std::size_t>(thread % 32)]);
      sums.back().thread = thread;
      continue;
    }
    ExpectedSum sum{thread, 0, 0};
    for (unsigned tile = 0; tile < kMmaTiles; ++tile) {
      const ExpectedSum part = fragment_sum(thread, 16 * tile, 8 * kMmaTiles, 16, rounds);
      sum.value += part.value;
      sum.tolerance += part.tolerance;
    }
    sums.push_back(sum);
  }
  return sums;
}

std::vector<ExpectedSum> expected_wgmma(int rounds) {
  std::vector<ExpectedSum> sums;
  const double products = double{kProbeUnroll} * rounds / (kWgmmaDepth / 16);
  for (int thread = 0; thread < kTensorThreads; ++thread) {
    // A warp holds sixteen rows; the warps follow each other.
    sums.push_back(fragment_sum(thread, static_cast<unsigned>(thread / 32 * 16), kWgmmaColumns,
                                kWgmmaDepth, products));
  }
  return sums;
}

}  // namespace vitune
