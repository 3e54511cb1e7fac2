// tests/emulator/simt.h -- Runs a grid of CUDA threads on one host thread, each as a fiber.
//
// CTAs, or clusters of them, run one after the other, those of a cooperative launch together.
// Within one the order is chosen to expose missing synchronisation: by turns a warp runs as far as
// it can before another one starts, or all warps advance together. Shared memory is filled with NaN
// before each CTA.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>

#include "tests/emulator/machine.h"

namespace vitune_emulator {

// A kernel did what a device would fault on, or never ends; says where.
class Fault : public std::runtime_error {
 public:
  enum class Kind { kAddress, kMisaligned, kLaunch, kRace };
  Fault(Kind its_kind, const std::string& what) : std::runtime_error(what), kind(its_kind) {}
  const Kind kind;
};

struct Grid {
  Index3 grid, block;
  unsigned shared_bytes = 0;
  // The launch leaves it to the kernel to wait for the grids before it: every thread has to, before
  // its first access to global memory.
  bool waits_for_earlier = false;
  // CTAs may wait for each other: all of them run together.
  bool is_cooperative = false;
};

// True if [at, at + bytes) lies in one allocation of the device.
using MemoryCheck = std::function<bool(const void* at, std::size_t bytes)>;

// Runs every CTA of the grid; returns a measure of the work done, equal for equal launches. Throws
// Fault. `turn` alters the order of threads and copies.
unsigned long long run_grid(const Module& module, const Kernel& kernel, void** parameters,
                            const Grid& grid, const MemoryCheck& inside, unsigned turn);

}  // namespace vitune_emulator
