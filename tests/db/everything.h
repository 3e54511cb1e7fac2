// tests/db/everything.h -- Every row of a database as its users see it, in a form to compare.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "db/store.h"

namespace vitune::test {

// One text per row, sorted: winners, trials, images, blocks, requests, attempts, searches. What
// differs between two runs of one command (a time of day, a duration) stands between tildes.
std::vector<std::string> everything(Store& store);

// The same rows without what stands between tildes, sorted.
std::vector<std::string> without_times(std::vector<std::string> rows);

// True if every row of `few` is in `many`; both sorted.
bool is_part_of(const std::vector<std::string>& few, const std::vector<std::string>& many);

}  // namespace vitune::test
