// tuner/worker/cuda_fault.h -- What a failed driver call means for the trial during which it
// happened.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/cuda_driver.h"
#include "db/records.h"

namespace vitune {

struct CudaFault {
  TrialStatus status = TrialStatus::kCrash;
  bool context_lost = true;  // nothing more can be done in this process
};

// kOutOfMemory, kInvalidLaunch for what the driver refuses without harm (a bad image, a bad
// launch), kCrash for everything else: sticky errors, device errors, and those nobody has thought
// of.
CudaFault classify(const CudaError& error);

}  // namespace vitune
