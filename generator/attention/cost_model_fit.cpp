// generator/attention/cost_model_fit.cpp -- Gauss-Newton on logarithms, robust and held back.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/cost_model_fit.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace vitune {
namespace {

using Vector = std::array<double, kCostTerms>;
using Matrix = std::array<Vector, kCostTerms>;

constexpr double kModelError = 0.2;    // of the logarithm of a time: what the model leaves out
constexpr double kHuber = 1.5;         // in units of it: beyond, the pull no longer grows
constexpr double kPriorWidth = 0.2;    // of the logarithm of a coefficient
constexpr std::size_t kSamples = 512;  // more say little new and cost time at a miss
constexpr double kFarthest = std::numbers::ln2;

CostCoefficients moved(const CostCoefficients& initial, const Vector& by) {
  CostCoefficients result;
  for (std::size_t i = 0; i < kCostTerms; ++i) {
    result.values[i] = initial.values[i] * std::exp(by[i]);
  }
  return result;
}

class Fit {
 public:
  Fit(std::span<const CostSample> samples, const DeviceInfo& device, Residency state,
      const CostCoefficients& initial)
      : device_(device), state_(state), initial_(initial) {
    const std::size_t stride = samples.size() / kSamples + 1;
    for (std::size_t i = 0; i < samples.size(); i += stride) {
      if (std::isfinite(samples[i].us) && samples[i].us > 0) samples_.push_back(samples[i]);
    }
  }

  Vector solve() const {
    constexpr int kRounds = 12;
    Vector at{};
    double damping = 1e-3;
    double best = loss(at);
    for (int round = 0; round < kRounds && !samples_.empty(); ++round) {
      const Vector next = step(at, damping);
      const double reached = loss(next);
      if (reached < best) {
        at = next;
        best = reached;
        damping = std::max(damping / 4, 1e-6);
      } else {
        damping *= 8;
      }
    }
    return at;
  }

 private:
  std::vector<double> residuals_at(const Vector& at) const {
    const CostCoefficients cost = moved(initial_, at);
    std::vector<double> residuals;
    for (const CostSample& sample : samples_) {
      residuals.push_back(std::log(predicted_us(sample.work, device_, cost, state_) / sample.us) /
                          kModelError);
    }
    return residuals;
  }

  double loss(const Vector& at) const {
    double sum = 0;
    for (const double value : at) sum += value * value / (kPriorWidth * kPriorWidth) / 2;
    for (const double residual : residuals_at(at)) {
      const double size = std::abs(residual);
      sum += size <= kHuber ? size * size / 2 : kHuber * (size - kHuber / 2);
    }
    return sum;
  }

  // What each residual gains per unit of each coefficient's logarithm.
  std::array<std::vector<double>, kCostTerms> slopes(const Vector& at,
                                                     const std::vector<double>& here) const {
    constexpr double kDifference = 1e-4;
    std::array<std::vector<double>, kCostTerms> result;
    for (std::size_t i = 0; i < kCostTerms; ++i) {
      Vector beside = at;
      beside[i] += kDifference;
      result[i] = residuals_at(beside);
      for (std::size_t s = 0; s < here.size(); ++s) {
        result[i][s] = (result[i][s] - here[s]) / kDifference;
      }
    }
    return result;
  }

  Vector step(const Vector& at, double damping) const {
    const std::vector<double> here = residuals_at(at);
    const auto slope = slopes(at, here);
    Matrix normal{};
    Vector gradient{};
    for (std::size_t i = 0; i < kCostTerms; ++i) {
      gradient[i] = at[i] / (kPriorWidth * kPriorWidth);
      for (std::size_t s = 0; s < here.size(); ++s) {
        const double weight = std::min(1.0, kHuber / std::max(std::abs(here[s]), 1e-12));
        gradient[i] += weight * slope[i][s] * here[s];
        for (std::size_t j = 0; j < kCostTerms; ++j) {
          normal[i][j] += weight * slope[i][s] * slope[j][s];
        }
      }
      normal[i][i] = (normal[i][i] + 1 / (kPriorWidth * kPriorWidth)) * (1 + damping);
    }
    const Vector by = solved(normal, gradient);
    Vector next;
    for (std::size_t i = 0; i < kCostTerms; ++i) {
      next[i] = std::clamp(at[i] - by[i], -kFarthest, kFarthest);
    }
    return next;
  }

  // The prior's diagonal makes the matrix positive definite, so elimination needs no pivots.
  static Vector solved(Matrix a, Vector b) {
    for (std::size_t i = 0; i < kCostTerms; ++i) {
      for (std::size_t j = i + 1; j < kCostTerms; ++j) {
        const double factor = a[j][i] / a[i][i];
        for (std::size_t k = i; k < kCostTerms; ++k) a[j][k] -= factor * a[i][k];
        b[j] -= factor * b[i];
      }
    }
    for (std::size_t i = kCostTerms; i-- > 0;) {
      for (std::size_t j = i + 1; j < kCostTerms; ++j) b[i] -= a[i][j] * b[j];
      b[i] /= a[i][i];
    }
    return b;
  }

  const DeviceInfo& device_;
  Residency state_;
  CostCoefficients initial_;
  std::vector<CostSample> samples_;
};

}  // namespace

CostCoefficients fit_cost(std::span<const CostSample> samples, const DeviceInfo& device,
                          Residency state, const CostCoefficients& initial) {
  return moved(initial, Fit(samples, device, state, initial).solve());
}

}  // namespace vitune
