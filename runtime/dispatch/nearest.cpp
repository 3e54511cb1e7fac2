// runtime/dispatch/nearest.cpp -- Evidence of the neighbours, the fitted model, and the blend of
// both.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/dispatch/nearest.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "generator/operator.h"

namespace vitune {
namespace {

constexpr std::size_t kNeighbours = 32;      // whose winners speak for or against a config
constexpr std::size_t kTrialNeighbours = 6;  // whose trials are read
constexpr std::size_t kMostTrials = 6000;    // rows read for one miss; a nearer problem goes first
constexpr double kWorthCarrying = 2.0;  // times the best of its problem: beyond is no candidate
constexpr double kUnmeasured = 0.03;    // of the logarithm: what a config without anchor gives
constexpr double kSharpness = 0.1;      // of distances; a neighbour's weight is 1 / (0.1 + d)^2
constexpr double kPriorWeight = 1.0;    // of the neighbours' mean misjudgement
// Of the logarithm, where the evidence weighs 1: the least of many guesses is mostly one that errs
// low, so a guess with little behind it has to promise more.
constexpr double kCaution = 0.1;

// What was measured of one config on one neighbour.
struct Evidence {
  std::size_t neighbour;
  double residual;  // logarithm of measured over predicted
};

struct Candidate {
  std::vector<Evidence> evidence;
  std::optional<std::size_t> won_on;  // the nearest neighbour
  std::size_t nearest = 0;            // neighbour it was seen on
  int registers = 0;                  // what the compiler gave a thread there; 0: not known
};

struct Neighbour {
  const IndexedWinner* winner;
  double distance;
  double weight;
};

// A measured run of a config on a neighbour.
struct Run {
  std::size_t neighbour;
  Config config;
  int registers;
  double us;
};

Residency residency(Objective objective) {
  return objective == Objective::kCold ? Residency::kCold : Residency::kWarm;
}

class Ranking {
 public:
  Ranking(const ProblemPtr& problem, const DeviceInfo& device, Objective objective,
          const ParameterSpace& space)
      : problem_(*problem),
        op_(problem_.op()),
        device_(device),
        objective_(objective),
        space_(space),
        cost_(op_.cost_model(device, residency(objective))) {}

  void gather(const WinnerIndex& index, LayeredStore& store) {
    for (const IndexedWinner* winner : index.same_class(problem_)) {
      const double distance = op_.distance(problem_, *winner->problem);
      const double near = kSharpness + distance;
      neighbours_.push_back({winner, distance, 1 / (near * near)});
    }
    std::stable_sort(
        neighbours_.begin(), neighbours_.end(),
        [](const Neighbour& a, const Neighbour& b) { return a.distance < b.distance; });
    const std::size_t measured = std::min(neighbours_.size(), kNeighbours);
    for (std::size_t i = 0; i < neighbours_.size(); ++i) {
      add_winner(i, i < measured);
      if (i < kTrialNeighbours) add_trials(i, store);
    }
  }

  void fit() {
    std::vector<MeasuredCall> calls;
    for (const Run& run : runs_) {
      calls.push_back({&problem_of(run.neighbour), &run.config, run.registers, run.us});
    }
    const std::vector<double> predicted = cost_->fit(calls);
    double weights = 0, sum = 0;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const Run& run = runs_[i];
      const double residual = std::log(run.us / predicted[i]);
      candidates_[carried(run.config, problem_of(run.neighbour))].evidence.push_back(
          {run.neighbour, residual});
      weights += neighbours_[run.neighbour].weight;
      sum += neighbours_[run.neighbour].weight * residual;
    }
    mean_residual_ = weights > 0 ? sum / weights : 0;
  }

  double predict(const Config& config) const {
    const auto known = candidates_.find(config);
    double weights = kPriorWeight, sum = kPriorWeight * mean_residual_;
    bool measured = false;
    int registers = 0;
    if (known != candidates_.end()) {
      registers = known->second.registers;
      for (const Evidence& evidence : known->second.evidence) {
        weights += neighbours_[evidence.neighbour].weight;
        sum += neighbours_[evidence.neighbour].weight * evidence.residual;
        measured = true;
      }
    }
    const double caution = kCaution / std::sqrt(weights) + (measured ? 0 : kUnmeasured);
    const double residual = sum / weights + caution;
    return cost_->us(problem_, config, registers) * std::exp(residual);
  }

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

  void add_candidate(const Config& config, std::size_t neighbour, bool won) {
    const auto [it, fresh] = candidates_.try_emplace(carried(config, problem_of(neighbour)));
    if (fresh) it->second.nearest = neighbour;
    if (won && !it->second.won_on) it->second.won_on = neighbour;
  }

  // The same for a config that the index owns. Thousands of winners share some hundred configs, and
  // only the first of each, the nearest, says anything new.
  void add_indexed(const Config* config, std::size_t neighbour, bool won) {
    if (config == nullptr) return;
    const std::int64_t alike = op_.carried_class(*config, problem_of(neighbour), space_);
    if (indexed_.emplace(config, alike, won).second) add_candidate(*config, neighbour, won);
  }

  void add_run(std::size_t neighbour, const Config& config, double us, int registers) {
    runs_.push_back({neighbour, config, registers, us});
  }

  void add_winner(std::size_t neighbour, bool measured) {
    const IndexedWinner& winner = *neighbours_[neighbour].winner;
    add_indexed(winner.config, neighbour, true);
    add_indexed(winner.runner_up, neighbour, false);
    if (!measured) return;
    add_run(neighbour, *winner.config, winner.us, 0);
    if (winner.runner_up != nullptr) {
      add_run(neighbour, *winner.runner_up, winner.runner_up_us, 0);
    }
  }

  // The neighbour's trials, unless too many were read before.
  void add_trials(std::size_t neighbour, LayeredStore& store) {
    if (trials_read_ >= kMostTrials) return;
    const IndexedWinner& winner = *neighbours_[neighbour].winner;
    std::set<std::string> known = {winner.config->text()};
    if (winner.runner_up != nullptr) known.insert(winner.runner_up->text());
    const Problem& from = *winner.problem;
    for (const Trial& trial : store.trials(device_, {from.operator_name(), from.text()})) {
      ++trials_read_;
      const double us = trial.measurement.by(objective_).median_us;
      const bool counts =
          trial.status == TrialStatus::kOk && trial.origin != Origin::kImported && us > 0;
      if (!counts || us > kWorthCarrying * winner.us) continue;
      add_candidate(trial.config, neighbour, false);
      note_registers(trial, from);
      if (!known.insert(trial.config.text()).second) continue;  // the race's figure is better
      add_run(neighbour, trial.config, us, trial.compile.registers);
    }
  }

  // Kernels of one class and config differ by the token count at most, hardly in registers.
  void note_registers(const Trial& trial, const Problem& from) {
    Candidate& candidate = candidates_.at(carried(trial.config, from));
    if (candidate.registers == 0) candidate.registers = trial.compile.registers;
  }

  NearestConfig described(const Config& config, double us) const {
    const Candidate& candidate = candidates_.at(config);
    const std::size_t place = candidate.won_on.value_or(candidate.nearest);
    std::set<std::size_t> places;
    for (const Evidence& evidence : candidate.evidence) places.insert(evidence.neighbour);
    const IndexedWinner& winner = *neighbours_[place].winner;
    return {config,
            winner.problem,
            candidate.won_on.has_value(),
            winner.layer,
            us,
            static_cast<int>(places.size())};
  }

  const Problem& problem_;
  const Operator& op_;
  const DeviceInfo& device_;
  Objective objective_;
  const ParameterSpace& space_;
  std::unique_ptr<CostModel> cost_;
  std::vector<Neighbour> neighbours_;  // the nearest first
  std::vector<Run> runs_;
  std::map<Config, Candidate> candidates_;
  std::set<std::tuple<const Config*, std::int64_t, bool>> indexed_;
  double mean_residual_ = 0;
  std::size_t trials_read_ = 0;
};

}  // namespace

NearestRanking rank_nearest(const ProblemPtr& problem, const DeviceInfo& device,
                            Objective objective, const WinnerIndex& index, LayeredStore& store,
                            const ParameterSpace& space, const std::vector<Config>& defaults,
                            std::size_t limit) {
  Ranking ranking(problem, device, objective, space);
  ranking.gather(index, store);
  ranking.fit();
  NearestRanking result = ranking.best(limit);
  for (const Config& config : defaults) result.default_us.push_back(ranking.predict(config));
  result.default_loss = ranking.default_loss();
  return result;
}

}  // namespace vitune
