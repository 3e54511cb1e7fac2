// generator/named_problem.h -- A problem with what people call it and what is known of
// it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/problem.h"

namespace vitune {

// Time of another implementation, microseconds per call.
struct PeerTime {
  std::string peer;    // "cudnn", "flash2", "efficient", "eager"
  double cold_us = 0;  // L2 flushed before the call
  double warm_us = 0;  // replayed back to back
  bool operator==(const PeerTime&) const = default;
};

struct NamedProblem {
  std::string name;   // shown to the user: "ViT-B/16@224 b32", or the problem's text
  std::string group;  // "vit", "bias", "long"; empty if it belongs to none
  ProblemPtr problem;
  std::vector<PeerTime> peers;     // sorted by name; empty if none was measured
  std::optional<double> floor_us;  // what the hardware needs at least
  // Share of the time of the forward passes that ask it, as their floors predict; 0: not known.
  double share = 0;
};

}  // namespace vitune
