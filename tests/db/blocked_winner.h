// tests/db/blocked_winner.h -- A database whose winner of the sample problem is known to be wrong.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "db/store.h"
#include "tests/db/test_support.h"

namespace vitune::test {

// Blocks the kernel of the sample problem's winner, and 40 others; gives its key.
inline Digest block_a_winner(Store& store) {
  BlockEntry entry = sample_block(0);
  entry.kernel_key =
      store.find_winner(sample_device(), sample_problem(), Objective::kCold)->kernel_key;
  store.block(entry);
  for (int n = 100; n < 140; ++n) store.block(sample_block(n));
  return entry.kernel_key;
}

// True if a reader of the file may come to launch that winner. Throws what opening it throws.
inline bool may_run(const fs::path& file, const Digest& blocked) {
  LayeredStore layers(Store::open(file, Access::kReadOnly), nullptr);
  for (const auto& found :
       layers.find_winners(sample_device(), sample_problem(), Objective::kCold)) {
    if (found.winner.kernel_key == blocked && found.winner.verified &&
        layers.find_binary(blocked) && !layers.is_blocked(blocked, sample_device())) {
      return true;
    }
  }
  return false;
}

}  // namespace vitune::test
