// benchmarks/operator_bench.cpp -- Judges and races what computes a problem on its tensors.
// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/operator_bench.h"

#include <chrono>
#include <exception>
#include <span>
#include <utility>

#include "benchmarks/compiled_support.h"
#include "core/error.h"
#include "tuner/measure/gpu_lock.h"
#include "tuner/measure/measure.h"
#include "vitune/vitune.hpp"

namespace vitune::bench {
namespace {

constexpr std::uint64_t kSeed = 1;

// A problem as libvitune's callers have it, on the tensors of a workload.
struct Call {
  cpp::Problem problem;
  std::vector<void*> addresses;
  DeviceBuffer workspace;
};

}  // namespace

struct OperatorBench::Library {
  Context context;
};

OperatorBench::OperatorBench(int ordinal, int rounds)
    : driver_(CudaDriver::open()),
      device_(driver_->device_info(ordinal)),
      context_(driver_, ordinal),
      stream_(*driver_),
      support_(support_kernels(*driver_, device_, stream_)),
      timer_(std::make_unique<GpuTimer>(context_, stream_, *support_, device_)),
      record_(*driver_, sizeof(LaunchRecord)),
      library_(new Library{Context(ContextOptions{.device = ordinal, .read_only = true})}),
      rounds_(rounds),
      lock_path_(gpu_lock_path(device_)) {}

OperatorBench::~OperatorBench() = default;

const ProblemTimes& OperatorBench::times(const ProblemPtr& problem) {
  const std::string text = problem->text();
  const auto found = known_.find(text);
  if (found != known_.end()) return found->second;
  return known_.emplace(text, measure(problem)).first->second;
}

Launch OperatorBench::vitune_launch(const Workload& workload, Samples& samples) {
  const std::string text = workload.problem().text();
  Context& context = library_->context;
  const auto call = std::make_shared<Call>(Call{cpp::Problem(text), {}, {}});
  for (const std::uintptr_t address : workload.addresses()) {
    call->addresses.push_back(reinterpret_cast<void*>(address));
  }
  if (const std::size_t bytes = context.workspace_bytes(call->problem); bytes > 0) {
    call->workspace = DeviceBuffer(*driver_, bytes);
  }
  samples.exact = context.query(call->problem).served == Served::kExact;
  return [&context, call, stream = stream_.get()] {
    const DeviceBuffer& scratch = call->workspace;
    context.run(
        call->problem, call->addresses,
        {reinterpret_cast<void*>(scratch.address()), static_cast<std::int64_t>(scratch.size())},
        stream);
  };
}

std::vector<OperatorBench::Contestant> OperatorBench::contestants(const Workload& workload,
                                                                  ProblemTimes& times) {
  Samples& samples = times.contestants[kVitune];
  try {
    return {{kVitune, vitune_launch(workload, samples)}};
  } catch (const std::exception& error) {
    samples.refused = error.what();
    return {};
  }
}

LaunchRecord OperatorBench::take_record() {
  stream_.synchronize();
  LaunchRecord record;
  record_.download(std::as_writable_bytes(std::span(&record, 1)));
  return record;
}

std::string OperatorBench::judged(const Launch& launch, Workload& workload,
                                  const Reference& reference, const std::uint64_t* inputs,
                                  Samples& samples) {
  const CuPointer at = record_.address();
  stream_.fill8(at, 0, record_.size());
  workload.poison_outputs();
  launch();
  reference.compare(workload, at + offsetof(LaunchRecord, findings));
  workload.count_output_damage(at + offsetof(LaunchRecord, output_damage));
  workload.digest_inputs(at + offsetof(LaunchRecord, inputs));
  const LaunchRecord record = take_record();
  const ErrorFigures error = worst_figures(record, workload.tensors(), reference.bounds());
  samples.max_error = error.max_error;
  samples.rms_error = error.rms_error;
  return judge(record, workload.tensors(), reference.bounds(), inputs).value_or("");
}

ProblemTimes OperatorBench::measure(const ProblemPtr& problem) {
  Workload workload(tools(), problem);
  workload.fill_inputs(kNormalDraw);
  const Reference reference(tools(), workload);
  stream_.fill8(record_.address(), 0, record_.size());
  workload.digest_inputs(record_.address() + offsetof(LaunchRecord, inputs));
  const LaunchRecord before = take_record();

  ProblemTimes times;
  std::vector<Contestant> racers;
  std::vector<Launch> launches;
  for (Contestant& each : contestants(workload, times)) {
    Samples& samples = times.contestants[each.name];
    try {
      const std::string wrong = judged(each.launch, workload, reference, before.inputs, samples);
      if (!wrong.empty()) samples.refused = "its output is wrong: it " + wrong;
    } catch (const std::exception& error) {
      samples.refused = error.what();
    }
    if (!samples.refused.empty()) continue;
    launches.push_back(each.launch);
    racers.push_back(std::move(each));
  }
  if (racers.empty()) return times;
  const GpuLock lock(lock_path_, kGpuLockPatience);
  timer_->warm_up();
  RaceTimes raced = race(*timer_, launches, rounds_, kSeed);
  times.low_confidence = raced.low_confidence || lock.contended();
  for (std::size_t i = 0; i < racers.size(); ++i) {
    Samples& samples = times.contestants[racers[i].name];
    samples.cold_us = std::move(raced.cold_us[i]);
    samples.warm_us = std::move(raced.warm_us[i]);
  }
  return times;
}

}  // namespace vitune::bench
