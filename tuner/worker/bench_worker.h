// tuner/worker/bench_worker.h -- The process that owns one GPU: loads, verifies and times kernels
// on request.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vitune {

// Serves jobs on file descriptor 3 for the device `ordinal` until the descriptor is closed or the
// context is lost. Returns the process's exit status.
int run_bench_worker(int ordinal);

}  // namespace vitune
