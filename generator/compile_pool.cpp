// generator/compile_pool.cpp -- Hands compiles to worker processes, ends the ones that do not
// answer.
//
// A worker is starting (until its hello), idle, or busy with one job. Whatever it does that is not
// in the protocol costs it its life and the job at hand, nothing else.
// SPDX-License-Identifier: Apache-2.0
#include "generator/compile_pool.h"

#include <poll.h>

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "core/child_process.h"
#include "core/error.h"
#include "generator/compile_log.h"
#include "generator/compile_protocol.h"

namespace vitune {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using TimePoint = steady_clock::time_point;
using Finished = std::pair<std::uint64_t, CompileResult>;

constexpr milliseconds kSendLimit{2000};
constexpr milliseconds kSlice{20};  // how long output of workers may wait to be taken in
constexpr int kMaxFailedStarts = 3;
constexpr int kTries = 2;          // of a compile whose worker stands still or is killed
constexpr int kMaxCompiles = 500;  // then a worker is replaced: NVRTC's memory only grows

}  // namespace

struct PoolJob {
  std::uint64_t id = 0;
  CompileRequest request;
  int tries = 0;
};

struct PoolWorker {
  enum class State { kStarting, kIdle, kBusy, kGone };

  PoolWorker(const ChildOptions& options, milliseconds hello_limit)
      : child(options), wall_end(steady_clock::now() + hello_limit) {}

  ChildProcess child;
  State state = State::kStarting;
  PoolJob job;                       // while busy
  std::uint64_t serial = 0;          // while busy: the id of the job's frame; 0: none
  TimePoint started;                 // of the job
  TimePoint wall_end;                // of the hello or the job
  std::chrono::nanoseconds used{0};  // processor time before the job
  int compiles = 0;
};

namespace {

// Processor time that the job at hand has used; nothing is known of a process that has ended.
milliseconds used_by_job(const PoolWorker& worker) {
  const auto now = worker.child.processor_time().value_or(worker.used);
  return std::chrono::duration_cast<milliseconds>(now - worker.used);
}

milliseconds since(TimePoint start) {
  return std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
}

// "exit status 1; its last words: ..."
std::string ending_of(PoolWorker& worker, const std::optional<ChildEnd>& end) {
  std::string text = end ? end->text() : "a state in which not even SIGKILL ends it";
  const std::string words = worker.child.output();
  if (!words.empty()) text += "; its last words:\n" + words;
  return text;
}

}  // namespace

struct CompilePool::State {
  CompilePoolOptions options;
  std::deque<PoolJob> queue;
  std::vector<std::unique_ptr<PoolWorker>> workers;
  std::deque<Finished> finished;
  std::set<std::uint64_t> pending;
  std::string version;
  std::uint64_t last_serial = 0;  // callers use their ids again, frames must not
  int failed_starts = 0;

  std::size_t count(PoolWorker::State state) const;
  void start_worker();
  void start_workers();
  void bury();
  void dispatch();
  void assign(PoolWorker& worker);
  void receive(PoolWorker& worker);
  void receive_all();
  void greet(PoolWorker& worker, const Frame& frame);
  void accept_reply(PoolWorker& worker, const Frame& frame);
  void finish(PoolWorker& worker, CompileResult result);
  void fail_job(PoolWorker& worker, CompileStatus status, const std::string& why);
  void fail_start(PoolWorker& worker, const std::string& why);
  void begin_again(PoolWorker& worker);
  void lose(PoolWorker& worker, const std::string& why);
  void end_slow(PoolWorker& worker);
  void end_stalled(PoolWorker& worker);
  void expire();
  void step();
  void pause(TimePoint end) const;
};

std::size_t CompilePool::State::count(PoolWorker::State state) const {
  return static_cast<std::size_t>(std::count_if(
      workers.begin(), workers.end(), [&](const auto& worker) { return worker->state == state; }));
}

void CompilePool::State::start_worker() {
  ChildOptions child;
  child.command = options.worker_command;
  child.memory_limit_bytes = options.memory_limit_bytes;
  workers.push_back(std::make_unique<PoolWorker>(child, options.hello_limit));
}

// As many workers as there are jobs to give them, up to the limit.
void CompilePool::State::start_workers() {
  const auto limit = static_cast<std::size_t>(options.workers);
  while (workers.size() < limit && count(PoolWorker::State::kStarting) < queue.size()) {
    try {
      start_worker();
    } catch (const Error&) {
      // A full process table is no reason to fail as long as one worker serves.
      if (workers.empty()) throw;
      return;
    }
  }
}

void CompilePool::State::bury() {
  std::erase_if(workers, [](const auto& w) { return w->state == PoolWorker::State::kGone; });
}

void CompilePool::State::dispatch() {
  for (const auto& worker : workers) {
    if (worker->state != PoolWorker::State::kIdle) continue;
    if (worker->compiles >= kMaxCompiles) {
      worker->state = PoolWorker::State::kGone;
    } else if (!queue.empty()) {
      assign(*worker);
    }
  }
  bury();
  start_workers();
}

void CompilePool::State::assign(PoolWorker& worker) {
  worker.job = std::move(queue.front());
  queue.pop_front();
  ++worker.job.tries;
  worker.state = PoolWorker::State::kBusy;
  worker.serial = ++last_serial;
  worker.started = steady_clock::now();
  worker.wall_end = worker.started + options.wall_limit;
  worker.used = worker.child.processor_time().value_or(std::chrono::nanoseconds(0));
  const CompileRequest& request = worker.job.request;
  const CompileJob message{request.source.main, request.source.digest(), request.arch,
                           request.entry,       request.line_info,       options.deadline};
  // If this fails the worker is dead, which receive() finds, or does not read: its limit ends it.
  worker.child.send({kCompileJob, worker.serial, encode(message)},
                    std::min(kSendLimit, options.deadline));
}

void CompilePool::State::finish(PoolWorker& worker, CompileResult result) {
  pending.erase(worker.job.id);
  finished.emplace_back(worker.job.id, std::move(result));
}

void CompilePool::State::fail_job(PoolWorker& worker, CompileStatus status,
                                  const std::string& why) {
  worker.state = PoolWorker::State::kGone;
  CompileResult result;
  result.status = status;
  result.facts.compile_ms = static_cast<double>(since(worker.started).count());
  result.log = bounded_log(why);
  finish(worker, std::move(result));
}

void CompilePool::State::fail_start(PoolWorker& worker, const std::string& why) {
  worker.state = PoolWorker::State::kGone;
  if (++failed_starts < kMaxFailedStarts) return;
  failed_starts = 0;
  throw Error(ErrorCode::kFailure, "the compile worker '" + options.worker_command.front() +
                                       "' failed " + std::to_string(kMaxFailedStarts) +
                                       " times in a row before it was ready; the last time it " +
                                       why);
}

void CompilePool::State::begin_again(PoolWorker& worker) {
  queue.push_front(std::move(worker.job));
  worker.state = PoolWorker::State::kGone;
}

// The worker is of no use any more.
void CompilePool::State::lose(PoolWorker& worker, const std::string& why) {
  const auto end = worker.child.kill();
  // By a person, or by a machine that lacks memory, which says nothing of the kernel.
  const bool was_killed = worker.state == PoolWorker::State::kBusy && end && end->killed;
  if (was_killed && worker.job.tries < kTries) return begin_again(worker);
  const std::string text = why + "; the process ended with " + ending_of(worker, end);
  if (worker.state == PoolWorker::State::kStarting) fail_start(worker, text);
  if (worker.state == PoolWorker::State::kBusy) {
    fail_job(worker, CompileStatus::kCrash, "the compile worker " + text);
  }
  worker.state = PoolWorker::State::kGone;
}

void CompilePool::State::greet(PoolWorker& worker, const Frame& frame) {
  const auto hello =
      frame.type == kCompileHello ? decode_compile_hello(frame.payload) : std::nullopt;
  if (!hello || hello->protocol != kCompileProtocol) {
    return lose(worker, "does not speak this program's protocol (is it another version?)");
  }
  if (hello->compiler_version.empty()) {
    worker.state = PoolWorker::State::kGone;
    throw Error(ErrorCode::kNoCompiler, hello->problem);
  }
  if (!version.empty() && version != hello->compiler_version) {
    worker.state = PoolWorker::State::kGone;
    throw Error(ErrorCode::kFailure, "the compiler changed from '" + version + "' to '" +
                                         hello->compiler_version +
                                         "' during this run (was the toolkit updated?); start "
                                         "again to use the new one");
  }
  version = hello->compiler_version;
  failed_starts = 0;
  worker.state = PoolWorker::State::kIdle;
  // At once, so that a worker that dies after each hello uses up the queue instead of time.
  if (!queue.empty()) assign(worker);
}

void CompilePool::State::accept_reply(PoolWorker& worker, const Frame& frame) {
  auto result = frame.id == worker.serial ? decode_result(frame.payload) : std::nullopt;
  if (!result) return lose(worker, "sent something that is not the result of its job");
  ++worker.compiles;
  worker.state = PoolWorker::State::kIdle;
  worker.serial = 0;
  finish(worker, std::move(*result));
}

void CompilePool::State::receive(PoolWorker& worker) {
  Frame frame;
  switch (worker.child.receive(frame, milliseconds(0))) {
    case ChildProcess::Receive::kTimeout:
      return;
    case ChildProcess::Receive::kClosed:
      return lose(worker, "closed its connection");
    case ChildProcess::Receive::kGarbage:
      return lose(worker, "sent garbage");
    case ChildProcess::Receive::kFrame:
      break;
  }
  if (worker.state == PoolWorker::State::kStarting) return greet(worker, frame);
  const bool is_reply = frame.type == kCompileReply;
  // Said twice: the first time counted.
  if (is_reply && frame.id != worker.serial && frame.id <= last_serial) return;
  if (is_reply && worker.state == PoolWorker::State::kBusy) return accept_reply(worker, frame);
  lose(worker, "said something that is not in the protocol");
}

void CompilePool::State::receive_all() {
  for (const auto& worker : workers) {
    // One result at a time: the others' sockets stay readable, as descriptors() promises.
    if (!finished.empty()) return;
    if (worker->state != PoolWorker::State::kGone) receive(*worker);
  }
}

// The compile took the processor time that it may take: another try would too.
void CompilePool::State::end_slow(PoolWorker& worker) {
  const std::string used = std::to_string(used_by_job(worker).count());
  const bool ended = worker.child.kill().has_value();
  fail_job(worker, CompileStatus::kTimeout,
           "no result after " + used + " ms of processor time; the compile worker was killed" +
               (ended ? "" : ", but does not end"));
}

// The machine gave the compile too little time, which says nothing of it.
void CompilePool::State::end_stalled(PoolWorker& worker) {
  const std::string what = std::to_string(used_by_job(worker).count()) +
                           " ms of processor time in " +
                           std::to_string(since(worker.started).count()) + " ms";
  worker.child.kill();
  if (worker.job.tries < kTries) return begin_again(worker);
  fail_job(worker, CompileStatus::kTimeout,
           "the machine is too busy to compile, or stood still: the compile worker got " + what +
               ", and no more the time before; nothing is said of the kernel, try again");
}

void CompilePool::State::expire() {
  const TimePoint now = steady_clock::now();
  for (const auto& worker : workers) {
    const bool is_late = worker->wall_end <= now;
    if (worker->state == PoolWorker::State::kStarting && is_late) {
      lose(*worker, "was not ready within " + std::to_string(options.hello_limit.count()) + " ms");
    } else if (worker->state == PoolWorker::State::kBusy &&
               used_by_job(*worker) >= options.deadline) {
      end_slow(*worker);
    } else if (worker->state == PoolWorker::State::kBusy && is_late) {
      end_stalled(*worker);
    }
  }
}

// Everything that can be done without waiting.
void CompilePool::State::step() {
  try {
    receive_all();
    expire();
    dispatch();
  } catch (const Error&) {
    bury();
    if (finished.empty()) throw;  // else the result first; the trouble will show again
  }
}

// Until a worker says something, something is due, or `end`.
void CompilePool::State::pause(TimePoint end) const {
  end = std::min(end, steady_clock::now() + kSlice);
  std::vector<pollfd> sockets;
  for (const auto& worker : workers) {
    sockets.push_back({worker->child.descriptor(), POLLIN, 0});
    if (worker->state != PoolWorker::State::kIdle) end = std::min(end, worker->wall_end);
  }
  const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now()).count();
  poll(sockets.data(), sockets.size(), static_cast<int>(std::max<std::int64_t>(left, 0)));
}

CompilePool::CompilePool(CompilePoolOptions options) : state_(std::make_unique<State>()) {
  if (options.workers < 1 || options.deadline <= milliseconds(0) ||
      options.wall_limit <= milliseconds(0) || options.worker_command.empty()) {
    throw Error(ErrorCode::kFailure,
                "a compile pool needs at least one worker, limits above 0 and the command line of "
                "its workers");
  }
  state_->options = std::move(options);
}

CompilePool::~CompilePool() = default;

std::string CompilePool::compiler_version() {
  State& state = *state_;
  while (state.version.empty()) {
    if (state.workers.empty()) state.start_worker();
    state.step();
    if (state.version.empty()) state.pause(steady_clock::now() + kSlice);
  }
  return state.version;
}

void CompilePool::submit(std::uint64_t id, CompileRequest request) {
  if (!request.library.empty()) {
    CompileResult nothing_to_compile;
    nothing_to_compile.status = CompileStatus::kOk;
    state_->finished.emplace_back(id, std::move(nothing_to_compile));
    return;
  }
  if (!state_->pending.insert(id).second) {
    throw Error(ErrorCode::kFailure, "compile " + std::to_string(id) + " is already pending");
  }
  state_->queue.push_back({id, std::move(request)});
  state_->dispatch();
}

std::optional<Finished> CompilePool::wait(milliseconds timeout) {
  State& state = *state_;
  const TimePoint end = steady_clock::now() + timeout;
  for (;;) {
    state.step();
    if (!state.finished.empty()) break;
    if (state.pending.empty() || steady_clock::now() >= end) return std::nullopt;
    state.pause(end);
  }
  Finished next = std::move(state.finished.front());
  state.finished.pop_front();
  return next;
}

std::size_t CompilePool::pending() const {
  return state_->pending.size() + state_->finished.size();
}

std::vector<int> CompilePool::descriptors() const {
  std::vector<int> result;
  for (const auto& worker : state_->workers) result.push_back(worker->child.descriptor());
  return result;
}

std::vector<int> CompilePool::worker_pids() const {
  std::vector<int> result;
  for (const auto& worker : state_->workers) result.push_back(worker->child.pid());
  return result;
}

}  // namespace vitune
