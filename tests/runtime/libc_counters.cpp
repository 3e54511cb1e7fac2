// tests/runtime/libc_counters.cpp -- Stands in for functions of the C library in the test program.
// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/libc_counters.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define VITUNE_TEST_COUNTS 0
#else
#define VITUNE_TEST_COUNTS 1
#endif

namespace vitune::test {
namespace {

thread_local CallCounts counts;
thread_local bool counting = false;
std::atomic<bool> nvrtc_hidden{false};
std::atomic<std::uint64_t> nvrtc_asked{0};

#if VITUNE_TEST_COUNTS
void count(std::uint64_t CallCounts::*which) {
  if (counting) ++(counts.*which);
}
#endif

// The next definition of a function after this program's own.
template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

bool counting_works() { return VITUNE_TEST_COUNTS != 0; }
void start_counting() {
  counts = CallCounts();
  counting = true;
}
CallCounts stop_counting() {
  counting = false;
  return counts;
}
void hide_nvrtc(bool hidden) { nvrtc_hidden = hidden; }
std::uint64_t nvrtc_opens() { return nvrtc_asked; }

}  // namespace vitune::test

using vitune::test::CallCounts;
using vitune::test::next;

extern "C" {

void* dlopen(const char* name, int flags) {
  static auto* const real = next<void*(const char*, int)>("dlopen");
  if (name != nullptr && std::strstr(name, "libnvrtc") != nullptr) {
    ++vitune::test::nvrtc_asked;
    // A name that does not exist, so that dlerror() has a sentence as it would.
    if (vitune::test::nvrtc_hidden) return real("libnvrtc.so.hidden-by-the-test", flags);
  }
  return real(name, flags);
}

#if VITUNE_TEST_COUNTS
using vitune::test::count;

// glibc's own names of its allocator.
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t size) {
  count(&CallCounts::allocations);
  return __libc_malloc(size);
}
void* calloc(size_t items, size_t size) {
  count(&CallCounts::allocations);
  return __libc_calloc(items, size);
}
void* realloc(void* memory, size_t size) {
  count(&CallCounts::allocations);
  return __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) {
  count(&CallCounts::allocations);
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static auto* const real = next<int(pthread_mutex_t*)>("pthread_mutex_lock");
  count(&CallCounts::locks);
  return real(mutex);
}
int pthread_mutex_trylock(pthread_mutex_t* mutex) {
  static auto* const real = next<int(pthread_mutex_t*)>("pthread_mutex_trylock");
  count(&CallCounts::locks);
  return real(mutex);
}
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) {
  static auto* const real = next<int(pthread_rwlock_t*)>("pthread_rwlock_rdlock");
  count(&CallCounts::locks);
  return real(lock);
}
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) {
  static auto* const real = next<int(pthread_rwlock_t*)>("pthread_rwlock_wrlock");
  count(&CallCounts::locks);
  return real(lock);
}

char* getenv(const char* name) {
  static auto* const real = next<char*(const char*)>("getenv");
  count(&CallCounts::variables);
  return real(name);
}
char* secure_getenv(const char* name) {
  static auto* const real = next<char*(const char*)>("secure_getenv");
  count(&CallCounts::variables);
  return real(name);
}

ssize_t read(int fd, void* data, size_t size) {
  static auto* const real = next<ssize_t(int, void*, size_t)>("read");
  count(&CallCounts::system_calls);
  return real(fd, data, size);
}
ssize_t write(int fd, const void* data, size_t size) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  count(&CallCounts::system_calls);
  return real(fd, data, size);
}
ssize_t pread64(int fd, void* data, size_t size, off64_t offset) {
  static auto* const real = next<ssize_t(int, void*, size_t, off64_t)>("pread64");
  count(&CallCounts::system_calls);
  return real(fd, data, size, offset);
}
#endif

}  // extern "C"
