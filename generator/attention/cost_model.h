// generator/attention/cost_model.h -- Predicts how long a config takes for a problem on a device.
//
// Two stages. work_of() counts what a kernel does: products, exponentials, bytes, steps, and how
// its work items fall on the SMs. predicted_us() turns the counts into time with a few coefficients
// of physical meaning. The counts do not depend on the coefficients, so that a fit (see
// cost_model_fit.h) counts once. The order of configs matters here, not the time itself: figures
// are good to some 10 % where kernels of the device were fitted, and worse elsewhere. Pure
// functions; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/config.h"
#include "core/device_info.h"
#include "generator/attention/problem.h"
#include "generator/floor.h"

namespace vitune {

// What a launch does, per work item (a CTA's share of the problem) where not said otherwise.
struct KernelWork {
  bool pipelined = false;    // tiles are copied while the item before is worked on
  double macs = 0;           // multiply-adds of the tensor cores, padding included
  double exponentials = 0;   // scores, padding included
  double score_loads = 0;    // warp-wide loads of bias and mask
  double extra_scores = 0;   // scores to which a bias or a mask is applied
  double shared_bytes = 0;   // read from shared memory
  double loaded_bytes = 0;   // read from L2 or memory
  double rescales = 0;       // outputs multiplied because the running maximum may have moved
  double passes = 0;         // row tiles that the busiest warp works on, one after the other
  double warps_at_work = 1;  // warps of the item among which its row tiles are spread
  double chain_steps = 0;    // steps of keys of the busiest warp
  double barriers = 0;       // at which all warps of the item meet
  double exposed_bytes = 0;  // of loaded_bytes, what the item waits for before its first product
  double squeeze = 0;        // live sets of registers that the cap leaves a thread short of comfort
  double items = 1;          // of the whole problem
  double rounds = 0;         // of items on the busiest SM if they are evened out, else 0
  double resident = 1;       // items that one SM holds at once; 0: it holds none
  double memory_bytes = 0;   // of the whole problem, each byte once
};

// Coefficients; cost_coefficients() says what each is, in which unit, and where its default is
// from.
enum class CostTerm : std::size_t {
  kTensor,
  kExponential,
  kIssue,
  kShared,
  kL2,
  kMemory,
  kScoreLoad,
  kChain,
  kStep,
  kStart,
  kSqueeze,
  kColdLaunch,
  kWarmLaunch,
};
inline constexpr std::size_t kCostTerms = 13;

struct CostCoefficients {
  std::array<double, kCostTerms> values{};
  double operator[](CostTerm term) const { return values[static_cast<std::size_t>(term)]; }
};

struct CostTermInfo {
  const char* name;
  const char* unit;
  double initial;  // on the device of the measurements, an H200
  const char* source;
};

const std::array<CostTermInfo, kCostTerms>& cost_terms();

// The defaults for an architecture: those of the measured device, the matrix and exponential rates
// scaled by what the architecture's SM has of them.
CostCoefficients default_cost(const DeviceInfo& device);

// Counts the work of `config` for `problem`. `registers` is what the compiler gave a thread; 0:
// not known, then it is estimated. Tunables that the config lacks have their neutral value.
KernelWork work_of(const AttentionProblem& problem, const Config& config, const DeviceInfo& device,
                   int registers = 0);

// Microseconds of one call, finite and above 0. A kernel that does not fit on an SM is predicted as
// if one CTA did. Facts that `device` does not state (SMs, clocks, memory) are those of an H200.
double predicted_us(const KernelWork& work, const DeviceInfo& device,
                    const CostCoefficients& coefficients, Residency state);

}  // namespace vitune
