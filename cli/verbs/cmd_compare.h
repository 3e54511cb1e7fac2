// cli/verbs/cmd_compare.h -- The exit status that vitune compare has for itself.
#pragma once

namespace vitune {

// A row of the second file is slower than the threshold allows, and chance does not explain it.
inline constexpr int kRegressionStatus = 6;

}  // namespace vitune
