// runtime/dispatch/nearest.h -- Ranks the configs of other problems by what they should take for
// this one.
//
// A config loses as much to the best one as it did on the problems that it was measured on, each
// weighed by how near it is; where it was not measured, as much as all did there on average. The
// best one takes as many times the floor as winners did nearby. The index may be of another device:
// its winners' times over that device's floors stand for those over this one's. One thread at a
// time; the caller owns index and databases.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/device_info.h"
#include "db/store.h"
#include "generator/parameter_space.h"
#include "generator/problem.h"
#include "runtime/dispatch/winner_index.h"

namespace vitune {

struct NearestConfig {
  Config config;
  ProblemPtr anchor;  // the nearest problem it won, else the nearest it was tried on
  bool won = false;   // whether it won there
  Layer layer = Layer::kUser;
  double predicted_us = 0;
};

struct NearestRanking {
  std::vector<NearestConfig> configs;  // by predicted time, the least first
  std::size_t considered = 0;          // different configs that were predicted
  std::vector<double> default_us;      // predictions for the configs of `defaults`, in their order
  bool default_measured = false;       // whether the first of them was measured on a neighbour
  // How many times as long as the winners the default configs took on the neighbours: a geometric
  // mean, the nearer the heavier. Nothing if no race of theirs had the default in it.
  std::optional<double> default_loss;
};

// Time of a launch and of the problem's floor on `device`, in microseconds: what predictions scale
// by.
double least_us(const Problem& problem, const DeviceInfo& device, Objective objective);

// The best `limit` configs for `problem` among those that won, came second or were tried with
// success on problems of the same class, as Operator::carried() writes them for this one, each
// inside `space`, which is the problem's. `defaults` are predicted beside them.
NearestRanking rank_nearest(const ProblemPtr& problem, const DeviceInfo& device,
                            Objective objective, const WinnerIndex& index, LayeredStore& store,
                            const ParameterSpace& space, const std::vector<Config>& defaults,
                            std::size_t limit);

}  // namespace vitune
