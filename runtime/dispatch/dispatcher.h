// runtime/dispatch/dispatcher.h -- Which config serves a problem: exact, else transferred, nearest
// or default.
//
// Exact: a verified winner of this very problem on this kind of device, or of one that is the same
// work for its kernel (generator/attention/same_work.h); by the other objective if there is none by
// the wanted one. Nearest: of the configs that won or were tried on problems of the same class (the
// same compile-time facts), those with the least predicted time for this problem
// (runtime/dispatch/nearest.h). Transferred: the config of a winner of this problem on a like
// device (runtime/dispatch/source_winners.h), or of one near it where this device has no winner of
// the class; never its kernel. Default: what the generator holds to be good without tuning. The
// first look-up that has no row of its own reads all winners of the device, once. One thread at a
// time; the caller owns the databases.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/device_info.h"
#include "db/store.h"
#include "generator/parameter_space.h"
#include "generator/problem.h"
#include "runtime/dispatch/nearest.h"
#include "runtime/dispatch/source_winners.h"
#include "runtime/dispatch/winner_index.h"

namespace vitune {

enum class LookupOutcome { kExact, kNearest, kTransferred, kDefault };
// "exact", "nearest", "transferred", "default".
std::string lookup_outcome_name(LookupOutcome outcome);

// Policy for a problem without a winner of its own.
enum class MissPolicy { kNearest, kDefault, kCompile, kError };
std::optional<MissPolicy> miss_policy_from_name(std::string_view name);
// The warning where VITUNE_MISS is none of them: it goes by kNearest.
std::string ignored_miss_policy(std::string_view name);

// A config that may serve the problem, with the row that speaks for it.
struct Choice {
  LookupOutcome outcome = LookupOutcome::kDefault;
  Config config;
  // kExact: the winner. kNearest: the winner of the problem that the config comes from; its own
  // config, unless the reason says that it was only tried there. kTransferred: the winner on the
  // source device, which the row names. Nothing for kDefault.
  std::optional<WinnerEntry> row;
  std::string layer;        // where the row is (layer_name()); empty for kDefault
  double predicted_us = 0;  // of this problem; 0: not predicted
  std::string reason;       // one sentence
};

class Dispatcher {
 public:
  Dispatcher(DeviceInfo device, Objective objective)
      : device_(std::move(device)),
        objective_(objective),
        index_(device_, objective),
        sources_(device_, objective) {}

  // The configs that may serve `problem`, best first, each inside the space of the device: at most
  // one kExact, then kNearest (or kTransferred where no winner of the class is known of this
  // device) by predicted time, then kDefault in order of preference, whose first goes ahead of the
  // nearest ones unless those are near or much faster. The winner of the same problem on a device
  // with as many SMs goes ahead of both. All but kExact are looked for only if there is none. Empty
  // only if no kernel fits the device. Throws Error(kDatabase) if a database cannot be read.
  std::vector<Choice> choices(const ProblemPtr& problem, LayeredStore& store);
  // The same, but of a problem with a winner the kExact alone: what lies behind it is asked for if
  // its kernel cannot be used.
  std::vector<Choice> first_choices(const ProblemPtr& problem, LayeredStore& store);
  // The choices of a problem as if it had no winner of its own: what was tried on it counts as the
  // nearest there is.
  std::vector<Choice> choices_without_winner(const ProblemPtr& problem, LayeredStore& store);
  // The choices behind a kExact.
  std::vector<Choice> behind_winner(const ProblemPtr& problem) const;

  // Forgets what was read from the databases; the next call reads again.
  void invalidate();

 private:
  // The first of the problem's winners that fits(LayeredStore::Found); those by the wanted
  // objective come first, and the others are read only if none of them does.
  template <class Fits>
  std::optional<LayeredStore::Found> find_row(const Problem& problem, const DeviceInfo& device,
                                              LayeredStore& store, Fits&& fits) const;
  std::optional<Choice> own_winner(const ProblemPtr& problem, const ParameterSpace& space,
                                   LayeredStore& store) const;
  std::optional<Choice> winner_of_same_work(const ProblemPtr& problem, const ParameterSpace& space,
                                            LayeredStore& store);
  std::vector<Choice> nearest_and_default(const ProblemPtr& problem, const ParameterSpace& space,
                                          LayeredStore& store);
  void put_source_winner_first(const Problem& problem, const ParameterSpace& space,
                               LayeredStore& store, std::vector<Choice>& choices);
  std::vector<Choice> near_choices(const NearestRanking& nearest, const DeviceInfo& measured_on,
                                   LayeredStore& store) const;
  std::optional<WinnerEntry> anchor_row(const NearestConfig& nearest, const DeviceInfo& measured_on,
                                        LayeredStore& store) const;

  DeviceInfo device_;
  Objective objective_;
  WinnerIndex index_;
  SourceWinners sources_;
};

}  // namespace vitune
