// cli/passes/pass_times.cpp -- Event pairs around runs, clocks around calls, graphs of one step.
// SPDX-License-Identifier: Apache-2.0
#include "cli/passes/pass_times.h"

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "runtime/api/last_error.h"
#include "tuner/measure/statistics.h"

namespace vitune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSamples = 101;       // of a pass
constexpr int kLeastSamples = 7;    // however long they take
constexpr double kSampleUs = 2000;  // so long at least, of several passes
constexpr double kPatience = 3;     // seconds for samples
constexpr double kWarmUpSeconds = 0.3;
constexpr int kCallsAhead = 16;  // calls that no queue makes wait
constexpr int kStepSamples = 5;
constexpr double kStepSampleUs = 500;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class PassTimer {
 public:
  PassTimer(ModelSession& session, const std::atomic<bool>& stop)
      : session_(session),
        driver_(session.model().context().driver()),
        stop_(stop),
        stream_(driver_),
        start_(driver_),
        end_(driver_),
        inputs_(session.inputs(), nullptr),
        outputs_(session.places() - session.inputs(), nullptr) {}

  PassTimes all() {
    const double call_us = warmed_up_us();
    PassTimes times{pass(call_us), host_us(), {}};
    for (std::size_t i = 0; i < session_.bound().steps.size() && !stop_; ++i) {
      times.steps_us.push_back(step_us(i));
    }
    return times;
  }

 private:
  void run() {
    if (session_.run(inputs_, outputs_, stream_.get()) == VITUNE_OK) return;
    throw Error(ErrorCode::kFailure, last_error());
  }

  // Microseconds of a call of `launch`, of `count` in a row behind one that is not counted.
  template <typename Launch>
  double sample(int count, const Launch& launch) {
    launch();
    start_.record(stream_);
    for (int i = 0; i < count; ++i) launch();
    end_.record(stream_);
    end_.synchronize();
    return end_.microseconds_since(start_) / count;
  }

  // About what a call takes, by this thread's clock: at most so long a sample then takes.
  template <typename Launch>
  double about_us(const Launch& launch) {
    const Clock::time_point start = Clock::now();
    sample(1, launch);
    return std::max(1e6 * seconds_since(start) / 2, 1.0);
  }

  // Raises the clocks; about what a pass takes.
  double warmed_up_us() {
    const Clock::time_point start = Clock::now();
    double us = 0;
    do {
      us = about_us([&] { run(); });
    } while (seconds_since(start) < kWarmUpSeconds && !stop_);
    return us;
  }

  Timing pass(double call_us) {
    const int count = static_cast<int>(std::clamp(kSampleUs / call_us, 1.0, 40.0));
    std::vector<double> samples;
    const Clock::time_point start = Clock::now();
    while (static_cast<int>(samples.size()) < kSamples) {
      const bool is_enough =
          static_cast<int>(samples.size()) >= kLeastSamples && seconds_since(start) > kPatience;
      if (!samples.empty() && (stop_ || is_enough)) break;
      samples.push_back(sample(count, [&] { run(); }));
    }
    return timing_of(samples);
  }

  double host_us() {
    std::vector<double> samples;
    const Clock::time_point start = Clock::now();
    do {
      for (int i = 0; i < kCallsAhead; ++i) {
        const Clock::time_point call = Clock::now();
        run();
        samples.push_back(1e6 * seconds_since(call));
      }
      stream_.synchronize();
    } while (samples.size() < kCallsAhead * kCallsAhead && seconds_since(start) < 1 && !stop_);
    return median(std::move(samples));
  }

  double step_us(std::size_t step) {
    const auto launch = [&] { session_.launch_step(step, stream_.get()); };
    launch();
    const int count = static_cast<int>(std::clamp(kStepSampleUs / about_us(launch), 1.0, 20.0));
    const CudaGraph graph(driver_, stream_, [&] {
      for (int i = 0; i < count; ++i) launch();
    });
    std::vector<double> samples;
    for (int i = 0; i < kStepSamples; ++i) {
      samples.push_back(sample(1, [&] { graph.launch(stream_); }) / count);
    }
    return median(std::move(samples));
  }

  ModelSession& session_;
  const CudaDriver& driver_;
  const std::atomic<bool>& stop_;
  CudaStream stream_;
  CudaEvent start_, end_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

}  // namespace

PassTimes time_pass(ModelSession& session, const std::atomic<bool>& stop) {
  return PassTimer(session, stop).all();
}

}  // namespace vitune
