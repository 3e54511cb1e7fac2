// tests/model/counted_new.cpp -- operator new and delete of the test program, which count.
// SPDX-License-Identifier: Apache-2.0
#include "tests/model/counted_new.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

thread_local bool counting = false;
thread_local long long have = 0;
thread_local vitune::test::AllocationCount seen;

}  // namespace

namespace vitune::test {

void begin_to_count_new() {
  have = 0;
  seen = {};
  counting = true;
}

AllocationCount end_to_count_new() {
  counting = false;
  return seen;
}

}  // namespace vitune::test

#if !defined(__SANITIZE_ADDRESS__)
void* operator new(std::size_t size) {
  void* const made = std::malloc(size == 0 ? 1 : size);
  if (made == nullptr) throw std::bad_alloc();
  if (counting) {
    have += static_cast<long long>(malloc_usable_size(made));
    seen.most_at_once = std::max(seen.most_at_once, static_cast<std::size_t>(std::max(have, 0LL)));
    seen.largest = std::max(seen.largest, size);
  }
  return made;
}

void operator delete(void* given) noexcept {
  if (counting && given != nullptr) have -= static_cast<long long>(malloc_usable_size(given));
  std::free(given);
}
void operator delete(void* given, std::size_t) noexcept { operator delete(given); }
#endif
