// tests/core/fake_libcuda.h -- What a test sets and reads of the fake CUDA driver.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vitune {

struct FakeCudaState {
  int calls = 0;         // so far, without those of error texts
  int failing_call = 0;  // the number of the call that fails; 0: none
  int failure = 999;     // with what
  int live = 0;          // objects made and not destroyed
  bool capturing = false;
  int capture_mode = -1;
  unsigned stream_flags = 0;
  char entry[64] = "";        // of the last function taken from a module
  unsigned launch[7] = {};    // grid, block, shared memory of the last launch
  int arguments[2] = {};      // of the last launch
  bool programmatic = false;  // whether it might start early
  bool cooperative = false;   // whether all its CTAs were to run at once
  int shared_limit = 0, carveout = 0;
};

}  // namespace vitune

extern "C" vitune::FakeCudaState* fake_cuda_state();
