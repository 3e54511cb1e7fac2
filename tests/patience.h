// tests/patience.h -- How long tests wait. None may fail on a machine that is loaded or stands
// still for seconds: times are bounded to find what would never end, and measured in benchmarks.
#pragma once

#include <chrono>

namespace vitune::test {

// For what should come much sooner; also the deadline of processes that a test expects to meet it.
inline constexpr std::chrono::milliseconds kPatience{60000};

// The deadline of what never comes.
inline constexpr std::chrono::milliseconds kBrief{400};

}  // namespace vitune::test
