// runtime/load/plan.h -- Everything that one launch needs, put together once per problem.
//
// Plans are immutable and live as long as their context: graphs that captured a launch refer to the
// kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/cuda_driver.h"
#include "core/digest.h"
#include "generator/prepared_plan.h"
#include "runtime/dispatch/dispatcher.h"
#include "runtime/dispatch/passed_over.h"
#include "runtime/load/footprint.h"
#include "vitune/vitune.h"

namespace vitune {

// Kernels of one image on the device, shared by the plans that launch them.
struct LoadedKernel {
  LoadedKernels kernels;
  Digest key;
  bool compiled = false;  // by this process
};

struct Entry;

struct alignas(64) Plan {
  // The status of a call of the problem. Unless VITUNE_OK there is no kernel, and `sentence` says
  // why; the footprint is that of the problem in any case.
  vitune_status status = VITUNE_OK;
  LookupOutcome outcome = LookupOutcome::kDefault;
  std::shared_ptr<const LoadedKernel> kernel;
  std::optional<PreparedPlan> launch;
  Footprint footprint;
  std::string sentence;
  Entry* entry = nullptr;  // the problem's, which sets it

  // For vitune_query().
  Choice choice;
  PassedOver passed_over;

  // True if a later look may find more: a database could not be read, or the device had too little
  // memory.
  bool provisional = false;

  // Estimated time of a call in microseconds; 0: not known.
  double call_us(Objective objective) const;
};

// The plan that launches `kernel`, which was made for (`problem`, choice.config). Throws as
// PreparedPlan does.
std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device, Choice choice,
                                std::shared_ptr<const LoadedKernel> kernel, Libraries& libraries);

// The plan of a problem that cannot be served.
std::unique_ptr<Plan> make_refusal(const Problem& problem, vitune_status status,
                                   std::string sentence);

}  // namespace vitune
