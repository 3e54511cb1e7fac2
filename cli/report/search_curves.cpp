// cli/report/search_curves.cpp -- Runs strategies against recorded costs and pools what they found.
#include "cli/report/search_curves.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "core/error.h"
#include "tuner/evaluate/replay_evaluator.h"
#include "tuner/measure/statistics.h"

namespace vitune {
namespace {

constexpr int kGridPoints = 49;
constexpr double kFirstShare = 0.001;

// Shares of the space at which curves are read, evenly on a log scale up to 1.
std::vector<double> share_grid() {
  std::vector<double> grid;
  for (int i = 0; i < kGridPoints; ++i) {
    grid.push_back(std::pow(kFirstShare, 1 - static_cast<double>(i) / (kGridPoints - 1)));
  }
  return grid;
}

// The costs of a space's configs, as a recording has them; nothing for those that failed.
struct RecordedSpace {
  SearchSpace space;
  std::vector<std::optional<double>> costs;
  std::optional<std::size_t> start;  // the default config
  double optimum = std::numeric_limits<double>::infinity();
};

RecordedSpace recorded_space(const Recording& recording, const RecordedProblem& problem,
                             const std::atomic<bool>& stop) {
  ReplayEvaluator evaluator(recording, nullptr, {}, stop);
  const ProblemPtr parsed = parse_problem(problem.text);
  RecordedSpace result{evaluator.space(parsed), {}, std::nullopt};
  std::map<Config, double> known;
  for (const Trial& trial : problem.trials) {
    if (trial.status == TrialStatus::kOk) known[trial.config] = trial.measurement.cold.median_us;
  }
  for (const Config& config : result.space.configs) {
    const auto found = known.find(config);
    result.costs.push_back(found == known.end() ? std::nullopt : std::optional(found->second));
    if (found != known.end()) result.optimum = std::min(result.optimum, found->second);
  }
  result.start = result.space.preset;
  return result;
}

struct Run {
  std::vector<double> best;  // after each trial: optimum over best so far
  double stopped_at = 1;     // share of the space
};

// Trials until the strategy has converged or the space is used up; afterwards nothing improves.
Run run_strategy(SearchStrategy& strategy, const RecordedSpace& recorded,
                 const std::atomic<bool>& stop) {
  Run run;
  double best = std::numeric_limits<double>::infinity();
  while (!strategy.converged()) {
    if (stop) throw Error(ErrorCode::kInterrupted, "interrupted while strategies were replayed");
    const auto index = strategy.propose();
    if (!index) break;
    const std::optional<double> cost = recorded.costs[*index];
    strategy.report(*index, cost);
    best = std::min(best, cost.value_or(best));
    run.best.push_back(recorded.optimum / best);
  }
  run.stopped_at =
      static_cast<double>(run.best.size()) / static_cast<double>(recorded.space.size());
  return run;
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], place - static_cast<double>(below));
}

CurvePoint point_of(double share, std::vector<double> values) {
  return {share, quantile(values, 0.1), quantile(values, 0.5), quantile(values, 0.9)};
}

double best_at(const Run& run, double share, std::size_t space) {
  // A share that is not a whole trial is what the last whole one had found.
  const auto trials = static_cast<std::size_t>(share * static_cast<double>(space) + 1e-9);
  if (trials == 0 || run.best.empty()) return 0;
  return run.best[std::min(trials, run.best.size()) - 1];
}

StrategyCurve curve_of(const std::string& name, const std::vector<Run>& runs, std::size_t space) {
  StrategyCurve curve{name, {}, 1};
  for (const double share : share_grid()) {
    std::vector<double> values;
    for (const Run& run : runs) values.push_back(best_at(run, share, space));
    curve.points.push_back(point_of(share, values));
  }
  std::vector<double> stops;
  for (const Run& run : runs) stops.push_back(run.stopped_at);
  curve.stopped_at = quantile(stops, 0.5);
  return curve;
}

}  // namespace

SearchCurves search_curves(const Recording& recording, const RecordedProblem& problem, int seeds,
                           const std::atomic<bool>& stop) {
  const RecordedSpace recorded = recorded_space(recording, problem, stop);
  SearchCurves curves{problem.name, recorded.space.size(), recorded.optimum, {}};
  if (!std::isfinite(recorded.optimum)) return curves;
  std::vector<std::size_t> start;
  if (recorded.start) start.push_back(*recorded.start);
  std::vector<Run> local, random;
  for (int seed = 1; seed <= seeds; ++seed) {
    const auto number = static_cast<std::uint64_t>(seed);
    local.push_back(
        run_strategy(*make_local_search(recorded.space, number, start), recorded, stop));
    random.push_back(run_strategy(*make_random_search(recorded.space, number), recorded, stop));
  }
  const Run exhaustive = run_strategy(*make_exhaustive_search(recorded.space), recorded, stop);
  curves.strategies.push_back(curve_of("local", local, recorded.space.size()));
  curves.strategies.push_back(curve_of("random", random, recorded.space.size()));
  curves.strategies.push_back(curve_of("exhaustive", {exhaustive}, recorded.space.size()));
  return curves;
}

SearchCurves pooled_curves(const std::vector<SearchCurves>& problems) {
  SearchCurves pooled;
  pooled.name = "all problems";
  std::map<std::string, std::vector<const StrategyCurve*>> by_strategy;
  for (const SearchCurves& problem : problems) {
    pooled.space += problem.space;
    for (const StrategyCurve& curve : problem.strategies) {
      by_strategy[curve.strategy].push_back(&curve);
    }
  }
  for (const auto& [name, curves] : by_strategy) {
    StrategyCurve all{name, {}, 1};
    for (std::size_t i = 0; i < curves[0]->points.size(); ++i) {
      std::vector<double> medians;
      for (const StrategyCurve* curve : curves) medians.push_back(curve->points[i].median);
      all.points.push_back(point_of(curves[0]->points[i].share_tried, medians));
    }
    std::vector<double> stops;
    for (const StrategyCurve* curve : curves) stops.push_back(curve->stopped_at);
    all.stopped_at = quantile(stops, 0.5);
    pooled.strategies.push_back(std::move(all));
  }
  return pooled;
}

}  // namespace vitune
