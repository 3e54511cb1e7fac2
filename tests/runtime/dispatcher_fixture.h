// tests/runtime/dispatcher_fixture.h -- A dispatcher over databases whose rows a test writes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "generator/attention/kernel_spec.h"
#include "runtime/dispatch/dispatcher.h"
#include "tests/db/test_support.h"
#include "tests/devices.h"

namespace vitune::test {

// A database with winners that a test puts in, the user's above a shipped one.
class DispatcherFixture : public ::testing::Test {
 protected:
  explicit DispatcherFixture(DeviceInfo device = testing_support::h200_device())
      : device_(std::move(device)) {}

  static constexpr const char* kVit = "bf16 b=32 h=12 n=197 d=64";
  static constexpr const char* kNear = "bf16 b=32 h=12 n=198 d=64";

  static ProblemKey key_of(const std::string& text) {
    return {"attention", AttentionProblem::parse(text).text()};
  }
  Winner winner(const Config& config, double us) const {
    Winner row;
    row.config = config;
    row.measurement.cold = row.measurement.warm = {us, us, us, 20};
    row.compiler_version = "13.0";
    row.tuned_at = "2026-01-01T00:00:00Z";
    return row;
  }
  // Other than the default, so that a test can tell them apart.
  Config other_config(const std::string& text, std::size_t place = 1) const {
    return default_attention_configs(AttentionProblem::parse(text), device_).at(place);
  }
  void put(Store& store, const std::string& text, const Winner& row) {
    store.promote(device_, key_of(text), row, nullptr);
  }
  void put_trial(Store& store, const std::string& text, const Config& config, double us,
                 TrialStatus status = TrialStatus::kOk) {
    Trial trial;
    trial.config = config;
    trial.status = status;
    trial.reason = status == TrialStatus::kOk ? "" : "as the test says";
    trial.measurement.cold = trial.measurement.warm = {us, us, us, 20};
    store.put_trial(device_, key_of(text), trial);
  }
  std::vector<Choice> choices(const std::string& text) {
    return dispatcher_.choices(AttentionProblem::parse(text), store_);
  }
  // The first choice is the stored row.
  void expect_exact(const std::vector<Choice>& found, const Winner& row) {
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found[0].outcome, LookupOutcome::kExact);
    EXPECT_EQ(found[0].config, row.config);
    ASSERT_TRUE(found[0].row);
    EXPECT_EQ(found[0].row->winner, row);
  }
  Store& user() { return store_.user(); }
  Store& shipped() { return *store_.shipped(); }

  const DeviceInfo device_;
  LayeredStore store_{Store::in_memory(), Store::in_memory()};
  Dispatcher dispatcher_{device_, Objective::kCold};
};

}  // namespace vitune::test
