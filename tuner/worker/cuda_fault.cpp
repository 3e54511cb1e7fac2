// tuner/worker/cuda_fault.cpp -- Error numbers of the CUDA Driver API reference, sorted by
// consequence.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/cuda_fault.h"

#include <algorithm>
#include <array>

namespace vitune {
namespace {

constexpr CuResult kOutOfMemory = 2;

// Refused before anything ran: invalid value, invalid image, no binary for this GPU, invalid PTX,
// unsupported PTX version, invalid source, entry not found, launch out of resources, cooperative
// launch too large, not supported, and the two capture errors.
constexpr std::array<CuResult, 13> kRefused = {1,   9,   200, 209, 218, 222, 300,
                                               500, 701, 720, 801, 900, 901};

}  // namespace

CudaFault classify(const CudaError& error) {
  if (error.sticky()) return {TrialStatus::kCrash, true};
  if (error.result() == kOutOfMemory) return {TrialStatus::kOutOfMemory, false};
  const bool refused =
      std::find(kRefused.begin(), kRefused.end(), error.result()) != kRefused.end();
  if (refused) return {TrialStatus::kInvalidLaunch, false};
  return {TrialStatus::kCrash, true};
}

}  // namespace vitune
