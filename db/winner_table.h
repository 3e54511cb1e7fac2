// db/winner_table.h -- Which config won, per device, problem and objective.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "db/records.h"
#include "db/row.h"

namespace vitune {

Row winner_key(const Blob& device, const Blob& problem, Objective objective);
Row winner_row(const Blob& device, const Blob& problem, const Winner& winner);
std::optional<Winner> winner_from_row(const Row& row);

// Whether a merge keeps `a` over `b` (two whole rows of one key): verified first, then measured
// before replayed before imported, then more samples, the smaller time, the smaller config text,
// the smaller digest. A strict order.
bool better_winner(const Row& a, const Row& b);

}  // namespace vitune
