// tests/emulator/primitives/stmatrix_trans.cuh -- Stands in for
// templates/primitives/stmatrix_trans.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/shared.cuh"
#include "primitives/types.cuh"

namespace vitune {

struct TransposedMatrixStore {
  const u32* words;
  u16 column[8];  // what goes to this lane's address
};

// The column is written by the lane that gives its address.
inline void stmatrix_x4_trans(u32 address, const u32 (&r)[4]) {
  TransposedMatrixStore mine{r, {}};
  vitune_emulator::warp_collective(
      mine, [](vitune_emulator::Machine&, TransposedMatrixStore** lanes) {
        for (int lane = 0; lane < 32; ++lane) {
          const int matrix = lane / 8, column = lane % 8;
          for (int row = 0; row < 8; ++row) {
            const u32 word = lanes[4 * row + column / 2]->words[matrix];
            lanes[lane]->column[row] = u16(column % 2 == 0 ? word : word >> 16);
          }
        }
      });
  memcpy(shared_target(address, 16), mine.column, 16);
}

}  // namespace vitune
