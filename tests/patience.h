// tests/patience.h -- How long tests wait, and what they may say of a time: none may fail on a
// machine that is loaded or stands still for seconds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <thread>

namespace vitune::test {

// For what should come much sooner; also the deadline of processes that a test expects to meet it.
inline constexpr std::chrono::milliseconds kPatience{60000};

// The deadline of what never comes.
inline constexpr std::chrono::milliseconds kBrief{400};

#if defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlowness = 4;
#else
inline constexpr int kSlowness = 1;
#endif

// True if `holds` becomes true in patience.
template <class Condition>
bool soon(Condition&& holds) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

// True if `action` takes less than `limit` in one of some tries: a stall spoils the others.
template <class Action>
bool is_prompt(std::chrono::milliseconds limit, Action&& action) {
  for (int tries = 0; tries < 10; ++tries) {
    const auto start = std::chrono::steady_clock::now();
    action();
    if (std::chrono::steady_clock::now() - start < limit) return true;
  }
  return false;
}

}  // namespace vitune::test
