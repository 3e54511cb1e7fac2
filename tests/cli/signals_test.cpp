// tests/cli/signals_test.cpp -- The thread that waits for signals ends whatever became of its
// descriptors.
// SPDX-License-Identifier: Apache-2.0
#include "cli/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "core/error.h"

namespace vitune {
namespace {

int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(StopSignalsTest, ItEndsWithoutASignalAndAfterOne) {
  const int status = in_child([] {
    { const StopSignals unused; }
    const StopSignals signals;
    kill(getpid(), SIGINT);
    while (!signals.stop()) usleep(1000);
    return 7;
  });
  EXPECT_EQ(status, 7);
}

TEST(StopSignalsTest, ItEndsWhereItsDescriptorsAreGone) {
  const int status = in_child([] {
    {
      const StopSignals signals;
      for (int fd = 3; fd < 64; ++fd) close(fd);
    }
    return 7;
  });
  EXPECT_EQ(status, 7);
}

TEST(StopSignalsTest, WithoutDescriptorsItSaysSo) {
  const int status = in_child([] {
    const rlimit none{3, 3};
    setrlimit(RLIMIT_NOFILE, &none);
    try {
      const StopSignals signals;
    } catch (const Error& error) {
      return std::string(error.what()).find("ulimit -n") == std::string::npos ? 1 : 7;
    }
    return 2;
  });
  EXPECT_EQ(status, 7);
}

}  // namespace
}  // namespace vitune
