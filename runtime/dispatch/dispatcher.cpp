// runtime/dispatch/dispatcher.cpp -- Exact, nearest and default choices for a problem.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/dispatch/dispatcher.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/format.h"
#include "core/source_devices.h"
#include "generator/operator.h"
#include "runtime/dispatch/nearest.h"

namespace vitune {
namespace {

constexpr std::array<std::pair<LookupOutcome, std::string_view>, 4> kOutcomeNames = {
    {{LookupOutcome::kExact, "exact"},
     {LookupOutcome::kNearest, "nearest"},
     {LookupOutcome::kTransferred, "transferred"},
     {LookupOutcome::kDefault, "default"}}};

constexpr std::array<std::pair<MissPolicy, std::string_view>, 4> kPolicyNames = {
    {{MissPolicy::kNearest, "nearest"},
     {MissPolicy::kDefault, "default"},
     {MissPolicy::kCompile, "compile"},
     {MissPolicy::kError, "error"}}};

constexpr std::size_t kMostNearest = 8;  // kernels may be refused one after the other, not for ever
constexpr std::size_t kMostOfSource = 64;  // those among them that are near are few

// "24.7 us cold, 1.2 % ahead of the next", or "level with" it: of equals the simplest wins, even if
// it seems slower. Of a winner by the other objective "tuned for warm calls, 24.7 us cold".
std::string race_text(const Winner& winner, Objective objective) {
  const std::string time = formatted("{:.1f} us {}", winner.measurement.by(objective).median_us,
                                     objective_name(objective));
  if (winner.objective != objective) {
    return formatted("tuned for {} calls, {}", objective_name(winner.objective), time);
  }
  if (!winner.runner_up) return time;
  if (winner.lead_percent < 0.05) return formatted("{}, level with the next", time);
  return formatted("{}, {:.1f} % ahead of the next", time, winner.lead_percent);
}

// True if `config` won on a problem of nearly the same size and of like load.
bool is_near(const Problem& problem, const NearestConfig& config, const DeviceInfo& device) {
  constexpr double kNear = 1;
  return config.won && problem.op().distance(problem, *config.anchor) <= kNear &&
         problem.op().is_load_alike(problem, *config.anchor, device);
}

// True if the best of other problems' configs is to be preferred to the first default: if defaults
// were clearly slower than the winners of the neighbours, and the problem that it comes from is
// near and of like load, or the default was measured nearby too and is slower by more than such
// figures are good for. Elsewhere rules for defaults know more of what decides
// (docs/lab/2026-11-21-defaults.md).
bool is_ahead_of_default(const Problem& problem, const NearestRanking& nearest,
                         const DeviceInfo& device) {
  constexpr double kFaster = 0.97, kMuchFaster = 0.85, kGoodDefaults = 1.05;
  if (nearest.default_us.empty()) return true;
  if (nearest.default_loss && *nearest.default_loss <= kGoodDefaults) return false;
  const NearestConfig& best = nearest.configs.front();
  const double ratio = best.predicted_us / nearest.default_us.front();
  const bool alike = problem.op().is_load_alike(problem, *best.anchor, device);
  return is_near(problem, best, device) ||
         (nearest.default_measured && ratio < (alike ? kFaster : kMuchFaster));
}

// Evidence from another device is used for near problems only.
void keep_near(NearestRanking& nearest, const Problem& problem, const DeviceInfo& device) {
  std::erase_if(nearest.configs,
                [&](const NearestConfig& config) { return !is_near(problem, config, device); });
  if (nearest.configs.size() > kMostNearest) nearest.configs.resize(kMostNearest);
}

Choice transferred_choice(SourceWinner found, const ParameterSpace& space, Objective objective) {
  Choice choice;
  choice.outcome = LookupOutcome::kTransferred;
  choice.config = space.completed(found.row.winner.config);
  choice.layer = layer_name(found.layer);
  choice.predicted_us = found.predicted_us;
  choice.reason = formatted("transferred from {}: won this problem there, {}",
                            shown_device(found.row.device), race_text(found.row.winner, objective));
  choice.row = std::move(found.row);
  return choice;
}

Choice nearest_choice(const NearestConfig& nearest, std::size_t considered) {
  Choice choice;
  choice.outcome = LookupOutcome::kNearest;
  choice.layer = layer_name(nearest.layer);
  choice.predicted_us = nearest.predicted_us;
  // The text of a problem may be long and comes last: what is cut off is in the row too.
  choice.reason = formatted("nearest: predicted {:.1f} us ({} candidate{}); {} '{}'",
                            nearest.predicted_us, considered, considered == 1 ? "" : "s",
                            nearest.won ? "won" : "was tried on", nearest.anchor->text());
  choice.config = nearest.config;
  return choice;
}

Choice default_choice(const Config& config, std::size_t place, bool is_alone, double predicted_us,
                      std::optional<double> loss = std::nullopt) {
  Choice choice;
  choice.config = config;
  choice.predicted_us = predicted_us;
  choice.reason = place == 0 ? "default: first" : formatted("default: number {}", place + 1);
  choice.reason += " of the configs that are good without tuning";
  if (is_alone) choice.reason += ", no winner of its class is known";
  if (predicted_us > 0) choice.reason += formatted(", predicted {:.1f} us", predicted_us);
  if (place == 0 && loss) {
    choice.reason += formatted(", defaults took {:.2f} times the winners' time nearby", *loss);
  }
  return choice;
}

// `measured_on`: the source device of a config that won there on a near problem.
Choice near_transferred_choice(const NearestConfig& nearest, std::size_t considered,
                               const DeviceInfo& measured_on) {
  Choice choice = nearest_choice(nearest, considered);
  choice.outcome = LookupOutcome::kTransferred;
  choice.reason = formatted("transferred from {}: predicted {:.1f} us ({} candidate{}); won '{}'",
                            shown_device(measured_on), nearest.predicted_us, considered,
                            considered == 1 ? "" : "s", nearest.anchor->text());
  return choice;
}

bool is_usable(const ParameterSpace& space, const Config& config) {
  return !space.explain(space.completed(config));
}

}  // namespace

std::string lookup_outcome_name(LookupOutcome outcome) {
  for (const auto& [value, name] : kOutcomeNames) {
    if (value == outcome) return std::string(name);
  }
  return "?";
}

std::optional<MissPolicy> miss_policy_from_name(std::string_view name) {
  for (const auto& [value, known] : kPolicyNames) {
    if (known == name) return value;
  }
  return std::nullopt;
}

std::string ignored_miss_policy(std::string_view name) {
  return formatted("VITUNE_MISS='{}' is ignored: it may be nearest, default, compile or error",
                   name);
}

template <class Fits>
std::optional<LayeredStore::Found> Dispatcher::find_row(const Problem& problem,
                                                        const DeviceInfo& device,
                                                        LayeredStore& store, Fits&& fits) const {
  const ProblemKey key{problem.operator_name(), problem.text()};
  for (const Objective objective : {objective_, other_objective(objective_)}) {
    for (LayeredStore::Found& found : store.find_winners(device, key, objective)) {
      if (fits(found)) return std::move(found);
    }
  }
  return std::nullopt;
}

std::optional<Choice> Dispatcher::own_winner(const ProblemPtr& problem, const ParameterSpace& space,
                                             LayeredStore& store) const {
  auto found = find_row(*problem, device_, store, [&](const LayeredStore::Found& row) {
    return row.winner.verified && is_usable(space, row.winner.config);
  });
  if (!found) return std::nullopt;
  Choice exact;
  exact.outcome = LookupOutcome::kExact;
  exact.config = found->winner.config;
  exact.layer = layer_name(found->layer);
  exact.reason = formatted("exact: won this problem, {}", race_text(found->winner, objective_));
  exact.row = WinnerEntry{device_, ProblemKey{problem->operator_name(), problem->text()},
                          std::move(found->winner)};
  return exact;
}

std::optional<Choice> Dispatcher::winner_of_same_work(const ProblemPtr& problem,
                                                      const ParameterSpace& space,
                                                      LayeredStore& store) {
  index_.read(store);
  const IndexedWinner* same = index_.find_same_work(problem);
  if (same == nullptr || !is_usable(space, *same->config)) return std::nullopt;
  const ParameterSpace own_space = same->problem->op().space(*same->problem, device_);
  auto exact = own_winner(same->problem, own_space, store);
  // The row may have changed since the index was read; then the index is out of date.
  if (!exact || exact->config != *same->config) return std::nullopt;
  exact->reason = formatted("exact: won the same work, {}: '{}'",
                            race_text(exact->row->winner, objective_), same->problem->text());
  return exact;
}

// The stored row that a nearest config comes from; nothing if it has gone since the index was read.
std::optional<WinnerEntry> Dispatcher::anchor_row(const NearestConfig& nearest,
                                                  const DeviceInfo& measured_on,
                                                  LayeredStore& store) const {
  auto found = find_row(*nearest.anchor, measured_on, store,
                        [&](const LayeredStore::Found& row) { return row.layer == nearest.layer; });
  if (!found) return std::nullopt;
  return WinnerEntry{measured_on,
                     ProblemKey{nearest.anchor->operator_name(), nearest.anchor->text()},
                     std::move(found->winner)};
}

std::vector<Choice> Dispatcher::choices(const ProblemPtr& problem, LayeredStore& store) {
  std::vector<Choice> choices = first_choices(problem, store);
  if (!choices.empty() && choices.front().outcome == LookupOutcome::kExact) {
    for (Choice& behind : behind_winner(problem)) choices.push_back(std::move(behind));
  }
  return choices;
}

std::vector<Choice> Dispatcher::first_choices(const ProblemPtr& problem, LayeredStore& store) {
  std::vector<Choice> choices;
  const ParameterSpace space = problem->op().space(*problem, device_);
  std::optional<Choice> exact = own_winner(problem, space, store);
  if (!exact) exact = winner_of_same_work(problem, space, store);
  if (!exact) return nearest_and_default(problem, space, store);
  choices.push_back(std::move(*exact));
  return choices;
}

std::vector<Choice> Dispatcher::choices_without_winner(const ProblemPtr& problem,
                                                       LayeredStore& store) {
  index_.read(store);
  return nearest_and_default(problem, problem->op().space(*problem, device_), store);
}

// The index has been read.
std::vector<Choice> Dispatcher::nearest_and_default(const ProblemPtr& problem,
                                                    const ParameterSpace& space,
                                                    LayeredStore& store) {
  const std::vector<Config> defaults = problem->op().defaults(*problem, device_, space);
  const bool is_alone = index_.same_class(*problem).empty();
  const WinnerIndex* const source = is_alone ? sources_.of_class(*problem, store) : nullptr;
  const WinnerIndex& index = source != nullptr ? *source : index_;
  NearestRanking nearest = rank_nearest(problem, device_, objective_, index, store, space, defaults,
                                        source != nullptr ? kMostOfSource : kMostNearest);
  if (source != nullptr) keep_near(nearest, *problem, device_);
  std::vector<Choice> choices = near_choices(nearest, index.device(), store);
  const bool first = choices.empty() || !is_ahead_of_default(*problem, nearest, device_);
  for (std::size_t i = 0; i < defaults.size(); ++i) {
    const double us = i < nearest.default_us.size() ? nearest.default_us[i] : 0;
    choices.insert(i == 0 && first ? choices.begin() : choices.end(),
                   default_choice(defaults[i], i, is_alone, us, nearest.default_loss));
  }
  put_source_winner_first(*problem, space, store, choices);
  return choices;
}

std::vector<Choice> Dispatcher::near_choices(const NearestRanking& nearest,
                                             const DeviceInfo& measured_on,
                                             LayeredStore& store) const {
  const bool is_own = measured_on.key() == device_.key();
  std::vector<Choice> choices;
  for (const NearestConfig& config : nearest.configs) {
    auto row = anchor_row(config, measured_on, store);
    if (!row && !is_own) continue;
    choices.push_back(is_own ? nearest_choice(config, nearest.considered)
                             : near_transferred_choice(config, nearest.considered, measured_on));
    choices.back().row = std::move(row);
  }
  return choices;
}

// Defaults stay as they are: a policy may want them alone.
void Dispatcher::put_source_winner_first(const Problem& problem, const ParameterSpace& space,
                                         LayeredStore& store, std::vector<Choice>& choices) {
  auto found = sources_.find(problem, space, store);
  if (!found) return;
  Choice choice = transferred_choice(std::move(*found), space, objective_);
  std::erase_if(choices, [&](const Choice& other) {
    return other.outcome != LookupOutcome::kDefault && other.config == choice.config;
  });
  choices.insert(choices.begin(), std::move(choice));
}

std::vector<Choice> Dispatcher::behind_winner(const ProblemPtr& problem) const {
  std::vector<Choice> choices;
  const ParameterSpace space = problem->op().space(*problem, device_);
  for (const Config& config : problem->op().defaults(*problem, device_, space)) {
    choices.push_back(default_choice(config, choices.size(), false, 0));
  }
  return choices;
}

void Dispatcher::invalidate() {
  index_.forget();
  sources_.forget();
}

}  // namespace vitune
