// tests/emulator/single_flight_test.cpp -- Many processes want the same at once: one compile, one
// search.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/work_lock.h"
#include "tests/cli/command_fixture.h"

namespace vitune::testing::single_flight_test {
namespace {

using ::testing::HasSubstr;

constexpr char kProblem[] = "bf16 b=1 h=1 n=21 d=16";
// The emulated compiler takes seconds, and all processes of a test share the machine's cores.
constexpr std::chrono::minutes kPatience{8};

class SingleFlightTest : public CommandTest {
 protected:
  SingleFlightTest() {
    fs::create_directories(device() / "lib64");
    for (const char* file : {"libcuda.so.1", "lib64/libnvrtc.so.12"}) {
      fs::create_symlink(fs::path(VITUNE_EMULATED_DEVICE) / file, device() / file);
    }
  }

  // Nothing is compiled before: only a compile that takes its time is one that others wait for. So
  // the device is one that keeps no kernels.
  CommandOptions uncompiled() const {
    return {
        .environment = {{"LD_LIBRARY_PATH", device().string()}, {"CUDA_HOME", device().string()}},
        .without = {"VITUNE_EMULATED_KERNELS"}};
  }
  // vitune_serve: an application that prepares the problem and calls it for a second.
  std::unique_ptr<RunningCommand> serve() const {
    CommandOptions options = uncompiled();
    options.program = VITUNE_SERVE;
    return start({database().string(), "1", kProblem}, options);
  }

 private:
  fs::path device() const { return directory() / "device"; }
};

TEST_F(SingleFlightTest, OfEightProcessesThatNeedANewKernelOneCompilesItForAll) {
  std::vector<std::unique_ptr<RunningCommand>> servers;
  for (int i = 0; i < 8; ++i) servers.push_back(serve());
  int compiled = 0, served = 0;
  for (const auto& server : servers) {
    const CommandResult result = server->finish(kPatience);
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    compiled += result.out.find(" 1 kernels compiled") != std::string::npos;
    served += result.out.find(" 0 kernels compiled") != std::string::npos;
  }
  EXPECT_EQ(compiled, 1);
  EXPECT_EQ(served, 7);
}

TEST_F(SingleFlightTest, OfThreeProcessesThatTuneAProblemOneSearches) {
  std::vector<std::unique_ptr<RunningCommand>> tuners;
  for (int i = 0; i < 3; ++i) {
    tuners.push_back(start({"tune", kProblem, "--budget", "3", "-j", "1", "--json"}, uncompiled()));
  }
  std::vector<std::string> winners;
  int resumed = 0;
  for (const auto& tuner : tuners) {
    const CommandResult result = tuner->finish(kPatience);
    ASSERT_EQ(result.status, 0) << result.err;
    const auto outcome = result.json()["results"][0];
    resumed += outcome["resumed"].get<bool>();
    winners.push_back(outcome["winner"].dump());
  }
  EXPECT_EQ(resumed, 2);
  EXPECT_EQ(winners[0], winners[1]);
  EXPECT_EQ(winners[1], winners[2]);
}

}  // namespace
}  // namespace vitune::testing::single_flight_test
