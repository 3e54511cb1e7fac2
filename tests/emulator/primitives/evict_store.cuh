// tests/emulator/primitives/evict_store.cuh -- Stands in for templates/primitives/evict_store.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/copy.cuh"
#include "primitives/evict.cuh"
#include "primitives/load.cuh"
#include "primitives/tensor_copy.cuh"
#include "primitives/types.cuh"

namespace vitune {

inline void copy_box(u32 to, const void* map, u32 barrier, int column, int row, int head, int batch,
                     u64) {
  copy_box(to, map, barrier, column, row, head, batch);
}

inline uint4 load_chunk_evict(const void* from, u64) { return load_past_l1(from); }
inline void store_chunk_evict(void* to, uint4 v, u64) { store_chunk<16>(to, v); }

}  // namespace vitune
