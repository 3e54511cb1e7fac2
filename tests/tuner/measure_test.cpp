// tests/tuner/measure_test.cpp -- The stop rule, races and moving clocks, against a simulated
// timer.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/measure/measure.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tuner/measure/gpu_lock.h"
#include "tuner/measure/statistics.h"

namespace vitune {
namespace {

// A device with a clock that the test controls. A launch tells which kernel it is.
class SimulatedTimer : public LaunchTimer {
 public:
  explicit SimulatedTimer(unsigned seed) : random_(seed) {}

  std::vector<double> true_us;                                 // of each kernel
  double noise = 0;                                            // relative, standard deviation
  std::function<double(int)> clock = [](int) { return 1.0; };  // slow-down at a point in time
  int time = 0, cold_calls = 0, prepared = 0, cleared = 0;
  std::vector<std::size_t> order;  // handles in the order of cold()

  Handle add(Launch launch) override {
    launches_.push_back(std::move(launch));
    return launches_.size() - 1;
  }
  void clear() override {
    launches_.clear();
    ++cleared;
  }
  std::vector<double> cold(Handle handle, int count) override {
    order.push_back(handle);
    return sample(handle, count, 3.0);
  }
  void prepare_warm(Handle, double) override { ++prepared; }
  std::vector<double> warm(Handle handle, int count) override { return sample(handle, count, 0.0); }
  double anchor() override { return 33.0 * clock(time++); }

 private:
  std::vector<double> sample(Handle handle, int count, double overhead) {
    std::normal_distribution<double> normal;
    std::vector<double> samples;
    for (int i = 0; i < count; ++i) {
      launches_.at(handle)();
      ++cold_calls;
      const double jitter = 1 + noise * std::abs(normal(random_));
      samples.push_back((true_us.at(handle) + overhead) * clock(time++) * jitter);
    }
    return samples;
  }
  std::vector<Launch> launches_;
  std::mt19937 random_;
};

const Launch kNothing = [] {};

TEST(Measure, AQuietKernelStopsAtTheLeastSamples) {
  SimulatedTimer timer(1);
  timer.true_us = {20};
  const Measurement m = measure(timer, kNothing, {5, 100, 0.01, 3});
  EXPECT_EQ(m.cold.samples, 5);
  EXPECT_DOUBLE_EQ(m.cold.median_us, 23);
  EXPECT_EQ(m.warm.samples, 3);
  EXPECT_DOUBLE_EQ(m.warm.median_us, 20);
  EXPECT_FALSE(m.low_confidence);
  EXPECT_EQ(timer.prepared, 1);
  EXPECT_EQ(timer.cleared, 1);
}

TEST(Measure, ANoisyKernelIsSampledUntilTheIntervalIsNarrowEnough) {
  SimulatedTimer timer(2);
  timer.true_us = {20};
  timer.noise = 0.05;
  const Measurement m = measure(timer, kNothing, {5, 1000, 0.01, 3});
  EXPECT_GT(m.cold.samples, 10);
  EXPECT_LT(m.cold.samples, 1000);
  EXPECT_LT((m.cold.high_us - m.cold.low_us) / 2 / m.cold.median_us, 0.01);
}

TEST(Measure, SamplingEndsAtTheMostSamples) {
  SimulatedTimer timer(3);
  timer.true_us = {20};
  timer.noise = 0.5;
  for (const int most : {1, 5, 6, 17, 64}) {
    EXPECT_EQ(measure(timer, kNothing, {5, most, 1e-9, 3}).cold.samples, std::max(most, 5));
  }
}

TEST(Measure, TheFirstCallsAreNotCounted) {
  SimulatedTimer timer(4);
  timer.true_us = {20};
  int calls = 0;
  measure(timer, [&] { ++calls; }, {5, 5, 0.01, 3});
  EXPECT_EQ(calls, kDiscardedCalls + 5 + 3);
}

TEST(Measure, AMovingClockIsMeasuredAgainAndTheSettledFigureKept) {
  SimulatedTimer timer(5);
  timer.true_us = {20};
  timer.clock = [](int time) { return time < 8 ? 1.5 : 1.0; };
  const Measurement m = measure(timer, kNothing, {5, 5, 0.01, 3});
  EXPECT_FALSE(m.low_confidence);
  EXPECT_DOUBLE_EQ(m.cold.median_us, 23);
}

TEST(Measure, AClockThatNeverSettlesGivesLowConfidenceAndStillAFigure) {
  SimulatedTimer timer(6);
  timer.true_us = {20};
  timer.clock = [](int time) { return 1.0 + 0.01 * time; };
  const Measurement m = measure(timer, kNothing, {5, 5, 0.01, 3});
  EXPECT_TRUE(m.low_confidence);
  EXPECT_GT(m.cold.median_us, 0);
}

TEST(Race, EveryContestantIsTimedOncePerRoundInAFreshOrder) {
  SimulatedTimer timer(7);
  timer.true_us = {20, 21, 22, 23};
  const std::vector<Launch> contestants(4, kNothing);
  const RaceTimes times = race(timer, contestants, 20, 1);
  ASSERT_EQ(times.cold_us.size(), 4u);
  std::set<std::vector<std::size_t>> orders;
  for (std::size_t round = 0; round < 20; ++round) {
    const auto begin = timer.order.begin() + static_cast<std::ptrdiff_t>(4 + 4 * round);
    std::vector<std::size_t> order(begin, begin + 4);
    orders.insert(order);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3}));
  }
  EXPECT_GT(orders.size(), 8u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(times.cold_us[i], std::vector<double>(20, timer.true_us[i] + 3));
    EXPECT_EQ(times.warm_us[i], std::vector<double>(20, timer.true_us[i]));
  }
  EXPECT_FALSE(times.low_confidence);
}

TEST(Race, RoundsInWhichTheClockMovedAreMeasuredAgain) {
  SimulatedTimer timer(8);
  timer.true_us = {20, 30};
  // Two cold and two warm calls and two anchors make a round of 6; set-up takes 4.
  timer.clock = [](int time) { return time >= 22 && time < 34 ? 1.3 : 1.0; };
  const RaceTimes times = race(timer, {kNothing, kNothing}, 10, 2);
  EXPECT_FALSE(times.low_confidence);
  for (const double us : times.cold_us[0]) EXPECT_DOUBLE_EQ(us, 23);
  for (const double us : times.warm_us[1]) EXPECT_DOUBLE_EQ(us, 30);
}

TEST(Race, AClockThatKeepsMovingEndsTheRaceWithLowConfidence) {
  SimulatedTimer timer(9);
  timer.true_us = {20, 30};
  timer.clock = [](int time) { return 1.0 + 0.1 * (time % 7); };
  const RaceTimes times = race(timer, {kNothing, kNothing}, 10, 3);
  EXPECT_TRUE(times.low_confidence);
  EXPECT_EQ(times.cold_us[0].size(), 10u);
}

TEST(Race, TheFasterKernelWinsUnderNoiseRampsAndSteps) {
  constexpr int kRuns = 300;
  int right = 0;
  for (int run = 0; run < kRuns; ++run) {
    SimulatedTimer timer(static_cast<unsigned>(run));
    timer.true_us = {20.0, 20.4, 20.8};
    timer.noise = 0.02;
    const double drift = 0.00002 * (run % 5);
    const int step = 50 + run % 100;
    timer.clock = [=](int time) { return 1.0 + drift * time + (time > step ? 0.01 : 0.0); };
    const RaceTimes times = race(timer, {kNothing, kNothing, kNothing}, 30, 1);
    right += median(times.warm_us[0]) < median(times.warm_us[2]);
    right += median(times.cold_us[0]) < median(times.cold_us[2]);
  }
  EXPECT_GE(right, 2 * kRuns * 99 / 100);
}

class GpuLockTest : public testing::Test {
 protected:
  GpuLockTest() { std::filesystem::create_directories(directory_); }
  ~GpuLockTest() override { std::filesystem::remove_all(directory_); }
  std::filesystem::path directory_ =
      std::filesystem::path(testing::TempDir()) / ("vitune_lock_" + std::to_string(getpid()));
};

TEST_F(GpuLockTest, ASecondHolderWaitsAndSaysThatItWasContended) {
  const auto path = gpu_lock_path(directory_, "GPU-1");
  const GpuLock first(path, std::chrono::milliseconds(0));
  EXPECT_FALSE(first.contended());
  const GpuLock second(path, std::chrono::milliseconds(20));
  EXPECT_TRUE(second.contended());
  const GpuLock other(gpu_lock_path(directory_, "GPU-2"), std::chrono::milliseconds(0));
  EXPECT_FALSE(other.contended());
}

TEST_F(GpuLockTest, TheLockIsFreeAgainWhenItsHolderIsGone) {
  const auto path = gpu_lock_path(directory_, "GPU-1");
  { const GpuLock first(path, std::chrono::milliseconds(0)); }
  EXPECT_FALSE(GpuLock(path, std::chrono::milliseconds(0)).contended());
}

TEST_F(GpuLockTest, EverybodyMayOpenTheFileAndNobodyWriteToIt) {
  const auto path = gpu_lock_path(directory_, "GPU-1");
  const mode_t before = umask(0077);
  const GpuLock first(path, std::chrono::milliseconds(0));
  umask(before);
  struct ::stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0444u);
}

TEST_F(GpuLockTest, AnotherUserOfTheMachineTakesTurnsToo) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  std::filesystem::permissions(directory_, std::filesystem::perms(01777));
  const auto path = gpu_lock_path(directory_, "GPU-1");
  const GpuLock first(path, std::chrono::milliseconds(0));
  const pid_t other = fork();
  if (other == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(2);
    _exit(GpuLock(path, std::chrono::milliseconds(0)).contended() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
}

TEST_F(GpuLockTest, TheLockOfADeviceIsTheSameForEveryHomeAndDatabase) {
  DeviceInfo device;
  device.uuid = "GPU-1";
  const auto path = gpu_lock_path(device);
  const std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "/";
  ASSERT_EQ(setenv("VITUNE_DB", (directory_ / "other.db").c_str(), 1), 0);
  ASSERT_EQ(setenv("HOME", directory_.c_str(), 1), 0);
  const auto other = gpu_lock_path(device);
  unsetenv("VITUNE_DB");
  setenv("HOME", home.c_str(), 1);
  EXPECT_EQ(other, path);
}

TEST_F(GpuLockTest, WhereNoLockFileCanBeTheWorkGoesOn) {
  EXPECT_FALSE(GpuLock({}, std::chrono::milliseconds(0)).contended());
  std::ofstream(directory_ / "file") << "not a directory";
  EXPECT_FALSE(GpuLock(directory_ / "file" / "x.lock", std::chrono::milliseconds(0)).contended());
  const auto link = directory_ / "link.lock";
  std::filesystem::create_symlink(directory_ / "target", link);
  EXPECT_FALSE(GpuLock(link, std::chrono::milliseconds(0)).contended());
  EXPECT_FALSE(std::filesystem::exists(directory_ / "target"));
  const auto fifo = directory_ / "fifo.lock";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0666), 0);
  EXPECT_FALSE(GpuLock(fifo, std::chrono::milliseconds(0)).contended());
}

TEST_F(GpuLockTest, TheNameOfALockFileHoldsNothingOfTheUuid) {
  const auto name = gpu_lock_path(directory_, "../../etc/passwd").filename().string();
  EXPECT_TRUE(name.starts_with("vitune-gpu-") && name.ends_with(".lock")) << name;
  EXPECT_EQ(name.find('.'), name.size() - 5);
}

}  // namespace
}  // namespace vitune
