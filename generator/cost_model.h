// generator/cost_model.h -- Predicts how long a config takes for a problem, fitted to what was
// measured nearby.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "core/config.h"
#include "generator/problem.h"

namespace vitune {

// A measured call: `config` on `problem`, whose kernel has `registers` per thread (0: not known).
struct MeasuredCall {
  const Problem* problem = nullptr;
  const Config* config = nullptr;
  int registers = 0;
  double us = 0;  // above 0
};

// Of one operator on one device. The order of configs matters here, not the time itself. One
// thread.
class CostModel {
 public:
  virtual ~CostModel() = default;
  // Bends the model towards the calls, and gives what it then predicts for each; called once,
  // before the first us() that is to follow them.
  virtual std::vector<double> fit(std::span<const MeasuredCall> calls) = 0;
  // Microseconds of one call: finite and above 0.
  virtual double us(const Problem& problem, const Config& config, int registers) const = 0;
};

}  // namespace vitune
