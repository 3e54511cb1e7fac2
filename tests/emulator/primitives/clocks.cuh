// tests/emulator/primitives/clocks.cuh -- Stands in for templates/primitives/clocks.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vitune {

struct Clocks {
  long long cycles, nanoseconds;
};

// Time is virtual; the SM is taken to run at 1 GHz.
inline Clocks read_clocks() {
  const long long now = clock64();
  return {now, now};
}

}  // namespace vitune
