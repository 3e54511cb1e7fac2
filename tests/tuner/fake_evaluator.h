// tests/tuner/fake_evaluator.h -- An evaluator in memory over the synthetic space, for the loop's
// tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/digest.h"
#include "tests/tuner/fake_device.h"
#include "tests/tuner/synthetic_space.h"
#include "tuner/evaluate/evaluator.h"

namespace vitune::test {

class FakeEvaluator : public Evaluator {
 public:
  // Status and microseconds of a candidate; replaced by tests.
  std::function<std::pair<TrialStatus, double>(const Config&)> judge = [](const Config& config) {
    return std::pair(TrialStatus::kOk, fake_us(config));
  };
  std::function<SearchSpace()> make_space = [] { return small_space(); };
  std::optional<Config> preferred = Config{{"kBlockN", 64}, {"kStages", 2}, {"kWarps", 4}};
  std::function<void(std::size_t)> on_submit = [](std::size_t) {};
  std::function<void()> on_race = [] {};
  double race_noise = 0.002;
  std::string kernels = "v1";  // part of every kernel key
  // The configs that were asked for.
  std::vector<Config> verified, measured;
  int races = 0, begun = 0;
  std::set<int> places;  // of all races

  // 4 x 8 x 3 configs.
  static SearchSpace small_space() {
    const std::vector<Parameter> parameters = {{"kBlockN", {16, 32, 48, 64, 80, 96, 112, 128}, ""},
                                               {"kStages", {1, 2, 3}, ""},
                                               {"kWarps", {1, 2, 4, 8}, ""}};
    return SearchSpace(ParameterSpace(parameters, {}));
  }

  const DeviceInfo& device() const override { return device_; }
  Origin origin() const override { return Origin::kMeasured; }
  std::string compiler_version() const override { return "nvrtc fake"; }
  SearchSpace space(const ProblemPtr&) override {
    SearchSpace space = make_space();
    if (preferred) space.preset = space.find(*preferred);
    return space;
  }
  void begin(EvaluationContext context) override {
    context_ = std::move(context);
    ++begun;
  }
  Digest key(const Config& config) override {
    return sha256(kernels + context_.problem->text() + config.text());
  }
  Digest former_key(const Config& config) override {
    return sha256("before " + context_.problem->text() + config.text());
  }
  std::size_t capacity() const override { return 4; }

  void submit(std::size_t id, const Candidate& candidate) override {
    on_submit(id);
    Trial trial;
    trial.config = candidate.config;
    trial.kernel_key = key(candidate.config);
    if (const auto verdict = context_.blocked(candidate.config)) {
      trial.status = verdict->first;
      trial.reason = verdict->second;
      done_.emplace_back(id, trial);
      return;
    }
    double us = 0;
    std::tie(trial.status, us) = judge(candidate.config);
    if (trial.status == TrialStatus::kPruned || trial.status == TrialStatus::kCompileError) {
      trial.reason = "not fit";
      done_.emplace_back(id, trial);
      return;
    }
    context_.launching(candidate.config);
    if (candidate.verify) verified.push_back(candidate.config);
    if (candidate.measure) measured.push_back(candidate.config);
    if (trial.status == TrialStatus::kOk) {
      if (candidate.verify) trial.error = {1e-3, 1e-4, 2e-3, 2e-4};
      if (candidate.measure) {
        const Timing timing{us, us * 0.99, us * 1.01, candidate.effort.min_samples};
        trial.measurement = {timing, timing, false};
      }
    } else {
      trial.reason = "as told";
    }
    done_.emplace_back(id, trial);
  }

  std::optional<std::pair<std::size_t, Trial>> wait(std::chrono::milliseconds) override {
    if (done_.empty()) return std::nullopt;
    auto next = done_.front();
    done_.pop_front();
    return next;
  }

  RaceResult race(const std::vector<Config>& configs, int rounds, int place) override {
    places.insert(place);
    ++races;
    on_race();
    RaceResult result;
    std::normal_distribution<double> noise(1, race_noise);
    for (const Config& config : configs) {
      const auto [status, us] = judge(config);
      if (status != TrialStatus::kOk) return {status, "as told", {}, {}, {}};
      std::vector<double> samples;
      for (int i = 0; i < rounds; ++i) samples.push_back(us * std::max(0.5, noise(random_)));
      result.cold_us.push_back(samples);
      result.warm_us.push_back(samples);
    }
    summarise_rounds(result, false);
    return result;
  }

  std::optional<Binary> binary(const Config& config) override {
    return Binary{key(config),
                  "sm_90",
                  compiler_version(),
                  "vitune_attention_forward",
                  {},
                  {std::byte{1}, std::byte{2}}};
  }

 private:
  DeviceInfo device_ = fake_device();
  EvaluationContext context_;
  std::deque<std::pair<std::size_t, Trial>> done_;
  std::mt19937_64 random_{11};
};

}  // namespace vitune::test
