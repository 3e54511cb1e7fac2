// tests/torch_ops/renewed_test.cpp -- A forked child finds no lock of its parent's held.
// SPDX-License-Identifier: Apache-2.0
#include "python/native/renewed.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>

namespace vitune::torch_ops {
namespace {

struct Kept {
  std::mutex mutex;
  int value = 1;
};

TEST(RenewedAfterForkTest, AChildBeginsAnewAndTheParentKeepsItsOwn) {
  auto& kept = renewed_after_fork<Kept>();
  kept.value = 2;
  const std::lock_guard lock(kept.mutex);  // as another thread may
  const pid_t child = fork();
  if (child == 0) {
    auto& own = renewed_after_fork<Kept>();
    _exit(own.mutex.try_lock() && own.value == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(renewed_after_fork<Kept>().value, 2);
}

}  // namespace
}  // namespace vitune::torch_ops
