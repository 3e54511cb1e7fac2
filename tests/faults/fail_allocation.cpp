// tests/faults/fail_allocation.cpp -- Preloaded into a program: counts what it allocates from
// main() on, and fails one of these allocations, or all from one on.
//
// VITUNE_ALLOCATION_FAILS=N: the N-th gives null. VITUNE_ALLOCATIONS_FAIL_FOR_EVER: so do all after
// it. VITUNE_ALLOCATIONS_COUNTED=FILE: their number is written there at the end, if the program
// ends by itself. VITUNE_ALLOCATIONS_FROM_MARK: counts only once the program calls
// vitune_count_allocations(). C++'s `new` comes through malloc(); a throw has a reserve of its own.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>

// glibc's own, whoever replaces the public names.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

using Main = int (*)(int, char**, char**);

std::atomic<bool> in_main{false};
std::atomic<unsigned long> count{0};
unsigned long first_to_fail = 0;
bool for_ever = false;
Main program = nullptr;

bool fails() {
  if (!in_main.load(std::memory_order_relaxed)) return false;
  const unsigned long number = count.fetch_add(1, std::memory_order_relaxed) + 1;
  const bool due = number == first_to_fail || (for_ever && number > first_to_fail);
  if (first_to_fail == 0 || !due) return false;
  errno = ENOMEM;
  return true;
}

int counted_main(int argc, char** argv, char** environment) {
  if (const char* text = getenv("VITUNE_ALLOCATION_FAILS")) {
    first_to_fail = strtoul(text, nullptr, 10);
  }
  for_ever = getenv("VITUNE_ALLOCATIONS_FAIL_FOR_EVER") != nullptr;
  in_main = getenv("VITUNE_ALLOCATIONS_FROM_MARK") == nullptr;
  const int status = program(argc, argv, environment);
  in_main = false;  // what follows is the C library's
  if (const char* file = getenv("VITUNE_ALLOCATIONS_COUNTED")) {
    char text[32];
    const int length = snprintf(text, sizeof text, "%lu\n", count.load());
    const int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, static_cast<std::size_t>(length)) != length) abort();
    close(fd);
  }
  return status;
}

}  // namespace

extern "C" {

// From here on, in a program that says so.
void vitune_count_allocations() { in_main = true; }

int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                      void (*rtld_fini)(), void* stack_end) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  program = main;
  const auto start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}

void* malloc(std::size_t size) { return fails() ? nullptr : __libc_malloc(size); }

void* calloc(std::size_t number, std::size_t size) {
  return fails() ? nullptr : __libc_calloc(number, size);
}

void* realloc(void* old, std::size_t size) { return fails() ? nullptr : __libc_realloc(old, size); }

void* memalign(std::size_t alignment, std::size_t size) {
  return fails() ? nullptr : __libc_memalign(alignment, size);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) { return memalign(alignment, size); }

int posix_memalign(void** result, std::size_t alignment, std::size_t size) {
  void* const made = memalign(alignment, size);
  if (made == nullptr) return ENOMEM;
  *result = made;
  return 0;
}

}  // extern "C"
