// runtime/dispatcher.h -- Which config serves a problem: exact, else nearest, else default.
//
// Exact: a verified winner of this very problem on this kind of device. Nearest: of the configs
// that won problems of the same class (the same compile-time facts), the one with the least
// predicted time for this problem. Default: what the generator holds to be good without tuning. One
// thread at a time; the caller owns the databases.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/device_info.h"
#include "db/store.h"
#include "generator/attention/problem.h"

namespace vitune {

enum class LookupOutcome { kExact, kNearest, kDefault };
std::string lookup_outcome_name(LookupOutcome outcome);  // "exact", "nearest", "default"

// What to do for a problem without a winner of its own.
enum class MissPolicy { kNearest, kDefault, kCompile, kError };
std::optional<MissPolicy> miss_policy_from_name(std::string_view name);

// A config that may serve the problem, with the row that speaks for it.
struct Choice {
  LookupOutcome outcome = LookupOutcome::kDefault;
  Config config;
  std::optional<WinnerEntry> row;  // nothing for kDefault
  std::string layer;               // where the row is: "user" or "shipped"; empty for kDefault
  double predicted_us = 0;         // of this problem; 0: not predicted
  std::string reason;              // one sentence
};

class Dispatcher {
 public:
  Dispatcher(DeviceInfo device, Objective objective)
      : device_(std::move(device)), objective_(objective) {}

  // The configs that may serve `problem`, best first, each inside the space of the device: at most
  // one kExact, then kNearest by predicted time, then kDefault in order of preference. Empty only
  // if no kernel fits the device. Throws Error(kDatabase) if a database cannot be read.
  std::vector<Choice> choices(const AttentionProblem& problem, LayeredStore& store);

  // Forgets what was read from the databases; the next call reads again.
  void invalidate();

 private:
  DeviceInfo device_;
  Objective objective_;
};

}  // namespace vitune
