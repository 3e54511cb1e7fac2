// tests/runtime/shipped_defaults_test.cpp -- How near defaults come to the shipped winners.
//
// Only configs that were tried beside the winner count: benchmarks/lab/defaults.py has more of
// them (docs/lab/2026-11-29-defaults-from-evidence.md). VITUNE_TRANSFER_ROWS=1 prints each problem.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "generator/operator.h"
#include "tests/runtime/shipped_evidence.h"

namespace vitune {
namespace {

struct Bounds {
  const char *gpu, *op;
  std::size_t known;  // at least; fewer are no evidence
  double mean, p95;   // at most, of the losses
};

void PrintTo(const Bounds& bounds, std::ostream* out) { *out << bounds.gpu << ' ' << bounds.op; }

class ShippedDefaultsTest : public ::testing::TestWithParam<Bounds> {};

TEST_P(ShippedDefaultsTest, LoseLittleToTheWinnersWhereTheyWereTried) {
  const Bounds bounds = GetParam();
  const auto store = shipped();
  const DeviceInfo device = shipped_device(*store, bounds.gpu);
  std::vector<double> losses;
  for (const WinnerEntry& entry : store->winners()) {
    if (entry.device.key() != device.key() || entry.problem.operator_name != bounds.op) continue;
    const Config config = default_config(*parse_problem(entry.problem.text), device);
    const auto loss = loss_of(*store, entry, config);
    if (loss) losses.push_back(*loss);
    if (std::getenv("VITUNE_TRANSFER_ROWS") != nullptr) {
      std::printf("%s %s: %s\n", loss ? std::to_string(100 * *loss).c_str() : "?",
                  entry.problem.text.c_str(), config.text().c_str());
    }
  }
  ASSERT_GE(losses.size(), bounds.known);
  std::ranges::sort(losses);
  const double sum = std::accumulate(losses.begin(), losses.end(), 0.0);
  EXPECT_LE(sum / static_cast<double>(losses.size()), bounds.mean);
  EXPECT_LE(losses[(losses.size() * 95 + 99) / 100 - 1], bounds.p95);
}

INSTANTIATE_TEST_SUITE_P(Operators, ShippedDefaultsTest,
                         ::testing::Values(Bounds{"H200", "linear", 50, 0.02, 0.07},
                                           Bounds{"H100", "linear", 35, 0.02, 0.08},
                                           Bounds{"H200", "norm", 8, 0.01, 0.04},
                                           Bounds{"H200", "group_norm", 6, 0.06, 0.25}),
                         [](const auto& param) {
                           return std::string(param.param.gpu) + "_" + param.param.op;
                         });

}  // namespace
}  // namespace vitune
