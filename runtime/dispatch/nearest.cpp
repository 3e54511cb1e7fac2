// runtime/dispatch/nearest.cpp -- Evidence of the neighbours, each weighed by how near it is.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/dispatch/nearest.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "generator/floor.h"
#include "generator/operator.h"

namespace vitune {
namespace {

constexpr std::size_t kNeighbours = 32;      // whose winners speak for or against a config
constexpr std::size_t kTrialNeighbours = 6;  // whose trials are read
constexpr std::size_t kMostTrials = 6000;    // rows read for one miss; a nearer problem goes first
constexpr double kWorthCarrying = 2.0;  // times the best of its problem: beyond is no candidate,
                                        // though evidence against one from elsewhere
constexpr double kUnmeasured = 0.03;    // of the logarithm: what a config without anchor gives
constexpr double kSharpness = 0.1;      // of distances; a neighbour's weight is 1 / (0.1 + d)^2
constexpr double kOtherLoad = 1;        // of distances: other forms of kernels are good there
constexpr double kBehind = 1.1;       // times the default before it: what was not measured may take
constexpr double kPriorWeight = 1.0;  // of the neighbours' mean
// Added to the logarithm where the evidence weighs 1: the least of many guesses is mostly one that
// errs low, so a guess with little behind it has to promise more.
constexpr double kCaution = 0.1;

// Measurements of one config on one neighbour.
struct Evidence {
  std::size_t neighbour;
  double loss;  // logarithm of the measured time over the winner's
};

struct Candidate {
  std::optional<std::size_t> won_on;  // the nearest neighbour
  std::size_t nearest = 0;            // neighbour it was seen on
};

struct Neighbour {
  const IndexedWinner* winner;
  double distance;
  double weight;
};

Residency residency(Objective objective) {
  return objective == Objective::kCold ? Residency::kCold : Residency::kWarm;
}

class Ranking {
 public:
  Ranking(const ProblemPtr& problem, const DeviceInfo& device, const DeviceInfo& measured_on,
          Objective objective, const ParameterSpace& space)
      : problem_(*problem),
        op_(problem_.op()),
        device_(device),
        measured_on_(measured_on),
        objective_(objective),
        space_(space),
        best_us_(least_us(problem_, device_, objective_)) {}

  void gather(const WinnerIndex& index, LayeredStore& store) {
    for (const IndexedWinner* winner : index.same_class(problem_)) {
      const double distance = op_.distance(problem_, *winner->problem);
      const bool alike = op_.is_load_alike(problem_, *winner->problem, device_);
      const double near = kSharpness + distance + (alike ? 0 : kOtherLoad);
      neighbours_.push_back({winner, distance, 1 / (near * near)});
    }
    std::stable_sort(
        neighbours_.begin(), neighbours_.end(),
        [](const Neighbour& a, const Neighbour& b) { return a.distance < b.distance; });
    double weights = 0, level = 0;
    const std::size_t measured = std::min(neighbours_.size(), kNeighbours);
    for (std::size_t i = 0; i < neighbours_.size(); ++i) {
      add_winner(i, i < measured);
      if (i < kTrialNeighbours) add_trials(i, store);
      if (i >= measured) continue;
      const Neighbour& neighbour = neighbours_[i];
      weights += neighbour.weight;
      const double least = least_us(problem_of(i), measured_on_, objective_);
      level += neighbour.weight * std::log(neighbour.winner->us / least);
    }
    if (weights > 0) best_us_ *= std::exp(level / weights);
  }

  double predict(const Config& config) const {
    const double mean_loss = loss_weights_ > 0 ? losses_ / loss_weights_ : 0;
    double weights = kPriorWeight, sum = kPriorWeight * mean_loss;
    for (const Evidence& evidence : evidence_of(config)) {
      weights += neighbours_[evidence.neighbour].weight;
      sum += neighbours_[evidence.neighbour].weight * evidence.loss;
    }
    const double caution = kCaution / std::sqrt(weights) + (is_measured(config) ? 0 : kUnmeasured);
    return best_us_ * std::exp(sum / weights + caution);
  }

  bool is_measured(const Config& config) const { return evidence_.contains(config); }

  std::optional<double> default_loss() const {
    double weights = 0, sum = 0;
    for (const Neighbour& neighbour : neighbours_) {
      if (!(neighbour.winner->default_loss > 0)) continue;
      weights += neighbour.weight;
      sum += neighbour.weight * std::log(neighbour.winner->default_loss);
    }
    return weights > 0 ? std::optional(std::exp(sum / weights)) : std::nullopt;
  }

  NearestRanking best(std::size_t limit) const {
    std::vector<std::pair<double, const Config*>> order;
    for (const auto& [config, candidate] : candidates_) {
      order.emplace_back(predict(config), &config);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    NearestRanking ranking;
    ranking.considered = order.size();
    for (const auto& [us, config] : order) {
      if (ranking.configs.size() >= limit) break;
      if (!space_.explain(*config)) ranking.configs.push_back(described(*config, us));
    }
    return ranking;
  }

 private:
  const Problem& problem_of(std::size_t neighbour) const {
    return *neighbours_[neighbour].winner->problem;
  }

  // The config as it is written for this problem; see rank_nearest().
  Config carried(const Config& config, const Problem& from) const {
    return op_.carried(config, from, problem_, space_);
  }

  std::span<const Evidence> evidence_of(const Config& config) const {
    const auto known = evidence_.find(config);
    return known != evidence_.end() ? std::span(known->second) : std::span<const Evidence>();
  }

  // `config` is as it is written for this problem, here and in add_run().
  void add_candidate(const Config& config, std::size_t neighbour, bool won) {
    const auto [it, fresh] = candidates_.try_emplace(config);
    if (fresh) it->second.nearest = neighbour;
    if (won && !it->second.won_on) it->second.won_on = neighbour;
  }

  // The same for a config that the index owns. Thousands of winners share some hundred configs, and
  // only the first of each, the nearest, says anything new.
  void add_indexed(const Config* config, std::size_t neighbour, bool won) {
    if (config == nullptr) return;
    const std::int64_t alike = op_.carried_class(*config, problem_of(neighbour), space_);
    if (!indexed_.emplace(config, alike, won).second) return;
    add_candidate(carried(*config, problem_of(neighbour)), neighbour, won);
  }

  // A config too slow to be a candidate tells nothing about the loss of others.
  void add_run(const Config& config, std::size_t neighbour, double us) {
    const auto& [winner, distance, weight] = neighbours_[neighbour];
    const double loss = std::log(us / winner->us);
    evidence_[config].push_back({neighbour, loss});
    if (us > kWorthCarrying * winner->us) return;
    loss_weights_ += weight;
    losses_ += weight * loss;
  }

  void add_winner(std::size_t neighbour, bool measured) {
    const IndexedWinner& winner = *neighbours_[neighbour].winner;
    add_indexed(winner.config, neighbour, true);
    add_indexed(winner.runner_up, neighbour, false);
    if (!measured) return;
    const Problem& from = *winner.problem;
    add_run(carried(*winner.config, from), neighbour, winner.us);
    if (winner.runner_up_us > 0) {
      add_run(carried(*winner.runner_up, from), neighbour, winner.runner_up_us);
    }
  }

  // The neighbour's trials, unless too many were read before.
  void add_trials(std::size_t neighbour, LayeredStore& store) {
    if (trials_read_ >= kMostTrials) return;
    const IndexedWinner& winner = *neighbours_[neighbour].winner;
    std::set<std::string> known = {winner.config->text()};
    if (winner.runner_up_us > 0) known.insert(winner.runner_up->text());
    const Problem& from = *winner.problem;
    for (const Trial& trial : store.trials(measured_on_, {from.operator_name(), from.text()})) {
      ++trials_read_;
      const auto us = static_cast<float>(trial.measurement.by(objective_).median_us);
      if (trial.status != TrialStatus::kOk || trial.origin == Origin::kImported) continue;
      if (!(us > 0) || !std::isfinite(us)) continue;
      const Config here = carried(trial.config, from);
      if (us <= kWorthCarrying * winner.us) add_candidate(here, neighbour, false);
      if (!known.insert(trial.config.text()).second) continue;  // the race's figure is better
      add_run(here, neighbour, us);
    }
  }

  NearestConfig described(const Config& config, double us) const {
    const Candidate& candidate = candidates_.at(config);
    const std::size_t place = candidate.won_on.value_or(candidate.nearest);
    const IndexedWinner& winner = *neighbours_[place].winner;
    return {config, winner.problem, candidate.won_on.has_value(), winner.layer, us};
  }

  const Problem& problem_;
  const Operator& op_;
  const DeviceInfo& device_;
  const DeviceInfo& measured_on_;  // the neighbours' device
  Objective objective_;
  const ParameterSpace& space_;
  std::vector<Neighbour> neighbours_;  // the nearest first
  std::map<Config, Candidate> candidates_;
  std::map<Config, std::vector<Evidence>> evidence_;
  std::set<std::tuple<const Config*, std::int64_t, bool>> indexed_;
  double losses_ = 0, loss_weights_ = 0;  // of what may be a candidate: sums
  double best_us_;                        // that the best config for the problem should take
  std::size_t trials_read_ = 0;
};

}  // namespace

double least_us(const Problem& problem, const DeviceInfo& device, Objective objective) {
  constexpr double kLaunchUs = 2;
  const auto floor = floor_of(problem.op().demand(problem, device), device, residency(objective));
  return kLaunchUs + (floor ? floor->us : 0);
}

NearestRanking rank_nearest(const ProblemPtr& problem, const DeviceInfo& device,
                            Objective objective, const WinnerIndex& index, LayeredStore& store,
                            const ParameterSpace& space, const std::vector<Config>& defaults,
                            std::size_t limit) {
  Ranking ranking(problem, device, index.device(), objective, space);
  ranking.gather(index, store);
  NearestRanking result = ranking.best(limit);
  double behind = 1;
  for (const Config& config : defaults) {
    const double us = ranking.predict(config);
    result.default_us.push_back(ranking.is_measured(config) ? us : us * behind);
    behind *= kBehind;
  }
  result.default_measured = !defaults.empty() && ranking.is_measured(defaults.front());
  result.default_loss = ranking.default_loss();
  return result;
}

}  // namespace vitune
