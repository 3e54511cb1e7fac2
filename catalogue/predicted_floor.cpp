// catalogue/predicted_floor.cpp -- The floor of a call on an H200.
// SPDX-License-Identifier: Apache-2.0
#include "catalogue/predicted_floor.h"

#include "generator/operator.h"

namespace vitune {

double h200_floor_us(const Problem& problem) {
  static const DeviceInfo kDevice = h200_facts();
  const auto floor = floor_of(problem.op().demand(problem, kDevice), kDevice, Residency::kCold);
  return floor ? floor->us : 0;
}

}  // namespace vitune
