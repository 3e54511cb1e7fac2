// tuner/worker/bench_client.cpp -- One bench worker and its supervision.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/bench_client.h"

#include <algorithm>

#include "core/error.h"
#include "core/format.h"
#include "tuner/worker/reply_check.h"

namespace vitune {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSendLimit{2000};
// Most time that a sign of life may add to the worker's clock. Five beats, so that a loaded
// machine, on which they come late, lengthens deadlines rather than meets them.
constexpr milliseconds kMostPerSign{500};
constexpr int kMostStalls = 3;
constexpr int kFramesPerStep = 256;  // a flood of heartbeats must not hold up the other workers

bool usable_device(const DeviceInfo& device) {
  return device.cc_major > 0 && device.cc_major < 100 && device.cc_minor >= 0 &&
         device.cc_minor < 10 && device.sm_count > 0 && device.shared_per_block > 0 &&
         device.name.size() <= 256;
}

}  // namespace

BenchClient::BenchClient(BenchClientOptions options, LogSink log_sink)
    : options_(std::move(options)), log_sink_(std::move(log_sink)) {
  options_.command.push_back(std::to_string(options_.ordinal));
  next_start_ = Clock::now();
}

void BenchClient::spawn() {
  try {
    ChildOptions child;
    child.command = options_.command;
    child_ = std::make_unique<ChildProcess>(child);
  } catch (const Error& error) {
    start_failed(error.what());
    return;
  }
  known_.clear();
  jobs_ = 0;
  born_ = Clock::now();
  start_clock(options_.hello_deadline);
  state_ = State::kStarting;
}

void BenchClient::set_support(std::vector<std::byte> cubin) {
  support_ = std::move(cubin);
  if (state_ != State::kAwaitingSupport) return;
  const Frame frame{static_cast<std::uint32_t>(MessageType::kSetup), ++id_,
                    encode(SetupJob{support_})};
  state_ = State::kProbing;
  start_clock(options_.setup_deadline);
  if (!child_->send(frame, kSendLimit)) start_failed("it does not take its support kernels");
}

void BenchClient::omit_known(const Digest& key, std::vector<std::byte>& cubin) {
  sent_.push_back(key);
  if (known_.contains(key)) cubin.clear();
}

void BenchClient::submit(TrialJob job, milliseconds deadline) {
  sent_.clear();
  omit_known(job.kernel.kernel_key, job.kernel.cubin);
  if (job.verify) omit_known(job.judge.kernel_key, job.judge.cubin);
  start_job(MessageType::kTrial, encode(job), JobKind::kTrial, deadline);
}

void BenchClient::submit(RaceJob job, milliseconds deadline) {
  sent_.clear();
  for (KernelRef& kernel : job.contestants) omit_known(kernel.kernel_key, kernel.cubin);
  contestants_ = job.contestants.size();
  rounds_ = static_cast<std::size_t>(std::max(job.rounds, 0));
  start_job(MessageType::kRace, encode(job), JobKind::kRace, deadline);
}

void BenchClient::submit(const ProposeJob& job, milliseconds deadline) {
  sent_.clear();
  start_job(MessageType::kPropose, encode(job), JobKind::kPropose, deadline);
}

void BenchClient::start_job(MessageType type, std::string payload, JobKind kind,
                            milliseconds deadline) {
  if (!idle()) throw Error(ErrorCode::kFailure, "a bench worker was given a job while not idle");
  job_ = kind;
  phase_ = "load";
  ++jobs_;
  state_ = State::kBusy;
  start_clock(deadline);
  reference_left_ = options_.reference_limit;
  const Frame frame{static_cast<std::uint32_t>(type), ++id_, std::move(payload)};
  if (!child_->send(frame, kSendLimit)) end_unjudged("does not take its job");
}

std::optional<BenchResult> BenchClient::step() {
  if (state_ == State::kBackingOff && Clock::now() >= next_start_) spawn();
  if (child_) receive_frames();
  if (child_) check_deadline();
  std::optional<BenchResult> result = std::move(ready_);
  ready_.reset();
  return result;
}

void BenchClient::receive_frames() {
  Frame frame;
  for (int i = 0; child_ && i < kFramesPerStep; ++i) {
    switch (child_->receive(frame, milliseconds(0))) {
      case ChildProcess::Receive::kFrame:
        take_frame(frame);
        break;
      case ChildProcess::Receive::kTimeout:
        return;
      case ChildProcess::Receive::kClosed:
        worker_ended();
        return;
      case ChildProcess::Receive::kGarbage:
        fail(TrialStatus::kCrash, "answered with garbage");
        return;
    }
  }
}

void BenchClient::take_frame(const Frame& frame) {
  note_sign_of_life();
  try {
    if (frame.type == static_cast<std::uint32_t>(MessageType::kPhase)) return note_phase(frame);
    if (state_ == State::kStarting) return take_hello(frame);
    // An answer to an earlier job: given twice or too late.
    if (frame.id < id_ || (frame.id == id_ && idle())) return;
    if (frame.id != id_) throw Error(ErrorCode::kFailure, "answered a job that it was not given");
    if (state_ == State::kProbing) return take_probe(frame);
    if (state_ == State::kBusy) return take_result(frame);
    throw Error(ErrorCode::kFailure, "spoke out of turn");
  } catch (const Error& error) {
    fail(TrialStatus::kCrash, error.what());
  }
}

void BenchClient::note_phase(const Frame& frame) {
  const std::string& payload = frame.payload;
  const bool plain =
      payload.size() <= 64 && std::all_of(payload.begin(), payload.end(),
                                          [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
  if (!plain) return;
  if (state_ != State::kBusy || frame.id != id_) return;
  phase_ = payload;
  // Right answers have a clock of their own, which runs over all of a job's, so that a worker
  // cannot win time by naming phases in turn.
  making_answers_ = payload == kReferencePhase;
}

void BenchClient::start_clock(milliseconds limit) {
  heard_ = Clock::now();
  left_ = limit;
  making_answers_ = false;
}

void BenchClient::note_sign_of_life() {
  const auto now = Clock::now();
  left() -= std::min<Clock::duration>(now - heard_, kMostPerSign);
  heard_ = now;
}

void BenchClient::take_hello(const Frame& frame) {
  if (frame.type != static_cast<std::uint32_t>(MessageType::kHello)) {
    throw Error(ErrorCode::kFailure, "did not say hello first");
  }
  const HelloReply hello = decode_hello(frame.payload);
  if (hello.protocol != kProtocolVersion) {
    lose(formatted("its worker speaks version {} of the protocol, this program version {}",
                   hello.protocol, kProtocolVersion));
    return;
  }
  if (!usable_device(hello.device)) throw Error(ErrorCode::kFailure, "described no real device");
  if (device_ && device_->key() != hello.device.key()) {
    lose("it is another device than before: " + hello.device.name);
    return;
  }
  device_ = hello.device;
  state_ = State::kAwaitingSupport;
  if (!support_.empty()) set_support(std::move(support_));
}

void BenchClient::take_probe(const Frame& frame) {
  if (frame.type != static_cast<std::uint32_t>(MessageType::kResult)) {
    throw Error(ErrorCode::kFailure, "did not report its probe");
  }
  const TrialReply reply = decode_trial_reply(frame.payload);
  if (reply.status != TrialStatus::kOk) {
    throw Error(ErrorCode::kFailure, "failed its known-good probe: " + last_line(reply.reason));
  }
  failed_starts_ = 0;
  state_ = State::kIdle;
  ready_ = std::move(held_);
  held_.reset();
}

void BenchClient::take_result(const Frame& frame) {
  BenchResult result;
  bool context_lost = false;
  if (job_ == JobKind::kTrial && frame.type == static_cast<std::uint32_t>(MessageType::kResult)) {
    result.trial = decode_trial_reply(frame.payload);
    check_reply(*result.trial);
    context_lost = result.trial->context_lost;
  } else if (job_ == JobKind::kRace &&
             frame.type == static_cast<std::uint32_t>(MessageType::kRaceResult)) {
    result.race = decode_race_reply(frame.payload);
    check_reply(*result.race, contestants_, rounds_);
    context_lost = result.race->context_lost;
  } else if (job_ == JobKind::kPropose &&
             frame.type == static_cast<std::uint32_t>(MessageType::kProposals)) {
    result.proposals = decode_propose_reply(frame.payload);
    check_reply(*result.proposals);
    context_lost = result.proposals->context_lost;
  } else {
    throw Error(ErrorCode::kFailure, "answered with the wrong kind of result");
  }
  finish(std::move(result), context_lost);
}

void BenchClient::finish(BenchResult result, bool context_lost) {
  job_ = JobKind::kNone;
  stalls_ = 0;
  if (context_lost) {
    held_ = std::move(result);
    end_worker();
    if (!lost()) schedule_spawn();
    return;
  }
  const bool failed = (result.trial && result.trial->status != TrialStatus::kOk) ||
                      (result.race && result.race->status != TrialStatus::kOk);
  if (!failed) known_.insert(sent_.begin(), sent_.end());
  ready_ = std::move(result);
  state_ = State::kIdle;
}

void BenchClient::check_deadline() {
  const bool is_waited_for =
      state_ == State::kBusy || state_ == State::kStarting || state_ == State::kProbing;
  if (!is_waited_for) return;
  if (left() <= Clock::duration::zero()) {
    if (state_ == State::kStarting) return start_failed("its worker did not say hello in time");
    if (state_ == State::kProbing) {
      return start_failed("its worker did not finish the known-good probe");
    }
    if (making_answers_) return answers_overdue();
    stalls_ = 0;
    return fail(TrialStatus::kTimeout, "did not finish before its deadline");
  }
  if (Clock::now() - heard_ >= options_.stall_limit) stand_still();
}

// No sign of life for long: it was stopped or frozen, or the driver holds the whole process.
void BenchClient::stand_still() {
  const auto limit = std::chrono::ceil<std::chrono::seconds>(options_.stall_limit).count();
  const std::string what = formatted("stood still for {} s", limit);
  if (state_ != State::kBusy) return start_failed("its worker " + what);
  end_unjudged(what);
}

// A signal that asks a worker to end comes from a person or the machine, not from a kernel.
void BenchClient::worker_ended() {
  const std::optional<ChildEnd> end = child_->kill();
  if (state_ == State::kBusy && end && end->killed) return end_unjudged("was killed");
  fail(TrialStatus::kCrash, "ended");
}

// The job has not shown what it does.
void BenchClient::end_unjudged(const std::string& what) {
  if (++stalls_ >= kMostStalls) {
    const std::string end = end_worker();
    if (!lost()) lose(formatted("its worker {}, {} times in a row ({})", what, stalls_, end));
    return;
  }
  fail(TrialStatus::kTimeout, what);
  if (held_) held_->stalled = true;
}

void BenchClient::fail(TrialStatus status, const std::string& reason) {
  if (state_ != State::kBusy && !idle()) return start_failed("its worker " + reason);
  const bool busy = state_ == State::kBusy;
  const std::string end = end_worker();
  if (lost()) return;
  const std::string text =
      formatted("the bench worker {} in phase \"{}\" ({})", reason, phase_, end);
  log(log_sink_, LogLevel::kDebug, formatted("GPU {}: {}", options_.ordinal, text));
  if (busy) hold_failure(status, text);
  schedule_spawn();
}

void BenchClient::hold_failure(TrialStatus status, const std::string& reason) {
  held_.emplace();
  if (job_ == JobKind::kTrial) {
    held_->trial.emplace();
    held_->trial->status = status;
    held_->trial->reason = reason;
  } else if (job_ == JobKind::kPropose) {
    held_->proposals.emplace();
    held_->proposals->status = status;
    held_->proposals->reason = reason;
  } else {
    held_->race.emplace();
    held_->race->status = status;
    held_->race->reason = reason;
  }
  job_ = JobKind::kNone;
}

void BenchClient::schedule_spawn() {
  next_start_ =
      Clock::now() + options_.back_off[std::min(failed_starts_, options_.back_off.size() - 1)];
  state_ = State::kBackingOff;
}

void BenchClient::start_failed(const std::string& reason) {
  const std::optional<ChildEnd> end = child_ ? child_->kill() : std::nullopt;
  const std::string text = child_ ? formatted("{} ({})", reason, end_worker()) : reason;
  if (lost()) return;
  ++failed_starts_;
  // A worker that finds no device at all says so by its exit status; asking again will not help.
  const bool no_device = end && end->exited && end->code == exit_status(ErrorCode::kNoDevice);
  if (no_device || failed_starts_ >= options_.back_off.size()) return lose(text);
  log(log_sink_, LogLevel::kWarning, formatted("GPU {}: {}; trying again", options_.ordinal, text));
  schedule_spawn();
}

// Every candidate of the problem would meet the same.
void BenchClient::answers_overdue() {
  const std::string end = end_worker();
  if (lost()) return;
  const auto limit = std::chrono::ceil<std::chrono::seconds>(options_.reference_limit);
  lose(
      formatted("its worker did not finish the right answers that candidates are judged by within "
                "{} s ({}): the problem is too long to be judged on this device, or the device is "
                "at fault",
                limit.count(), end));
}

void BenchClient::lose(const std::string& reason) {
  child_.reset();
  held_.reset();
  job_ = JobKind::kNone;
  state_ = State::kLost;
  problem_ = formatted("GPU {}: {}", options_.ordinal, reason);
}

// How the worker ended, in words.
std::string BenchClient::end_worker() {
  if (!child_) return "it was not running";
  const std::optional<ChildEnd> end = child_->kill();
  if (!end) {
    lose(
        "its worker cannot be ended even by SIGKILL: the driver is stuck; reset the GPU or reboot");
    return "wedged";
  }
  const std::string words = last_line(child_->output());
  child_.reset();
  return words.empty() ? end->text() : end->text() + ", last words: " + words;
}

void BenchClient::recycle_if_due() {
  const bool due = jobs_ >= options_.recycle_jobs || Clock::now() - born_ >= options_.recycle_age;
  if (!idle() || !due) return;
  end_worker();
  if (lost()) return;
  next_start_ = Clock::now();
  state_ = State::kBackingOff;
}

}  // namespace vitune
