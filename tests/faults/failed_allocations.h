// tests/faults/failed_allocations.h -- Each allocation of a program fails, once or from then on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tests/faults/engines.h"
#include "tests/faults/operations.h"

namespace vitune::faults {

// A program whose allocations fail.
struct Subject {
  std::string name;
  // Runs it once, from the same beginning each time.
  std::function<Ended(const Environment&)> run;
  // The faults found afterwards, a line each.
  std::function<std::vector<std::string>(const Ended&)> check;
};

// The operations, the verbs that only read, and a program that uses libvitune; `scratch` is theirs.
std::vector<Subject> allocating_subjects(const std::filesystem::path& scratch);

// The database that vitune_use_library is to be given: one winner, on the mock driver's device.
void make_library_database(const std::filesystem::path& file);

// How many allocations a run without faults makes.
std::size_t allocations_of(const Subject& subject, const std::filesystem::path& scratch);

// Fails `work.count` of them, drawn evenly, or each where there are no more: once, or all from
// there on.
Tally fail_allocations(const Subject& subject, const std::filesystem::path& scratch,
                       const Work& work, bool for_ever);

// Fails each of the last `count`, where a command does what it has prepared.
Tally fail_last_allocations(const Subject& subject, const std::filesystem::path& scratch,
                            std::size_t count);

}  // namespace vitune::faults
