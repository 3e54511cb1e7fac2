// tuner/worker/bench_client.h -- One bench worker and its supervision: spawned, probed, given one
// job at a time, killed on a deadline, replaced.
//
// A worker runs kernels that may hang, fault or lie, so nothing that it does may hurt this process
// or be believed unchecked. A job that ends badly is reported only after the next worker has run
// its known-good probe: if the probe fails too, the device is at fault and the job is not blamed.
// Deadlines go by the worker's own clock, which runs from one of its signs of life (heartbeat.h) to
// the next and for half a second at most: a worker that the machine stops is late for nothing. One
// that gives no sign for long is replaced, and its job is to be given again. Nor is a job charged
// for the time in which the worker makes the judge's right answers.
// One thread drives it by calling step(); nothing blocks for longer than a frame takes to send.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/child_process.h"
#include "core/log.h"
#include "tuner/worker/protocol.h"

namespace vitune {

struct BenchClientOptions {
  std::vector<std::string> command;  // the ordinal is appended
  int ordinal = 0;
  std::chrono::milliseconds hello_deadline{10000};
  std::chrono::milliseconds setup_deadline{30000};
  // Most time of a job in kReferencePhase, beside its own deadline.
  std::chrono::milliseconds reference_limit{600000};
  // A worker that gives no sign of life for so long has stood still.
  std::chrono::milliseconds stall_limit{60000};
  // Before the next worker is started after 1, 2, ... of them failed to get ready in a row.
  std::array<std::chrono::milliseconds, 3> back_off{std::chrono::milliseconds(100),
                                                    std::chrono::milliseconds(1000),
                                                    std::chrono::milliseconds(5000)};
  // A worker is replaced after so many jobs or so long, against leaks and fragmentation.
  int recycle_jobs = 256;
  std::chrono::milliseconds recycle_age{600000};
};

// The result of a job: exactly one of these.
struct BenchResult {
  std::optional<TrialReply> trial;
  std::optional<RaceReply> race;
  std::optional<ProposeReply> proposals;
  // The worker stood still or did not take the job, which says nothing of it: it is to be given
  // again. Comes with a kTimeout. A device whose workers do so three times in a row is lost.
  bool stalled = false;
};

class BenchClient {
 public:
  enum class State {
    kBackingOff,       // waiting to start a worker
    kStarting,         // awaiting HELLO
    kAwaitingSupport,  // knows the device; needs set_support()
    kProbing,          // awaiting the probe's result
    kIdle,
    kBusy,
    kLost,  // for good: see problem()
  };

  BenchClient(BenchClientOptions options, LogSink log_sink);

  State state() const { return state_; }
  bool idle() const { return state_ == State::kIdle; }
  bool lost() const { return state_ == State::kLost; }
  // The worker's device; nothing before the first HELLO.
  const std::optional<DeviceInfo>& device() const { return device_; }
  const std::string& problem() const { return problem_; }
  // Descriptor of the worker alive now, to poll; -1 if there is none.
  int descriptor() const { return child_ ? child_->descriptor() : -1; }
  int pid() const { return child_ ? child_->pid() : -1; }
  // Phase of the running job as the worker's last heartbeat named it.
  const std::string& phase() const { return phase_; }

  // The support kernels that each worker gets first.
  void set_support(std::vector<std::byte> cubin);
  // Starts a job on an idle worker. Cubins that this worker has run before are left out.
  void submit(TrialJob job, std::chrono::milliseconds deadline);
  void submit(RaceJob job, std::chrono::milliseconds deadline);
  void submit(const ProposeJob& job, std::chrono::milliseconds deadline);
  // Does what is due, and hands out the result of a job that ended.
  std::optional<BenchResult> step();
  // Replaces an idle worker that is due for it.
  void recycle_if_due();

 private:
  using Clock = std::chrono::steady_clock;
  enum class JobKind { kNone, kTrial, kRace, kPropose };

  void spawn();
  void start_job(MessageType type, std::string payload, JobKind kind,
                 std::chrono::milliseconds deadline);
  void omit_known(const Digest& key, std::vector<std::byte>& cubin);
  void receive_frames();
  void take_frame(const Frame& frame);
  void take_hello(const Frame& frame);
  void take_probe(const Frame& frame);
  void take_result(const Frame& frame);
  void note_phase(const Frame& frame);
  void start_clock(std::chrono::milliseconds limit);
  void note_sign_of_life();
  Clock::duration& left() { return making_answers_ ? reference_left_ : left_; }
  void finish(BenchResult result, bool context_lost);
  void check_deadline();
  // The worker is at fault: ends it, and with it the job or the attempt to get ready.
  void fail(TrialStatus status, const std::string& reason);
  void hold_failure(TrialStatus status, const std::string& reason);
  void worker_ended();
  void stand_still();
  void end_unjudged(const std::string& what);
  void start_failed(const std::string& reason);
  void answers_overdue();
  void lose(const std::string& reason);
  std::string end_worker();
  void schedule_spawn();

  BenchClientOptions options_;
  LogSink log_sink_;
  State state_ = State::kBackingOff;
  std::unique_ptr<ChildProcess> child_;
  std::optional<DeviceInfo> device_;
  std::vector<std::byte> support_;
  std::string problem_;
  std::string phase_;
  Clock::time_point next_start_;  // while backing off
  Clock::time_point heard_;       // the worker's last sign of life
  Clock::duration left_{};        // of the job, or of getting ready, by the worker's clock
  Clock::duration reference_left_{};
  bool making_answers_ = false;
  int stalls_ = 0;  // jobs in a row whose worker stood still
  Clock::time_point born_;
  JobKind job_ = JobKind::kNone;
  std::uint64_t id_ = 0;  // of the last job
  std::size_t contestants_ = 0, rounds_ = 0;
  std::vector<Digest> sent_;  // kernels of the running job
  std::set<Digest> known_;    // kernels that this worker holds
  int jobs_ = 0;              // of this worker
  std::size_t failed_starts_ = 0;
  std::optional<BenchResult> held_;  // a bad end that awaits the next probe
  std::optional<BenchResult> ready_;
};

}  // namespace vitune
