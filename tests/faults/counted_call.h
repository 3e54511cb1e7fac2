// tests/faults/counted_call.h -- One file call of a process that is tested: counted, spoilt if it
// is its turn, recorded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "tests/faults/file_calls.h"

namespace vitune::faults {

// True if a descriptor is, or a path leads to, something below the folder. Paths are absolute, or
// names in a folder that is open as `directory`.
bool is_ours(int fd);
bool is_ours(int directory, const char* path);

// True if the file system is to be one that can do less.
bool is_plain();

// 0 if it is unknown.
std::uint64_t inode_of(int fd);
std::uint64_t inode_of(const char* path);

// That `fd` is open on something below the folder; that it is not; that `copy` is what `fd` is.
void learn(int fd);
void forget(int fd);
void learn_copy(int fd, int copy);

// A call on something of ours, from before it is made to its end; one at a time.
class CountedCall {
 public:
  explicit CountedCall(Call call, bool creates = false);
  ~CountedCall();
  CountedCall(const CountedCall&) = delete;
  CountedCall& operator=(const CountedCall&) = delete;

  // True if it is to fail; errno says how.
  bool fails() const;
  // The bytes that a read or write of so many is to take.
  std::size_t size(std::size_t wanted) const;
  // Ends a call that was made or has failed, and gives `result`.
  template <typename Result>
  Result done(Result result, Logged logged = {}, const char* path = "", const char* to = "",
              const void* data = nullptr) const {
    logged.failed = is_failure(result);
    end(logged, path, to, data);
    return result;
  }

 private:
  static bool is_failure(long result) { return result == -1; }
  static bool is_failure(const void* result) { return result == nullptr; }
  void end(Logged logged, const char* path, const char* to, const void* data) const;

  Call call_;
  bool is_spoilt_ = false;
};

}  // namespace vitune::faults
