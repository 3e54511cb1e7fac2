// db/trial_table.h -- Rows of the table trial, and which of two trials of one config is kept.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "db/records.h"
#include "db/row.h"

namespace vitune {

Row trial_key(const Blob& device, const Blob& problem, const Config& config);
Row trial_row(const Blob& device, const Blob& problem, const Trial& trial);
std::optional<Trial> trial_from_row(const Row& row);

// True if a merge keeps `a` over `b` (two whole rows of one key): measured before replayed before
// imported, then one that ran, more samples, the smaller time, the smaller digest. A strict order.
bool better_trial(const Row& a, const Row& b);

}  // namespace vitune
