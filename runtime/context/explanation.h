// runtime/context/explanation.h -- What vitune_explain_text() says: lines for people.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/device_info.h"
#include "db/records.h"
#include "generator/problem.h"
#include "runtime/dispatch/passed_over.h"
#include "vitune/vitune.h"

namespace vitune {

// The problem, its tensors, and the least time that the device could take. Each of these ends with
// a line's end.
std::string describe_problem(const Problem& problem, const DeviceInfo& device, Objective objective);
std::string describe_served(const vitune_selection& selection);
std::string describe_refusal(const std::string& sentence);
// Nothing if nothing was.
std::string describe_passed_over(const PassedOver& passed_over);

}  // namespace vitune
