// tests/emulator/primitives/stmatrix.cuh -- Stands in for templates/primitives/stmatrix.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/shared.cuh"
#include "primitives/types.cuh"

namespace vitune {

struct MatrixStore {
  const u32* words;
  u32 row[4];  // what goes to this lane's address
};

// The row is written by the lane that gives its address.
inline void stmatrix_x4(u32 address, const u32 (&r)[4]) {
  MatrixStore mine{r, {}};
  vitune_emulator::warp_collective(mine, [](vitune_emulator::Machine&, MatrixStore** lanes) {
    for (int lane = 0; lane < 32; ++lane) {
      const int matrix = lane / 8, row = lane % 8;
      for (int i = 0; i < 4; ++i) lanes[lane]->row[i] = lanes[4 * row + i]->words[matrix];
    }
  });
  memcpy(shared_target(address, 16), mine.row, 16);
}

}  // namespace vitune
