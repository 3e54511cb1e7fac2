// cli/verbs/cmd_compare.h -- The exit status that vitune compare has for itself.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vitune {

// A row of the second file is slower than the threshold allows, and chance does not explain it.
inline constexpr int kRegressionStatus = 6;

}  // namespace vitune
