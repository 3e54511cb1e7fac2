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

// True if a merge keeps `a` over `b` (two whole rows of one key). A strict total order, so that
// neither the order nor the grouping of merges matters; each step compares facts of one row alone:
//  1. verified: nothing else is served
//  2. measured before replayed before imported: on the device itself, from a recording, hearsay
//  3. at least six samples of its objective: of fewer there is no 95 % interval of a median
//  4. measured while clocks and neighbours were quiet
//  5. the smaller upper bound of its time. Whether two intervals overlap is not transitive, the
//     upper bound is an order: the faster one leads if its interval says so, and few samples count
//     against themselves by a wide interval
//  6. the smaller median, more samples, the later date, the smaller config text, the smaller digest
// The block list has no say: a block that comes later would make the order of merges matter.
bool better_winner(const Row& a, const Row& b);

}  // namespace vitune
