// generator/floor.h -- The least time that each unit of a GPU needs for a problem.
//
// A floor is a bound that holds for every kernel: launch latency, waves over the SMs, partial tiles
// and units that wait for each other come on top. No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/device_info.h"

namespace vitune {

enum class HardwareUnit {
  kTensor,        // matrix products
  kExp,           // exponentials on the special function units
  kIssue,         // other instructions
  kSharedMemory,  // operands on their way to the tensor cores
  kL2,            // every element once between the SMs and L2
  kHbm            // every element once between the GPU and its memory
};

// "tensor", "exp", "issue", "shared memory", "L2", "HBM".
std::string hardware_unit_name(HardwareUnit unit);

// State of L2: warm, after a use of the tensors just before, or cold.
enum class Residency { kCold, kWarm };

struct UnitTime {
  HardwareUnit unit;
  double us;
};

struct Floor {
  double us;                    // of the unit that needs longest
  HardwareUnit unit;            // that unit: what limits
  std::vector<UnitTime> units;  // all that are known, the longest first
};

// The least work of a problem for each unit. Zeros: none.
struct Demand {
  double tensor_flops = 0;  // multiplications and additions of matrix products
  double exponentials = 0;
  double instructions = 0;  // of threads, beside both
  double shared_bytes = 0;  // that tensor cores read from shared memory
  double bytes = 0;         // each element once
};

// The floor of `demand` on `device`; the rates and where they come from are in floor.cpp and in
// docs/measuring.md. Units whose rate the device's facts do not give are left out; nothing if that
// is all of them.
std::optional<Floor> floor_of(const Demand& demand, const DeviceInfo& device, Residency residency);

}  // namespace vitune
