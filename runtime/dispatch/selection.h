// runtime/dispatch/selection.h -- What vitune_query() says of a plan.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "db/records.h"
#include "runtime/dispatch/resolver.h"
#include "runtime/load/plan.h"
#include "vitune/vitune.h"

namespace vitune {

// Describes a plan that is in use; `text` is the canonical text of its problem.
vitune_selection describe(const Plan& plan, std::string_view text);

// Describes the kernel that would be used.
vitune_selection describe(const Resolver::Preview& preview, std::string_view text);

}  // namespace vitune
