// tests/runtime/shipped_transfer_test.cpp -- How well the winners of one shipped GPU serve the
// other.
//
// All that is known of the target is taken away; the dispatcher chooses from the source's rows; the
// target's own evidence says what its choice loses to the winner there. VITUNE_TRANSFER_ROWS=1
// prints each problem (docs/lab/2026-11-29-untuned-gpus.md has the table).
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "core/format.h"
#include "db/store.h"
#include "generator/operator.h"
#include "runtime/dispatch/dispatcher.h"
#include "tests/runtime/shipped_evidence.h"

namespace vitune {
namespace {

// The rows of one device alone.
LayeredStore rows_of(Store& all, const DeviceInfo& device) {
  auto store = Store::in_memory();
  for (const WinnerEntry& entry : all.winners()) {
    if (entry.device.key() != device.key()) continue;
    store->promote(device, entry.problem, entry.winner, nullptr);
    store->put_trials(device, entry.problem, all.trials(device, entry.problem));
  }
  return LayeredStore(std::move(store), nullptr);
}

struct Figures {
  int same = 0, unknown = 0;
  std::vector<double> known, defaults;

  static double mean(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  }
  static double p95(std::vector<double> values) {
    std::ranges::sort(values);
    return values.at((values.size() * 95 + 99) / 100 - 1);
  }
  void add(const WinnerEntry& entry, const Choice& choice, const std::optional<double>& loss) {
    const Winner& winner = entry.winner;
    same += choice.config == winner.config;
    unknown += !loss;
    if (loss) known.push_back(*loss);
    if (!winner.default_us) return;
    const double raced = winner.measurement.by(winner.objective).median_us;
    defaults.push_back(std::max(0.0, *winner.default_us / raced - 1));
  }
  std::string text() const {
    if (known.empty()) return formatted("{} same, {} unknown", same, unknown);
    return formatted(
        "{} same, {} known, {} unknown: mean {:.2f} %, p95 {:.2f} %, worst {:.1f} %;"
        " defaults: mean {:.1f} %, p95 {:.1f} %",
        same, known.size(), unknown, 100 * mean(known), 100 * p95(known),
        100 * *std::ranges::max_element(known), 100 * mean(defaults), 100 * p95(defaults));
  }
};

class ShippedTransferTest : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(ShippedTransferTest, LosesLittleToTheWinnersOfTheOtherGpu) {
  const auto all = shipped();
  const DeviceInfo source = shipped_device(*all, GetParam().first);
  const DeviceInfo target = shipped_device(*all, GetParam().second);
  LayeredStore rows = rows_of(*all, source);
  std::map<std::string, Figures> by_operator;
  Figures total, without;  // of problems that the source has a winner of, and of the others
  for (const WinnerEntry& entry : all->winners()) {
    if (entry.device.key() != target.key()) continue;
    Dispatcher dispatcher(target, entry.winner.objective);
    const ProblemPtr problem = parse_problem(entry.problem.text);
    const Choice choice = dispatcher.choices(problem, rows).at(0);
    const auto loss = loss_of(*all, entry, choice.config);
    if (choice.outcome == LookupOutcome::kTransferred && choice.row->problem == entry.problem) {
      total.add(entry, choice, loss);
      by_operator[entry.problem.operator_name].add(entry, choice, loss);
    } else {
      without.add(entry, choice, loss);
    }
    if (std::getenv("VITUNE_TRANSFER_ROWS") != nullptr) {
      std::printf("%s %s: %s %s\n", loss ? formatted("{:.1f}", 100 * *loss).c_str() : "?",
                  entry.problem.text.c_str(), lookup_outcome_name(choice.outcome).c_str(),
                  choice.config.text().c_str());
    }
  }
  for (const auto& [name, figures] : by_operator) {
    std::printf("%s: %s\n", name.c_str(), figures.text().c_str());
  }
  std::printf("all: %s\n", total.text().c_str());
  std::printf("without a winner there: %s\n", without.text().c_str());
  ASSERT_GE(total.known.size(), 100u);
  EXPECT_LE(Figures::mean(total.known), 0.02);
  EXPECT_LE(Figures::p95(total.known), 0.06);
  EXPECT_LT(Figures::mean(total.known), Figures::mean(total.defaults) / 5);
}

INSTANTIATE_TEST_SUITE_P(Directions, ShippedTransferTest,
                         ::testing::Values(std::pair("H200", "H100"), std::pair("H100", "H200")),
                         [](const auto& param) { return std::string(param.param.second); });

}  // namespace
}  // namespace vitune
