// generator/attention_backward/dbias.h -- The kernels of a bias's gradient, which families put
// behind their own: templates/attention_backward/dbias.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/device_info.h"
#include "generator/attention_backward/problem.h"
#include "generator/launch_plan.h"
#include "templates/attention_backward/geometry_dbias.cuh"

namespace vitune {

// Their #include line; what a generated Config needs for them; their entries; and what they need.
// Nothing but the first where dbias is not asked for.
std::string dbias_templates();
std::string dbias_text(const AttentionBackwardDbias& geometry);
std::string dbias_entries(const AttentionBackwardDbias& geometry);
std::vector<KernelNeeds> dbias_kernels(const AttentionBackwardDbias& geometry);

// Puts their launches behind what `plan` does, and their scratch memory behind delta, which a
// kernel of the plan has written by then. `first`: the place of dbias_kernels() among its kernels.
void append_dbias(LaunchPlan& plan, const AttentionBackwardProblem& problem,
                  const AttentionBackwardDbias& geometry, std::size_t first,
                  const DeviceInfo& device);

}  // namespace vitune
