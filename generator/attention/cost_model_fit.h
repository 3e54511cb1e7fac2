// generator/attention/cost_model_fit.h -- Refits the cost model's coefficients to measured times.
//
// Pure function; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "generator/attention/cost_model.h"

namespace vitune {

// A measured kernel: what it does and how long one call took.
struct CostSample {
  KernelWork work;
  double us = 0;  // above 0; samples that are not are left out
};

// The coefficients under which the samples, of one device, are likeliest: least squares of the
// logarithms with Huber's weights, so that an outlier pulls with bounded force, held near
// `initial`, each coefficient by its logarithm, so that a few samples cannot carry one far from
// its physical meaning: within a factor of two whatever the samples say. Deterministic. Without
// samples: `initial`.
CostCoefficients fit_cost(std::span<const CostSample> samples, const DeviceInfo& device,
                          Residency state, const CostCoefficients& initial);

}  // namespace vitune
