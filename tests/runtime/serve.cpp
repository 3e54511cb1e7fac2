// tests/runtime/serve.cpp -- An application of libvitune that runs on while others tune:
// vitune_serve.
//
//   vitune_serve DB SECONDS PROBLEM...
//
// Calls each problem in turn for SECONDS, or until SIGTERM or SIGINT, looks for new winners every
// second and holds every 100th answer of a problem against the CPU. Prints how each problem is
// served at the start and at the end; exit status 1 if a call failed or an answer was wrong, 3
// without a GPU. One thread calls; the library's own refreshes.
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/cuda_driver.h"
#include "core/error.h"
#include "tests/runtime/attention_call.h"
#include "vitune/vitune.hpp"

namespace vitune::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kSeed = 20261120;
constexpr int kBurst = 20;         // calls of a problem between two looks at the clock
constexpr int kBetweenChecks = 5;  // bursts of a problem of which the last one's answer is checked
constexpr int kSampledRows = 20;

// SIGTERM and SIGINT, which no handler gets: who waits for them sees them.
class StopSignals {
 public:
  // Before any thread is started, so that all of them leave the signals to this object.
  StopSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGINT);
    if (sigprocmask(SIG_BLOCK, &signals_, nullptr) != 0) throw std::runtime_error("sigprocmask");
  }
  // Waits a moment, as a program with other work would; true if the program is to stop.
  bool arrived_meanwhile() const {
    const timespec moment{0, 2'000'000};
    return sigtimedwait(&signals_, nullptr, &moment) > 0;
  }

 private:
  sigset_t signals_;
};

const char* name_of(Served served) {
  switch (served) {
    case Served::kExact:
      return "exact";
    case Served::kNearest:
      return "nearest";
    case Served::kTransferred:
      return "transferred";
    case Served::kDefault:
      break;
  }
  return "default";
}

class Server {
 public:
  Server(std::shared_ptr<const CudaDriver> driver, const std::string& database)
      : driver_(std::move(driver)),
        cuda_(driver_, 0),
        stream_(*driver_),
        context_({.refresh = std::chrono::seconds(1),
                  .database = database,
                  .shipped_database = "",
                  .log = [this](LogSeverity severity, std::string_view text) {
                    if (severity < LogSeverity::kWarning) return;
                    std::fprintf(stderr, "vitune_serve: %.*s\n", static_cast<int>(text.size()),
                                 text.data());
                    if (severity == LogSeverity::kError) ++errors_;
                  }}) {}

  void add(const std::string& problem) {
    calls_.emplace_back(*driver_, problem, kSeed + calls_.size());
    calls_.back().clear(stream_);
    call(calls_.back());
    check(calls_.back());
  }

  void run(std::chrono::seconds length, const StopSignals& stop) {
    const Clock::time_point end = Clock::now() + length;
    for (std::size_t round = 1; Clock::now() < end; ++round) {
      for (const AttentionCall& served : calls_) {
        const bool checked = round % kBetweenChecks == 0;
        for (int i = 0; i < kBurst; ++i) {
          if (checked && i == kBurst - 1) served.clear(stream_);
          call(served);
        }
        checked ? check(served) : stream_.synchronize();
        if (stop.arrived_meanwhile()) return;
      }
      say_once_all_are_exact();
    }
  }

  // "at the WHEN: OUTCOME PROBLEM, its reason".
  void print_outcomes(const char* when) const {
    for (const AttentionCall& served : calls_) {
      const KernelSelection found = selection(served);
      std::printf("at the %s: %s %s (%s)\n", when, name_of(found.served), found.problem.c_str(),
                  found.reason.c_str());
    }
    std::fflush(stdout);
  }

  // Also says it.
  bool all_went_well() const {
    const vitune_stats s = context_.stats();
    const long long failures = failed_ + wrong_ + errors_;
    std::printf(
        "%s: %lld calls (%llu exact, %llu nearest, %llu transferred, %llu default), %lld checked, "
        "%lld wrong, "
        "%lld failed, %lld errors logged, %llu kernels compiled\n",
        failures == 0 ? "ok" : "failed", made_, static_cast<unsigned long long>(s.exact_calls),
        static_cast<unsigned long long>(s.nearest_calls),
        static_cast<unsigned long long>(s.transferred_calls),
        static_cast<unsigned long long>(s.default_calls), checked_, wrong_, failed_, errors_.load(),
        static_cast<unsigned long long>(s.kernels_compiled));
    return failures == 0;
  }

 private:
  KernelSelection selection(const AttentionCall& served) const {
    Attention attention({});
    attention.desc() = served.desc();
    return context_.query(attention);
  }

  void say_once_all_are_exact() {
    if (said_exact_) return;
    for (const AttentionCall& served : calls_) {
      if (selection(served).served != Served::kExact) return;
    }
    said_exact_ = true;
    std::printf("now all are exact\n");
    std::fflush(stdout);
  }

  void call(const AttentionCall& served) {
    ++made_;
    if (served.forward(context_.get(), stream_) == VITUNE_OK) return;
    if (++failed_ <= 5) std::fprintf(stderr, "vitune_serve: %s\n", vitune_last_error());
  }

  void check(const AttentionCall& served) {
    ++checked_;
    const std::string why = served.what_is_wrong(served.output(stream_), kSampledRows,
                                                 kSeed + static_cast<std::uint64_t>(checked_));
    if (why.empty()) return;
    if (++wrong_ <= 5) {
      std::fprintf(stderr, "vitune_serve: %s: %s\n", served.problem().text().c_str(), why.c_str());
    }
  }

  long long made_ = 0, checked_ = 0, wrong_ = 0, failed_ = 0;
  bool said_exact_ = false;
  std::atomic<long long> errors_{0};
  std::shared_ptr<const CudaDriver> driver_;
  CudaContext cuda_;
  CudaStream stream_;
  std::deque<AttentionCall> calls_;
  Context context_;
};

int serve(int argc, char** argv) {
  const StopSignals stop;
  Server server(CudaDriver::open(), argv[1]);
  for (int i = 3; i < argc; ++i) server.add(argv[i]);
  server.print_outcomes("start");
  server.run(std::chrono::seconds(std::atoi(argv[2])), stop);
  server.print_outcomes("end");
  return server.all_went_well() ? 0 : 1;
}

}  // namespace
}  // namespace vitune::test

int main(int argc, char** argv) {
  if (argc < 4 || std::atoi(argv[2]) < 1) {
    std::fprintf(stderr, "usage: vitune_serve DB SECONDS PROBLEM...\n");
    return 2;
  }
  try {
    return vitune::test::serve(argc, argv);
  } catch (const vitune::Error& error) {
    std::fprintf(stderr, "vitune_serve: %s\n", error.what());
    return error.code() == vitune::ErrorCode::kNoDevice ? 3 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "vitune_serve: %s\n", error.what());
    return 1;
  }
}
