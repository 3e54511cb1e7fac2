// tests/tuner/dispatcher_quality_test.cpp -- How good the configs are that serve untuned problems.
//
// Each problem in turn is hidden; the dispatcher chooses from what the others' rows say; the time
// of its choice is compared with the hidden problem's own optimum on the recorded H200.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/format.h"
#include "generator/attention/facts.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/problem_distance.h"
#include "runtime/dispatch/dispatcher.h"
#include "tests/devices.h"
#include "tuner/recording/recording.h"

namespace vitune {
namespace {

// A problem with what is known of its configs.
struct Known {
  AttentionProblem problem;
  std::vector<Trial> trials;                  // all with success
  std::function<double(const Config&)> time;  // microseconds; 0: not known, or wrong
  // A kernel that the library passes over before a launch, for the next choice: one that the
  // compiler refuses or whose registers, spills or shared memory rule it out
  // (runtime/load/loader.cpp).
  std::set<Config> refused;
  bool recorded = false;  // not all configs have a time
  double default_us = 0;  // in its winner's race; 0: the default was not in it
  std::size_t best = 0;   // of trials
  double best_us() const { return us(best); }
  double us(std::size_t i) const { return trials[i].measurement.cold.median_us; }
};

void find_best(Known& known) {
  for (std::size_t i = 0; i < known.trials.size(); ++i) {
    if (known.us(i) < known.us(known.best)) known.best = i;
  }
}

Winner winner_of(const Known& known) {
  Winner winner;
  winner.config = known.trials[known.best].config;
  winner.measurement = known.trials[known.best].measurement;
  if (known.default_us > 0) winner.default_us = known.default_us;
  winner.compiler_version = "12.0";
  winner.tuned_at = "2026-01-01T00:00:00Z";
  return winner;
}

// A database of all problems but the hidden one; others of its class suffice, and save time.
LayeredStore database_without(const std::vector<Known>& all, const Known& hidden,
                              const DeviceInfo& device) {
  auto store = Store::in_memory();
  for (const Known& known : all) {
    if (known.problem == hidden.problem) continue;
    if (attention_class(known.problem) != attention_class(hidden.problem)) continue;
    const ProblemKey key{"attention", known.problem.text()};
    store->put_trials(device, key, known.trials);
    store->promote(device, key, winner_of(known), nullptr);
  }
  return LayeredStore(std::move(store), nullptr);
}

std::size_t neighbours_of(const std::vector<Known>& all, const Known& hidden) {
  return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [&](const Known& known) {
    return !(known.problem == hidden.problem) &&
           attention_class(known.problem) == attention_class(hidden.problem);
  }));
}

double loss_of(const Known& hidden, const Config& config) {
  const double us = hidden.time(config);
  return us > 0 ? std::max(0.0, us / hidden.best_us() - 1) : 10.0;  // unknown: as bad as can be
}

// The choice that the library's resolver serves: the first that is not refused. Of
// choices that a recording knows nothing of nothing can be said.
const Choice& served(const std::vector<Choice>& choices, const Known& hidden) {
  const auto found = std::find_if(choices.begin(), choices.end(), [&](const Choice& choice) {
    return hidden.refused.count(choice.config) == 0 &&
           (!hidden.recorded || hidden.time(choice.config) > 0);
  });
  return found == choices.end() ? choices.at(0) : *found;
}

// The config of other libraries, for comparison: the winner of the problem at the least `distance`,
// or the default where its config is outside the space or refused.
Config baseline_choice(const std::vector<Known>& all, const Known& hidden, const DeviceInfo& device,
                       const std::function<double(const AttentionProblem&)>& distance) {
  const Known* nearest = nullptr;
  for (const Known& known : all) {
    if (known.problem == hidden.problem) continue;
    if (attention_class(known.problem) != attention_class(hidden.problem)) continue;
    if (nearest == nullptr || distance(known.problem) < distance(nearest->problem)) {
      nearest = &known;
    }
  }
  const Config fallback = default_attention_config(hidden.problem, device);
  if (nearest == nullptr) return fallback;
  const Config& config = nearest->trials[nearest->best].config;
  const bool possible = !attention_space(hidden.problem, device).explain(config);
  return possible && hidden.refused.count(config) == 0 ? config : fallback;
}

Config nearest_product(const std::vector<Known>& all, const Known& hidden,
                       const DeviceInfo& device) {
  const auto volume = [](const AttentionProblem& p) {
    return std::log(static_cast<double>(p.batch * p.heads) * static_cast<double>(p.nq) *
                    static_cast<double>(p.nk) * static_cast<double>(p.d));
  };
  return baseline_choice(all, hidden, device, [&](const AttentionProblem& p) {
    return std::abs(volume(p) - volume(hidden.problem));
  });
}

Config nearest_bin(const std::vector<Known>& all, const Known& hidden, const DeviceInfo& device) {
  const auto bin = [](std::int64_t size) {
    return std::ceil(std::log2(static_cast<double>(size)));
  };
  return baseline_choice(all, hidden, device, [&](const AttentionProblem& p) {
    const AttentionProblem& h = hidden.problem;
    return std::abs(bin(p.batch) - bin(h.batch)) + std::abs(bin(p.heads) - bin(h.heads)) +
           std::abs(bin(p.nq) - bin(h.nq)) + std::abs(bin(p.nk) - bin(h.nk));
  });
}

struct Losses {
  std::vector<double> values;
  void add(double loss) { values.push_back(loss); }
  double quantile(double share) const {
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    const double place = std::ceil(share * static_cast<double>(sorted.size())) - 1;
    return sorted.at(static_cast<std::size_t>(std::max(place, 0.0)));
  }
  std::string text() const {
    return formatted("median {:.1f} %, p95 {:.1f} %, worst {:.1f} %", 100 * quantile(0.5),
                     100 * quantile(0.95), 100 * quantile(1));
  }
};

struct Comparison {
  Losses dispatcher, product, bins, fallback;
};

void compare(const std::vector<Known>& all, const DeviceInfo& device, Comparison& result) {
  for (const Known& hidden : all) {
    if (neighbours_of(all, hidden) == 0) continue;  // nothing to choose from but the default
    LayeredStore store = database_without(all, hidden, device);
    Dispatcher dispatcher(device, Objective::kCold);
    const std::vector<Choice> choices = dispatcher.choices(hidden.problem, store);
    const Choice& choice = served(choices, hidden);
    const double loss = loss_of(hidden, choice.config);
    EXPECT_NE(choice.outcome, LookupOutcome::kExact) << hidden.problem.text();
    result.dispatcher.add(loss);
    result.product.add(loss_of(hidden, nearest_product(all, hidden, device)));
    result.bins.add(loss_of(hidden, nearest_bin(all, hidden, device)));
    result.fallback.add(loss_of(hidden, default_attention_config(hidden.problem, device)));
    if (loss > 0.05) {
      std::printf("  %.1f %%: %s: %s\n    predicted %.1f, takes %.1f, best %.1f by %s\n",
                  100 * loss, hidden.problem.text().c_str(), choice.config.text().c_str(),
                  choice.predicted_us, hidden.time(choice.config), hidden.best_us(),
                  hidden.trials[hidden.best].config.text().c_str());
    }
  }
}

void print(const Comparison& result) {
  std::printf(
      "%zu problems. Loss to the own optimum of the dispatcher: %s; nearest product of sizes: %s; "
      "power-of-two bins: %s; default config: %s\n",
      result.dispatcher.values.size(), result.dispatcher.text().c_str(),
      result.product.text().c_str(), result.bins.text().c_str(), result.fallback.text().c_str());
}

void expect_good(const Comparison& result) {
  EXPECT_LE(result.dispatcher.quantile(0.5), 0.05);
  EXPECT_LE(result.dispatcher.quantile(0.95), 0.18);
  EXPECT_LT(result.dispatcher.quantile(0.95), result.product.quantile(0.95) / 2);
  EXPECT_LT(result.dispatcher.quantile(0.95), result.bins.quantile(0.95) / 2);
  EXPECT_LE(result.dispatcher.quantile(1), result.fallback.quantile(1) + 0.02);
}

// As the tuner does, which races the default with the best.
void race_defaults(std::vector<Known>& all, const DeviceInfo& device) {
  for (Known& known : all) {
    known.default_us = known.time(default_attention_config(known.problem, device));
  }
}

TEST(RecordedDispatcherQuality, HiddenProblemsOfTheRecordedH200AreServedNearTheirOptimum) {
  const std::filesystem::path path = VITUNE_SOURCE_DIR "/data/h200.recording";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "there is no " << path << " yet";
  const Recording recording = Recording::load(path);
  std::vector<Known> all;
  for (const RecordedProblem& recorded : recording.problems) {
    Known known;
    known.recorded = true;
    known.problem = AttentionProblem::parse(recorded.text);
    std::map<Config, double> times;
    for (Trial trial : recorded.trials) {
      if (trial.status == TrialStatus::kPruned || trial.status == TrialStatus::kCompileError) {
        known.refused.insert(trial.config);
      }
      if (trial.status != TrialStatus::kOk) continue;
      known.trials.push_back(trial);
      times[trial.config] = trial.measurement.cold.median_us;
    }
    known.time = [times](const Config& config) {
      const auto found = times.find(config);
      return found == times.end() ? 0.0 : found->second;
    };
    if (known.trials.empty()) continue;
    find_best(known);
    all.push_back(std::move(known));
  }
  race_defaults(all, recording.device);
  Comparison result;
  compare(all, recording.device, result);
  print(result);
  expect_good(result);
}

}  // namespace
}  // namespace vitune
