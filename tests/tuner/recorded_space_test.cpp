// tests/tuner/recorded_space_test.cpp -- The rules of attention's space, against all configs that
// were measured on a recorded device.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "generator/attention/kernel_spec.h"
#include "tuner/recording/recording.h"

namespace vitune {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

// The least times of a recorded problem's configs, cold and warm.
struct Best {
  double cold = kNone, warm = kNone;
  void add(const Trial& trial) {
    cold = std::min(cold, trial.measurement.cold.median_us);
    warm = std::min(warm, trial.measurement.warm.median_us);
  }
};

class RecordedSpace : public testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path path = VITUNE_SOURCE_DIR "/data/h200.recording";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no recording at " << path;
    recording_ = Recording::load(path);
  }
  ParameterSpace space_of(const RecordedProblem& problem) const {
    return attention_space(AttentionProblem::parse(problem.text), recording_.device);
  }

  Recording recording_;
};

TEST_F(RecordedSpace, HoldsAConfigWithinOnePercentOfEachProblemsOptimum) {
  for (const RecordedProblem& problem : recording_.problems) {
    const ParameterSpace space = space_of(problem);
    Best all, held;
    for (const Trial& trial : problem.trials) {
      if (trial.status != TrialStatus::kOk) continue;
      all.add(trial);
      if (!space.explain(space.completed(trial.config))) held.add(trial);
    }
    EXPECT_LE(held.cold, 1.01 * all.cold) << problem.name;
    EXPECT_LE(held.warm, 1.01 * all.warm) << problem.name;
  }
}

// A search in vain costs minutes of a GPU for each problem.
TEST_F(RecordedSpace, HasNoMoreThanAQuarterOfTheConfigsThatWereMeasuredForManyRows) {
  for (const RecordedProblem& problem : recording_.problems) {
    if (problem.name != "ViT-B/16@224 b32" && problem.name != "ViT-B/16@384 b32") continue;
    EXPECT_LE(space_of(problem).enumerate().size(), problem.trials.size() / 4 + 10) << problem.name;
  }
}

}  // namespace
}  // namespace vitune
