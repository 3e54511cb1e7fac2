// tuner/worker/bench_worker.cpp -- Serving setup, trials and races on one GPU.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/bench_worker.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "core/cuda_driver.h"
#include "core/env.h"
#include "core/error.h"
#include "core/frame.h"
#include "tuner/judge/support_kernels.h"
#include "tuner/judge/verify.h"
#include "tuner/measure/gpu_lock.h"
#include "tuner/measure/gpu_timer.h"
#include "tuner/measure/measure.h"
#include "tuner/worker/cuda_fault.h"
#include "tuner/worker/heartbeat.h"
#include "tuner/worker/kernel_store.h"
#include "tuner/worker/protocol.h"

namespace vitune {
namespace {

constexpr int kSocket = 3;
constexpr std::size_t kLoadedKernels = 64;
constexpr std::size_t kMaxReason = 1000;
constexpr std::size_t kShareOfPlace = 4;  // of the free memory, the most that another place takes

// Everything that lives on one device.
class BenchWorker {
 public:
  BenchWorker(int ordinal, Heartbeat& heartbeat)
      : heartbeat_(heartbeat),
        driver_(CudaDriver::open()),
        device_(driver_->device_info(ordinal)),
        context_(driver_, ordinal),
        stream_(*driver_),
        kernels_(*driver_, kLoadedKernels),
        lock_path_(gpu_lock_path(device_)) {}

  // Until the parent closes the socket (true) or the context is lost (false).
  bool serve();

 private:
  void send(MessageType type, std::uint64_t id, std::string payload) const {
    heartbeat_.send({static_cast<std::uint32_t>(type), id, std::move(payload)});
  }
  void phase(std::uint64_t id, const char* name) const { heartbeat_.phase(id, name); }

  // Handles a job and sends its reply; whether the context survived it.
  bool handle(const Frame& frame);
  void set_up(const SetupJob& job);
  void run_trial(const TrialJob& job, std::uint64_t id, TrialReply& reply);
  void run_race(const RaceJob& job, std::uint64_t id, RaceReply& reply);
  void propose(const ProposeJob& job, std::uint64_t id, ProposeReply& reply);
  Verifier& verifier_for(const std::string& problem);
  // The tensors of the verifier's problem at a place of a race; where another one would take too
  // much of the free memory, at one that is there.
  Workload& workload_at(int place);
  // The kernels of `ref`; none where its config only calls a library.
  std::shared_ptr<const CudaModule> kernels_of(const Problem& problem, const KernelRef& ref);
  GpuTools tools() { return {context_, stream_, *support_, device_, &libraries_}; }
  void forget_problem();
  // Runs `work` and notes in `reply` how it failed, if it does.
  template <class Reply, class Work>
  void guarded(Reply& reply, Work&& work);

  Heartbeat& heartbeat_;
  std::shared_ptr<const CudaDriver> driver_;
  DeviceInfo device_;
  CudaContext context_;
  CudaStream stream_;
  std::unique_ptr<SupportKernels> support_;
  std::unique_ptr<GpuTimer> timer_;
  KernelStore kernels_;
  Libraries libraries_{read_environment()};
  std::unique_ptr<Verifier> verifier_;
  std::vector<std::unique_ptr<Workload>> further_places_;  // of its problem's tensors
  std::string problem_text_;
  std::filesystem::path lock_path_;
  std::uint64_t job_ = 0;  // the id of the one that runs
};

template <class Reply, class Work>
void BenchWorker::guarded(Reply& reply, Work&& work) {
  try {
    work();
    return;
  } catch (const CudaError& error) {
    const CudaFault fault = classify(error);
    reply.status = fault.status;
    reply.context_lost = fault.context_lost;
    reply.reason = error.what();
  } catch (const Error& error) {
    // A device that fails its probe or disagrees with itself is of no use to further jobs.
    const bool device = error.code() == ErrorCode::kNoDevice;
    reply.status = device ? TrialStatus::kCrash : TrialStatus::kInvalidLaunch;
    reply.context_lost = device;
    reply.reason = error.what();
  } catch (const std::bad_alloc&) {
    reply.status = TrialStatus::kOutOfMemory;
    reply.reason = "the bench worker ran out of host memory";
  }
  reply.reason.resize(std::min(reply.reason.size(), kMaxReason));
  if (!reply.context_lost && reply.status == TrialStatus::kOutOfMemory) forget_problem();
}

void BenchWorker::set_up(const SetupJob& job) {
  auto support = std::make_unique<SupportKernels>(*driver_, job.cubin, device_,
                                                  std::span<const Operator* const>());
  support->probe(*driver_, stream_);
  forget_problem();
  timer_.reset();
  support_ = std::move(support);
  timer_ = std::make_unique<GpuTimer>(context_, stream_, *support_, device_);
  timer_->warm_up();
}

Verifier& BenchWorker::verifier_for(const std::string& problem) {
  if (!support_ || !timer_) {
    throw Error(ErrorCode::kFailure, "a job came before the support kernels");
  }
  if (verifier_ && problem == problem_text_) return *verifier_;
  forget_problem();  // its memory may be needed
  problem_text_ = problem;
  verifier_ = std::make_unique<Verifier>(tools(), parse_problem(problem), [this](bool begins) {
    phase(job_, begins ? kReferencePhase : "verify");
  });
  return *verifier_;
}

void BenchWorker::forget_problem() {
  further_places_.clear();
  verifier_.reset();
}

Workload& BenchWorker::workload_at(int place) {
  Workload& first = verifier_->timing_workload();
  while (place > static_cast<int>(further_places_.size())) {
    // What lies at the other places stays, so that the driver gives other memory; others of this
    // GPU need some too.
    const auto [free_bytes, total_bytes] = context_.free_and_total_memory();
    if (first.bytes() > static_cast<std::int64_t>(free_bytes / kShareOfPlace)) {
      place %= static_cast<int>(further_places_.size()) + 1;
    } else {
      further_places_.push_back(std::make_unique<Workload>(tools(), first.shared_problem()));
    }
  }
  if (place == 0) return first;
  Workload& workload = *further_places_[static_cast<std::size_t>(place - 1)];
  workload.fill_inputs(kNormalDraw);
  return workload;
}

std::shared_ptr<const CudaModule> BenchWorker::kernels_of(const Problem& problem,
                                                          const KernelRef& ref) {
  if (!problem.op().kernels(problem, ref.config).empty()) return kernels_.load(ref);
  return std::make_shared<const CudaModule>(*driver_);
}

void BenchWorker::propose(const ProposeJob& job, std::uint64_t id, ProposeReply& reply) {
  phase(id, "propose");
  const ProblemPtr problem = parse_problem(job.problem);
  reply.configs = problem->op().proposals(*problem, device_, libraries_);
}

void BenchWorker::run_trial(const TrialJob& job, std::uint64_t id, TrialReply& reply) {
  phase(id, "load");
  further_places_.clear();  // their memory may be needed
  Verifier& verifier = verifier_for(job.problem);
  const std::shared_ptr<const CudaModule> kernels = kernels_of(verifier.problem(), job.kernel);
  if (job.verify) {
    if (!job.judge.cubin.empty()) {
      support_->add_judge(*driver_, job.judge.cubin, verifier.problem().op());
    }
    phase(id, "verify");
    Verdict verdict = verifier.verify(*kernels, job.kernel.config);
    reply.status = verdict.status;
    reply.reason = std::move(verdict.reason);
    reply.error = verdict.error;
    if (reply.status != TrialStatus::kOk) return;
  }
  if (!job.measure) return;
  phase(id, "measure");
  Workload& workload = verifier.timing_workload();
  const BoundPlan launch = workload.bind(
      prepare_plan(*kernels, workload.problem(), job.kernel.config, device_, &libraries_));
  const GpuLock lock(lock_path_, kGpuLockPatience);
  reply.measurement = measure(
      *timer_, [&] { launch(stream_); }, job.effort);
  reply.measurement.low_confidence |= lock.contended();
}

void BenchWorker::run_race(const RaceJob& job, std::uint64_t id, RaceReply& reply) {
  phase(id, "load");
  verifier_for(job.problem);
  std::vector<Launch> launches;
  Workload& workload = workload_at(job.place);
  for (const KernelRef& ref : job.contestants) {
    const BoundPlan launch =
        workload.bind(prepare_plan(*kernels_of(workload.problem(), ref), workload.problem(),
                                   ref.config, device_, &libraries_));
    launches.push_back([this, launch] { launch(stream_); });
  }
  phase(id, "measure");
  const GpuLock lock(lock_path_, kGpuLockPatience);
  timer_->warm_up();
  RaceTimes times = race(*timer_, launches, job.rounds, id);
  reply.cold_us = std::move(times.cold_us);
  reply.warm_us = std::move(times.warm_us);
  reply.low_confidence = times.low_confidence || lock.contended();
}

bool BenchWorker::handle(const Frame& frame) {
  job_ = frame.id;
  if (frame.type == static_cast<std::uint32_t>(MessageType::kRace)) {
    const RaceJob job = decode_race_job(frame.payload);
    RaceReply reply;
    guarded(reply, [&] { run_race(job, frame.id, reply); });
    send(MessageType::kRaceResult, frame.id, encode(reply));
    return !reply.context_lost;
  }
  if (frame.type == static_cast<std::uint32_t>(MessageType::kPropose)) {
    const ProposeJob job = decode_propose_job(frame.payload);
    ProposeReply reply;
    guarded(reply, [&] { propose(job, frame.id, reply); });
    send(MessageType::kProposals, frame.id, encode(reply));
    return !reply.context_lost;
  }
  TrialReply reply;
  if (frame.type == static_cast<std::uint32_t>(MessageType::kSetup)) {
    const SetupJob job = decode_setup(frame.payload);
    guarded(reply, [&] { set_up(job); });
  } else if (frame.type == static_cast<std::uint32_t>(MessageType::kTrial)) {
    const TrialJob job = decode_trial_job(frame.payload);
    guarded(reply, [&] { run_trial(job, frame.id, reply); });
  } else {
    throw Error(ErrorCode::kFailure,
                "a bench worker was sent a message of unknown type " + std::to_string(frame.type));
  }
  send(MessageType::kResult, frame.id, encode(reply));
  return !reply.context_lost;
}

bool BenchWorker::serve() {
  send(MessageType::kHello, 0, encode(HelloReply{kProtocolVersion, getpid(), device_}));
  FrameParser parser;
  while (const std::optional<Frame> frame = read_frame(kSocket, parser)) {
    if (!handle(*frame)) return false;
  }
  return true;
}

}  // namespace

int run_bench_worker(int ordinal) {
  // A parent that is gone shows as a failed write.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    Heartbeat heartbeat(kSocket);
    auto worker = std::make_unique<BenchWorker>(ordinal, heartbeat);
    if (worker->serve()) return 0;
    // Nothing of a lost context can be freed, and trying may hang: the end of the process does it.
    static_cast<void>(worker.release());
    return exit_status(ErrorCode::kFailure);
  } catch (const Error& error) {
    std::fprintf(stderr, "bench worker: %s\n", error.what());
    return exit_status(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench worker: %s\n", error.what());
    return exit_status(ErrorCode::kFailure);
  }
}

}  // namespace vitune
