// tuner/search/search_local.cpp -- Neighbours of the best, in the order that a model of the trials
// suggests.
//
// First the seeds and a sample spread over the space. Then best-first: among the untried neighbours
// of the best configs the one with the largest expected gain, unless some config elsewhere promises
// clearly more (a restart). Converged when neither promises anything.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <random>

#include "tuner/search/search.h"
#include "tuner/search/search_surrogate.h"

namespace vitune {
namespace {

constexpr std::size_t kElite = 8;           // the best configs whose neighbours are explored
constexpr double kNearness = 1.5;           // a neighbour is preferred to a config this much better
constexpr double kNegligibleGain = 0.0001;  // of log cost
// Converged: proposals without hope, after so many trials. Searches of 16 recorded spaces end after
// half the trials of the double of both, within 0.05 % of what these find, 0.6 % at worst.
constexpr std::size_t kPatience = 32;
constexpr std::size_t kLeastTrials = 64;

class LocalSearch : public SearchStrategy {
 public:
  LocalSearch(const SearchSpace& space, std::uint64_t seed, const std::vector<std::size_t>& seeds)
      : space_(space),
        random_(seed),
        tried_(space.size(), false),
        model_(space, model_columns()),
        column_of_(space.size(), kNoColumn) {
    for (std::size_t c = 0; c < model_.columns().size(); ++c) column_of_[model_.columns()[c]] = c;
    for (const std::size_t index : seeds) queue_.push_back(index);
    const std::size_t spread = std::clamp<std::size_t>(space.size() / 60, 10, 32);
    for (const std::size_t index : spread_sample(spread)) queue_.push_back(index);
  }

  std::optional<std::size_t> propose() override {
    if (left() == 0) return std::nullopt;
    while (!queue_.empty()) {
      const std::size_t index = queue_.front();
      queue_.pop_front();
      if (index < tried_.size() && !tried_[index]) return take(index);
    }
    return take(most_promising());
  }

  void report(std::size_t index, std::optional<double> cost) override {
    model_.set(index, cost);
    if (cost)
      best_.insert(std::upper_bound(best_.begin(), best_.end(), std::pair(*cost, index)),
                   std::pair(*cost, index));
    if (best_.size() > kElite) best_.pop_back();
  }

  bool converged() const override { return taken_ >= kLeastTrials && hopeless_ >= kPatience; }

 private:
  static constexpr std::size_t kNoColumn = std::numeric_limits<std::size_t>::max();

  std::size_t left() const { return space_.size() - taken_; }

  std::size_t take(std::size_t index) {
    tried_[index] = true;
    ++taken_;
    model_.add(index);
    return index;
  }

  // All configs, or a seeded sample of a space that is too large for the model.
  std::vector<std::size_t> model_columns() {
    std::vector<std::size_t> columns(space_.size());
    for (std::size_t i = 0; i < columns.size(); ++i) columns[i] = i;
    if (columns.size() <= Surrogate::kMaxColumns) return columns;
    for (std::size_t i = 0; i < Surrogate::kMaxColumns; ++i) {
      std::swap(columns[i], columns[i + random_() % (columns.size() - i)]);
    }
    columns.resize(Surrogate::kMaxColumns);
    return columns;
  }

  // Latin hypercube: each parameter's values are dealt evenly; each point then moves to the nearest
  // config that exists.
  std::vector<std::size_t> spread_sample(std::size_t count) {
    std::vector<std::vector<double>> points(count, std::vector<double>(space_.parameters.size()));
    for (std::size_t p = 0; p < space_.parameters.size(); ++p) {
      for (std::size_t i = 0; i < count; ++i) {
        points[i][p] = (static_cast<double>(i) + 0.5) / static_cast<double>(count);
      }
      for (std::size_t i = count; i > 1; --i) {
        std::swap(points[i - 1][p], points[random_() % i][p]);
      }
    }
    std::vector<std::size_t> sample;
    if (space_.size() == 0) return sample;
    for (const auto& point : points) sample.push_back(nearest(point));
    return sample;
  }

  std::size_t nearest(const std::vector<double>& point) const {
    std::size_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < space_.size(); ++i) {
      double distance = 0;
      for (std::size_t p = 0; p < point.size(); ++p) {
        const double count = static_cast<double>(space_.parameters[p].values.size());
        distance +=
            std::abs((static_cast<double>(space_.coordinates[i][p]) + 0.5) / count - point[p]);
      }
      if (distance < least) {
        least = distance;
        best = i;
      }
    }
    return best;
  }

  struct Choice {
    std::size_t index = kNoColumn;
    double gain = -1;
    void offer(std::size_t candidate, double candidate_gain) {
      if (candidate_gain > gain) *this = {candidate, candidate_gain};
    }
  };

  std::size_t most_promising() {
    model_.refresh();
    Choice near, anywhere;
    for (const auto& [cost, index] : best_) {
      for (const std::size_t neighbour : space_.neighbours[index]) {
        if (!tried_[neighbour]) near.offer(neighbour, gain(neighbour));
      }
    }
    for (std::size_t c = 0; c < model_.columns().size(); ++c) {
      const std::size_t index = model_.columns()[c];
      if (!tried_[index]) anywhere.offer(index, model_.expected_gain(c));
    }
    const bool hopeless = std::max(near.gain, anywhere.gain) < kNegligibleGain;
    hopeless_ = hopeless && !best_.empty() ? hopeless_ + 1 : 0;
    if (near.index != kNoColumn && near.gain * kNearness >= anywhere.gain) return near.index;
    if (anywhere.index != kNoColumn && anywhere.gain > 0) return anywhere.index;
    return any_untried();
  }

  double gain(std::size_t index) const {
    return column_of_[index] == kNoColumn ? 0 : model_.expected_gain(column_of_[index]);
  }

  // With nothing to go by, a random config.
  std::size_t any_untried() {
    std::size_t skip = random_() % left();
    for (std::size_t i = 0;; ++i) {
      if (!tried_[i] && skip-- == 0) return i;
    }
  }

  const SearchSpace& space_;
  std::mt19937_64 random_;
  std::vector<bool> tried_;
  Surrogate model_;
  std::vector<std::size_t> column_of_;
  std::deque<std::size_t> queue_;
  std::vector<std::pair<double, std::size_t>> best_;  // cost and index, the best kElite
  std::size_t taken_ = 0;
  std::size_t hopeless_ = 0;  // proposals in a row that promised nothing
};

}  // namespace

std::unique_ptr<SearchStrategy> make_local_search(const SearchSpace& space, std::uint64_t seed,
                                                  const std::vector<std::size_t>& seeds) {
  return std::make_unique<LocalSearch>(space, seed, seeds);
}

}  // namespace vitune
