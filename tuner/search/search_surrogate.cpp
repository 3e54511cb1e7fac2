// tuner/search/search_surrogate.cpp -- A model of cost over a space, learnt from the trials so far.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/search/search_surrogate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace vitune {
namespace {

// Share of the variance that the model does not try to explain: timer noise.
constexpr double kNugget = 2e-3;
constexpr double kFirstWeight = 0.7, kLeastWeight = 0.02, kLargestWeight = 6;
// Costs beyond e^1.4, four times the best, count as that: how bad a bad config is does not matter.
constexpr double kCeiling = 1.4;
constexpr std::size_t kFitSample = 72;
// Belief in a config without neighbours: as after this many successes and failures.
constexpr double kPriorSuccesses = 1, kPriorFailures = 0.5;

// Solves `factor` x = b for the rows of a Cholesky factor.
std::vector<double> solve(const std::vector<std::vector<double>>& factor, std::vector<double> b) {
  for (std::size_t i = 0; i < b.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) b[i] -= factor[i][j] * b[j];
    b[i] /= factor[i][i];
  }
  return b;
}

double normal_density(double x) { return 0.3989422804014327 * std::exp(-0.5 * x * x); }
double normal_below(double x) { return 0.5 * std::erfc(-x * 0.7071067811865476); }

}  // namespace

Surrogate::Surrogate(const SearchSpace& space, std::vector<std::size_t> columns)
    : space_(space), columns_(std::move(columns)) {
  const std::size_t blocks = (columns_.size() + kLanes - 1) / kLanes;
  solved_.resize(blocks);
  mean_.resize(blocks);
  explained_.resize(blocks);
  neighbours_.resize(columns_.size());
  set_weights(std::vector<double>(space.parameters.size(), kFirstWeight));
}

void Surrogate::set_weights(std::vector<double> weights) {
  weights_ = std::move(weights);
  tables_.resize(weights_.size());
  for (std::size_t p = 0; p < weights_.size(); ++p) {
    const std::size_t count = space_.parameters[p].values.size();
    const bool categorical = space_.parameters[p].categorical;
    const double unit = weights_[p] / std::max(1.0, static_cast<double>(count) - 1);
    tables_[p].assign(count, std::vector<double>(count));
    for (std::size_t a = 0; a < count; ++a) {
      for (std::size_t b = 0; b < count; ++b) {
        const double steps = unit * static_cast<double>(a > b ? a - b : b - a);
        tables_[p][a][b] = categorical ? (a == b ? 0 : weights_[p]) : steps;
      }
    }
  }
}

double Surrogate::covariance(std::size_t a, std::size_t b) const {
  const std::string& x = space_.coordinates[a];
  const std::string& y = space_.coordinates[b];
  double distance = 0;
  for (std::size_t p = 0; p < tables_.size(); ++p) {
    distance += tables_[p][static_cast<std::size_t>(x[p])][static_cast<std::size_t>(y[p])];
  }
  return std::exp(-distance);
}

void Surrogate::add(std::size_t config) {
  if (trials_.size() >= kMaxTrials) return;
  TrialPoint point;
  point.config = config;
  append(std::move(point));
}

void Surrogate::append(TrialPoint point) {
  std::vector<double> row(trials_.size() + 1);
  double rest = 1 + kNugget;
  for (std::size_t j = 0; j < trials_.size(); ++j) {
    double sum = covariance(point.config, trials_[j].config);
    const std::vector<double>& other = trials_[j].row;
    for (std::size_t k = 0; k < j; ++k) sum -= row[k] * other[k];
    row[j] = sum / other[j];
    rest -= row[j] * row[j];
  }
  row.back() = std::sqrt(std::max(rest, kNugget));
  append_columns(row, point.config);
  point.row = std::move(row);
  trials_.push_back(std::move(point));
}

void Surrogate::append_columns(const std::vector<double>& row, std::size_t config) {
  std::vector<float> factor(row.begin(), row.end());
  const float inverse = 1 / factor.back();
  for (std::size_t block = 0; block < solved_.size(); ++block) {
    std::array<float, kLanes> sum{};
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::size_t column = block * kLanes + lane;
      if (column < columns_.size()) {
        sum[lane] = static_cast<float>(covariance(config, columns_[column]));
      }
    }
    const auto& rows = solved_[block];
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) sum[lane] -= factor[r] * rows[r][lane];
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sum[lane] *= inverse;
      explained_[block][lane] += sum[lane] * sum[lane];
    }
    solved_[block].push_back(sum);
  }
}

void Surrogate::set(std::size_t config, std::optional<double> cost) {
  // From the back: a result mostly belongs to one of the last proposals.
  for (auto trial = trials_.rbegin(); trial != trials_.rend(); ++trial) {
    if (trial->config != config) continue;
    trial->outcome = cost ? Outcome::kSucceeded : Outcome::kFailed;
    if (cost) trial->log_cost = std::log(*cost);
    return;
  }
}

// The target of each success, centred and scaled: the log cost with a ceiling.
std::vector<double> Surrogate::targets() {
  best_ = std::numeric_limits<double>::infinity();
  for (const TrialPoint& trial : trials_) {
    if (trial.outcome == Outcome::kSucceeded) best_ = std::min(best_, trial.log_cost);
  }
  std::vector<double> values;
  double sum = 0, squares = 0, count = 0;
  for (const TrialPoint& trial : trials_) {
    const double value = std::min(trial.log_cost, best_ + kCeiling);
    values.push_back(value);
    if (trial.outcome != Outcome::kSucceeded) continue;
    sum += value;
    squares += value * value;
    ++count;
  }
  center_ = sum / count;
  scale_ = std::sqrt(std::max(squares / count - center_ * center_, 1e-6));
  for (double& value : values) value = (value - center_) / scale_;
  return values;
}

void Surrogate::refresh() {
  const bool any = std::any_of(trials_.begin(), trials_.end(), [](const TrialPoint& trial) {
    return trial.outcome == Outcome::kSucceeded;
  });
  ready_ = any && trials_.size() >= 4;
  if (!ready_) return;
  if (trials_.size() >= next_fit_) fit_weights();
  std::vector<double> whitened = targets();
  for (std::size_t i = 0; i < whitened.size(); ++i) {
    double expected = 0;
    for (std::size_t j = 0; j < i; ++j) expected += trials_[i].row[j] * whitened[j];
    // A whitened residual of 0 is the belief that a trial without a cost has the expected one.
    const bool has_cost = trials_[i].outcome == Outcome::kSucceeded;
    whitened[i] = has_cost ? (whitened[i] - expected) / trials_[i].row[i] : 0;
  }
  predict(whitened);
  count_outcomes();
}

void Surrogate::count_outcomes() {
  for (TrialPoint& trial : trials_) {
    if (trial.counted || trial.outcome == Outcome::kRunning) continue;
    trial.counted = true;
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      const float weight = static_cast<float>(covariance(trial.config, columns_[column]));
      neighbours_[column].ended += weight;
      if (trial.outcome == Outcome::kSucceeded) neighbours_[column].succeeded += weight;
    }
  }
}

double Surrogate::chance_of_success(std::size_t column) const {
  const Neighbours& seen = neighbours_[column];
  return (kPriorSuccesses + static_cast<double>(seen.succeeded)) /
         (kPriorSuccesses + kPriorFailures + static_cast<double>(seen.ended));
}

void Surrogate::predict(const std::vector<double>& whitened) {
  const std::vector<float> factor(whitened.begin(), whitened.end());
  for (std::size_t block = 0; block < solved_.size(); ++block) {
    std::array<float, kLanes> sum{};
    const auto& rows = solved_[block];
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) sum[lane] += factor[r] * rows[r][lane];
    }
    mean_[block] = sum;
  }
}

double Surrogate::expected_gain(std::size_t column) const {
  if (!ready_) return 0;
  const std::size_t block = column / kLanes, lane = column % kLanes;
  const double mean = center_ + scale_ * static_cast<double>(mean_[block][lane]);
  const double rest = std::max(1 - static_cast<double>(explained_[block][lane]), kNugget);
  const double deviation = scale_ * std::sqrt(rest);
  const double distance = (best_ - mean) / deviation;
  const double gain = deviation * (distance * normal_below(distance) + normal_density(distance));
  return gain * chance_of_success(column);
}

// Minus twice the log likelihood, up to a constant, with the variance at its best value.
double Surrogate::score_weights(const std::vector<std::size_t>& sample,
                                const std::vector<double>& values) {
  std::vector<std::vector<double>> factor(sample.size());
  double log_determinant = 0;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    factor[i].resize(i + 1);
    double rest = 1 + kNugget;
    for (std::size_t j = 0; j < i; ++j) {
      double sum = covariance(trials_[sample[i]].config, trials_[sample[j]].config);
      for (std::size_t k = 0; k < j; ++k) sum -= factor[i][k] * factor[j][k];
      factor[i][j] = sum / factor[j][j];
      rest -= factor[i][j] * factor[i][j];
    }
    factor[i][i] = std::sqrt(std::max(rest, kNugget));
    log_determinant += 2 * std::log(factor[i][i]);
  }
  const std::vector<double> whitened = solve(factor, values);
  const double squares =
      std::inner_product(whitened.begin(), whitened.end(), whitened.begin(), 1e-9);
  const double count = static_cast<double>(sample.size());
  return count * std::log(squares / count) + log_determinant;
}

// One parameter at a time, halving and doubling its weight while that explains the trials better.
void Surrogate::fit_weights() {
  next_fit_ = trials_.size() * 2;
  const std::vector<double> all = targets();
  std::vector<std::size_t> successes, sample;
  for (std::size_t i = 0; i < trials_.size(); ++i) {
    if (trials_[i].outcome == Outcome::kSucceeded) successes.push_back(i);
  }
  std::vector<double> values;
  const std::size_t step = successes.size() / kFitSample + 1;
  for (std::size_t i = 0; i < successes.size(); i += step) {
    sample.push_back(successes[i]);
    values.push_back(all[successes[i]]);
  }
  std::vector<double> best = weights_;
  double best_score = score_weights(sample, values);
  for (int sweep = 0; sweep < 2; ++sweep) {
    for (std::size_t p = 0; p < best.size(); ++p) {
      for (const double factor : {0.4, 2.5}) {
        std::vector<double> tried = best;
        tried[p] = std::clamp(tried[p] * factor, kLeastWeight, kLargestWeight);
        set_weights(tried);
        const double score = score_weights(sample, values);
        if (score >= best_score) continue;
        best_score = score;
        best = tried;
        break;
      }
    }
  }
  set_weights(best);
  std::vector<TrialPoint> trials = std::move(trials_);
  trials_.clear();
  for (auto& block : solved_) block.clear();
  std::fill(explained_.begin(), explained_.end(), std::array<float, kLanes>{});
  std::fill(neighbours_.begin(), neighbours_.end(), Neighbours{});
  for (TrialPoint& trial : trials) {
    trial.counted = false;
    append(std::move(trial));
  }
}

}  // namespace vitune
