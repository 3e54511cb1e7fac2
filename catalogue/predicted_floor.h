// catalogue/predicted_floor.h -- The floor of a call, by which shares of a pass are told.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "generator/problem.h"

namespace vitune {

// Microseconds that an H200 needs at least for a cold call; 0 if its units' rates are not known.
double h200_floor_us(const Problem& problem);

}  // namespace vitune
