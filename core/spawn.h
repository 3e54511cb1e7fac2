// core/spawn.h -- Starts the program of a ChildProcess behind all its fences.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/unique_fd.h"

namespace vitune {

struct ChildOptions;

// A started child: the parent's end of its socket and the reading end of its stdout and stderr.
struct SpawnedChild {
  int pid = -1;
  UniqueFd socket;
  UniqueFd output;  // non-blocking
};

// Returns once the program has been loaded; by then it is the leader of its own process group. The
// child dies with the thread that called this. Throws Error(kFailure) naming the program and the
// step that failed.
SpawnedChild spawn_child(const ChildOptions& options);

}  // namespace vitune
