// templates/primitives/clocks.cuh -- The clock of an SM beside a clock of known rate.
#pragma once

namespace vitune {

// A point in time by both clocks.
struct Clocks {
  long long cycles, nanoseconds;
};

// Nanoseconds tick coarsely (a microsecond at worst): for spans of some hundred microseconds.
__device__ __forceinline__ Clocks read_clocks() {
  Clocks now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now.nanoseconds));
  now.cycles = clock64();
  return now;
}

}  // namespace vitune
