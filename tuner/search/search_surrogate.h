// tuner/search/search_surrogate.h -- A model of cost over a space, learnt from the trials so far.
//
// A Gaussian process over the logarithm of the cost. Its covariance is the product over the
// parameters of exp(-weight * distance), so that one parameter's effect may depend on all others';
// the weights are fitted by the likelihood of what was seen. What failed says nothing of its
// neighbours' cost, only that they may fail too: the gain is weighed by the chance of success
// (Gelbart, Snoek, Adams: Bayesian Optimization with Unknown Constraints, 2014). Everything is
// incremental: one more trial costs (trials so far) x (configs) multiply-adds. One thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "tuner/search/search.h"

namespace vitune {

class Surrogate {
 public:
  static constexpr std::size_t kMaxTrials = 512;    // later trials no longer change the model
  static constexpr std::size_t kMaxColumns = 8192;  // configs that it predicts

  // Predicts the configs of `columns` (indices into `space`, which must outlive it).
  Surrogate(const SearchSpace& space, std::vector<std::size_t> columns);

  // Notes that `config` is being tried. Until set() it counts as costing what the model expects, so
  // that trials running at the same time do not crowd together.
  void add(std::size_t config);
  // Its cost in microseconds, or nothing if it failed.
  void set(std::size_t config, std::optional<double> cost);
  // Brings the predictions up to date.
  void refresh();

  std::size_t trials() const { return trials_.size(); }
  const std::vector<std::size_t>& columns() const { return columns_; }
  // By how much the config in `column` is expected to lower the best log cost (a tenth is ten
  // percent): its expected improvement times its chance of success. 0 before there is anything to
  // learn from.
  double expected_gain(std::size_t column) const;

 private:
  static constexpr std::size_t kLanes = 16;
  enum class Outcome { kRunning, kFailed, kSucceeded };
  struct TrialPoint {
    std::size_t config;
    Outcome outcome = Outcome::kRunning;
    double log_cost = 0;      // of a success
    std::vector<double> row;  // of the Cholesky factor
    bool counted = false;     // in neighbours_
  };
  // Counts of one column: trials that ended, and those that succeeded, each weighed by its
  // covariance.
  struct Neighbours {
    float ended = 0, succeeded = 0;
  };

  double covariance(std::size_t a, std::size_t b) const;
  void set_weights(std::vector<double> weights);
  void append(TrialPoint point);
  void append_columns(const std::vector<double>& row, std::size_t config);
  void fit_weights();
  double score_weights(const std::vector<std::size_t>& sample, const std::vector<double>& values);
  std::vector<double> targets();
  void predict(const std::vector<double>& whitened);
  void count_outcomes();
  double chance_of_success(std::size_t column) const;

  const SearchSpace& space_;
  std::vector<std::size_t> columns_;
  std::vector<double> weights_;                           // per parameter
  std::vector<std::vector<std::vector<double>>> tables_;  // [parameter][a][b]: weight * distance
  std::vector<TrialPoint> trials_;
  // Column-wise solutions of the Cholesky factor, in blocks of kLanes columns.
  std::vector<std::vector<std::array<float, kLanes>>> solved_;
  std::vector<std::array<float, kLanes>> mean_;
  std::vector<std::array<float, kLanes>> explained_;  // variance that the trials explain
  std::vector<Neighbours> neighbours_;                // per column
  double center_ = 0, scale_ = 1, best_ = 0;
  std::size_t next_fit_ = 24;
  bool ready_ = false;
};

}  // namespace vitune
