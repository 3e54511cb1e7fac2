// tests/runtime/libc_counters.h -- Counts what a thread does that a hot path must not do.
//
// libc_counters.cpp stands in for malloc, pthread_mutex_lock, getenv, dlopen and so on in the whole
// test program, libraries included, and passes every call on. Not in sanitizer builds, which stand
// in for the same functions themselves: there counting_works() is false.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vitune::test {

struct CallCounts {
  std::uint64_t allocations = 0;   // malloc, calloc, realloc, aligned_alloc, posix_memalign
  std::uint64_t locks = 0;         // mutex and rwlock acquisitions
  std::uint64_t variables = 0;     // getenv and secure_getenv
  std::uint64_t system_calls = 0;  // open, read, write, sync, time: those that go through libc
  std::uint64_t total() const { return allocations + locks + variables + system_calls; }
};

bool counting_works();
// Counts of this thread since the last call of start_counting(); counting stops.
CallCounts stop_counting();
void start_counting();

// While hidden, dlopen of libnvrtc fails as if it were not installed. Works in every build.
void hide_nvrtc(bool hidden);
// How often libnvrtc was asked for so far, hidden or not.
std::uint64_t nvrtc_opens();

}  // namespace vitune::test
