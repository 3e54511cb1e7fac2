// model/asked_problems.h -- Which problems a session of a model file asks, and how often.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "generator/problem.h"
#include "model/graph.h"
#include "model/model_file.h"

namespace vitune {

struct AskedProblem {
  ProblemPtr problem;
  std::int64_t calls = 0;  // in one pass
  // Asked only where another form of a norm and its layers turns out to be the faster one.
  bool is_second = false;
};

// Each problem once, in the order of its first call.
std::vector<AskedProblem> counted_problems(const std::vector<ProblemPtr>& asked);

// Those of a session's steps for so many images, counted: first those of the form that a session
// takes without any winner, then those of other forms of norms (model/norm_forms.h), which must be
// tuned too before the faster one is known. Throws as require_sound() and
// bind_model() do.
std::vector<AskedProblem> session_problems(const ModelContainer& file, const ModelGraph& graph,
                                           std::int64_t batch);

}  // namespace vitune
