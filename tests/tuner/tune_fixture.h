// tests/tuner/tune_fixture.h -- The whole loop over an evaluator in memory, for the tests of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "tests/tuner/fake_evaluator.h"
#include "tests/tuner/test_support.h"
#include "tuner/loop/tuner.h"

namespace vitune::test {

inline NamedProblem problem(
    const std::string& text = "attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed") {
  NamedProblem named;
  named.problem = parse_problem(text);
  named.name = text;
  return named;
}

class Tune : public ::testing::Test {
 protected:
  TuneReport run() {
    return tune_with(
        evaluator, options, store, [this](const TuneProgress& p) { reports.push_back(p); },
        [this](LogLevel, std::string_view text) { messages += std::string(text) + "\n"; }, stop);
  }
  ProblemKey key(std::size_t index = 0) const {
    return {"attention", options.problems[index].problem->text()};
  }
  Store& user() { return store.user(); }
  std::vector<Trial> trials() { return user().trials(evaluator.device(), key()); }

  FakeEvaluator evaluator;
  LayeredStore store{Store::in_memory(), nullptr};
  TuneOptions options = [] {
    TuneOptions result;
    result.problems = {problem()};
    result.strategy = Strategy::kExhaustive;
    return result;
  }();
  std::atomic<bool> stop{false};
  std::vector<TuneProgress> reports;
  std::string messages;
};

// The fastest config of the small space.
inline Config fastest() {
  const SearchSpace space = FakeEvaluator::small_space();
  return *std::min_element(
      space.configs.begin(), space.configs.end(),
      [](const Config& a, const Config& b) { return fake_us(a) < fake_us(b); });
}

}  // namespace vitune::test
