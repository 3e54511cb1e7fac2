// benchmarks/call_times.h -- Times of single calls of some tens of nanoseconds, as percentiles.
//
// Each call is stamped with the processor's time stamp counter, fenced on both sides, so that
// nothing of the call is left out and nothing else is counted. What a pair of stamps takes by
// itself, the median of empty pairs on the same thread, is subtracted from each call; a call that
// overlaps with the work around it, as in a program, takes less than what is shown here. Some
// processors' counters go in steps (of 10 ns on AMD's): single calls are then multiples of a step,
// and only mean_ns tells smaller differences.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace vitune::bench {

#if defined(__x86_64__)
inline std::uint64_t stamp() {
  _mm_lfence();
  const std::uint64_t ticks = __rdtsc();
  _mm_lfence();
  return ticks;
}
#else
inline std::uint64_t stamp() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}
#endif

// Nanoseconds per tick of stamp(), against the steady clock over 50 ms.
inline double nanoseconds_per_tick() {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point began = Clock::now();
  const std::uint64_t first = stamp();
  while (Clock::now() - began < std::chrono::milliseconds(50)) {
  }
  const std::uint64_t last = stamp();
  return std::chrono::duration<double, std::nano>(Clock::now() - began).count() /
         static_cast<double>(last - first);
}

// Counts of ticks, one bin each up to a limit; longer calls are kept one by one.
class TickHistogram {
 public:
  void add(std::uint64_t ticks) {
    if (ticks < kBins) {
      ++bins_[ticks];
    } else {
      long_.push_back(ticks);
    }
    ++count_;
  }
  void add(const TickHistogram& other) {
    for (std::size_t i = 0; i < kBins; ++i) bins_[i] += other.bins_[i];
    long_.insert(long_.end(), other.long_.begin(), other.long_.end());
    count_ += other.count_;
  }
  // The time in ticks that this share of the calls does not exceed.
  double percentile(double share) {
    auto left = static_cast<std::uint64_t>(share * static_cast<double>(count_));
    for (std::size_t i = 0; i < kBins; ++i) {
      if (bins_[i] > left) return static_cast<double>(i);
      left -= bins_[i];
    }
    if (long_.empty()) return 0;
    std::sort(long_.begin(), long_.end());
    return static_cast<double>(long_[std::min<std::size_t>(left, long_.size() - 1)]);
  }

 private:
  static constexpr std::size_t kBins = 1 << 16;
  std::vector<std::uint64_t> bins_ = std::vector<std::uint64_t>(kBins);
  std::vector<std::uint64_t> long_;
  std::uint64_t count_ = 0;
};

// Time between two stamps with nothing between them, in ticks.
inline std::uint64_t empty_ticks() {
  TickHistogram empty;
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t began = stamp();
    empty.add(stamp() - began);
  }
  return static_cast<std::uint64_t>(empty.percentile(0.5));
}

// Processor time of the calling thread: there may be more threads than processors.
inline double thread_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

struct CallTimes {
  double p50_ns = 0, p99_ns = 0, p999_ns = 0;
  double mean_ns = 0;  // processor time of unstamped calls back to back, preparations included
};

// Runs call(thread, i) for i = 0 .. calls - 1 on each of `threads` threads at once, stamped, and
// then as often without stamps; prepare(thread, i) before each, outside the stamps.
template <typename Prepare, typename Call>
CallTimes time_calls(int threads, int calls, Prepare&& prepare, Call&& call) {
  std::vector<TickHistogram> histograms(static_cast<std::size_t>(threads));
  std::vector<double> means(histograms.size());
  std::barrier together(threads);
  const auto work = [&](int thread) {
    TickHistogram& histogram = histograms[static_cast<std::size_t>(thread)];
    const std::uint64_t empty = empty_ticks();
    for (int i = 0; i < calls / 10; ++i) prepare(thread, i), call(thread, i);
    together.arrive_and_wait();
    for (int i = 0; i < calls; ++i) {
      prepare(thread, i);
      const std::uint64_t began = stamp();
      call(thread, i);
      const std::uint64_t ticks = stamp() - began;
      histogram.add(ticks > empty ? ticks - empty : 0);
    }
    together.arrive_and_wait();
    const double began = thread_ns();
    for (int i = 0; i < calls; ++i) prepare(thread, i), call(thread, i);
    means[static_cast<std::size_t>(thread)] = (thread_ns() - began) / calls;
  };
  {
    std::vector<std::jthread> running;
    for (int thread = 1; thread < threads; ++thread) running.emplace_back(work, thread);
    work(0);
  }
  for (std::size_t i = 1; i < histograms.size(); ++i) histograms[0].add(histograms[i]);
  const double ns = nanoseconds_per_tick();
  CallTimes times{histograms[0].percentile(0.5) * ns, histograms[0].percentile(0.99) * ns,
                  histograms[0].percentile(0.999) * ns, 0};
  for (const double mean : means) times.mean_ns += mean / threads;
  return times;
}

template <typename Call>
CallTimes time_calls(int threads, int calls, Call&& call) {
  return time_calls(
      threads, calls, [](int, int) {}, call);
}

}  // namespace vitune::bench
