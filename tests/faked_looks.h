// tests/faked_looks.h -- What looking at a file gives, when a test says so: an error, or an access
// control list.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace vitune::test {

// While it lives, stat() and lstat() of `path` fail with `error`, in this program and its
// libraries. One at a time.
class FailingLook {
 public:
  FailingLook(std::filesystem::path path, int error);
  ~FailingLook();
  FailingLook(const FailingLook&) = delete;
  FailingLook& operator=(const FailingLook&) = delete;
};

// While it lives, the POSIX access control list of `path` is `list`, as the kernel gives it, or
// cannot be read because of `error`, if that is not 0. One at a time.
class FakedAccessList {
 public:
  FakedAccessList(std::filesystem::path path, std::string list, int error = 0);
  ~FakedAccessList();
  FakedAccessList(const FakedAccessList&) = delete;
  FakedAccessList& operator=(const FakedAccessList&) = delete;
};

}  // namespace vitune::test
