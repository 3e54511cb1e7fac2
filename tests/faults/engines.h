// tests/faults/engines.h -- Faults by the thousand, drawn evenly with a seed: for the tests a few,
// for a soak many.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace vitune::faults {

// How much to do. Of `shares` processes that divide the work this one is number `share`.
struct Work {
  std::size_t count = 0;
  std::uint32_t seed = 0;
  std::size_t share = 0;
  std::size_t shares = 1;
};

// The counts of a run.
struct Tally {
  std::size_t runs = 0;
  std::size_t possible = 0;           // different faults that there are; 0: without number
  std::size_t effective = 0;          // in which the fault happened, or the damage was noticed
  std::vector<std::string> findings;  // a line each; none is what is hoped for
  std::size_t controls = 0;           // runs with the protection switched off
  std::size_t control_findings = 0;   // how many of them went wrong, as they must
};

// Each file call of each operation fails (EIO, ENOSPC, EINTR, ...), once or for ever, or is done by
// half.
Tally fail_calls(const Work& work);
// Each operation is killed before, after or in the middle of a file call.
Tally kill_at_calls(const Work& work);
// The power goes at any call: what was not synced is lost in part. Controls: no sync does anything.
Tally cut_power(const Work& work);
// A database is damaged. Controls: rows changed together with their digests.
Tally damage_files(const Work& work);

}  // namespace vitune::faults
