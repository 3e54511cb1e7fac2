// benchmarks/attention_bench.cpp -- Judges and races libvitune and cuDNN on the tensors of a
// problem.
// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/attention_bench.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <span>
#include <utility>

#include "benchmarks/compiled_support.h"
#include "core/env.h"
#include "core/error.h"
#include "generator/compiler.h"
#include "tuner/measure/gpu_lock.h"
#include "tuner/measure/measure.h"

#ifdef VITUNE_WITH_CUDNN
#include "benchmarks/cudnn_attention.h"
#endif

namespace vitune::bench {
namespace {

constexpr const char* kVitune = "vitune";
#ifdef VITUNE_WITH_CUDNN
constexpr const char* kCudnn = "cudnn";
#endif
constexpr std::uint64_t kSeed = 1;

AttentionTensors tensors_at(const AttentionPointers& at) {
  AttentionTensors tensors;
  tensors.q = at.q;
  tensors.k = at.k;
  tensors.v = at.v;
  tensors.out = at.o;
  tensors.bias = at.bias;
  tensors.mask = at.mask;
  tensors.lse = at.lse;
  return tensors;
}

}  // namespace

std::vector<std::string> peer_names() {
#ifdef VITUNE_WITH_CUDNN
  return {kVitune, kCudnn};
#else
  return {kVitune};
#endif
}

AttentionBench::AttentionBench(int ordinal, int rounds)
    : driver_(CudaDriver::open()),
      device_(driver_->device_info(ordinal)),
      context_(driver_, ordinal),
      stream_(*driver_),
      support_(support_kernels(*driver_, device_, stream_)),
      timer_(std::make_unique<GpuTimer>(context_, stream_, *support_, device_)),
      record_(*driver_, sizeof(LaunchRecord)),
      vitune_(ContextOptions{.device = ordinal, .read_only = true}),
      rounds_(rounds),
      lock_path_(gpu_lock_path(device_)) {}

const ProblemTimes& AttentionBench::times(const ProblemPtr& problem) {
  const std::string text = problem->text();
  const auto found = known_.find(text);
  if (found != known_.end()) return found->second;
  return known_.emplace(text, measure(problem)).first->second;
}

Launch AttentionBench::vitune_launch(const Workload& workload, PeerSamples& samples) {
  const Attention attention = Attention::parse(workload.problem().text());
  samples.exact = vitune_.query(attention).served == Served::kExact;
  const AttentionTensors tensors = tensors_at(attention_pointers(workload.addresses()));
  return [this, attention, tensors] { vitune_.forward(attention, tensors, stream_.get()); };
}

std::vector<AttentionBench::Contestant> AttentionBench::contestants(const Workload& workload,
                                                                    ProblemTimes& times) {
  std::vector<Contestant> all;
  const auto add = [&](const char* name, auto&& make) {
    PeerSamples& samples = times.peers[name];
    try {
      all.push_back(make(samples));
      all.back().name = name;
    } catch (const std::exception& error) {
      samples.refused = error.what();
    }
  };
  add(kVitune, [&](PeerSamples& samples) {
    return Contestant{"", vitune_launch(workload, samples), nullptr};
  });
#ifdef VITUNE_WITH_CUDNN
  add(kCudnn, [&](PeerSamples&) {
    auto cudnn =
        std::make_shared<CudnnAttention>(*driver_, stream_, attention_of(workload.problem()),
                                         attention_pointers(workload.addresses()));
    return Contestant{"", [cudnn] { cudnn->launch(); }, cudnn};
  });
#endif
  return all;
}

LaunchRecord AttentionBench::take_record() {
  stream_.synchronize();
  LaunchRecord record;
  record_.download(std::as_writable_bytes(std::span(&record, 1)));
  return record;
}

std::string AttentionBench::judged(const Launch& launch, Workload& workload,
                                   const Reference& reference, const std::uint64_t* inputs,
                                   PeerSamples& samples) {
  const CuPointer at = record_.address();
  stream_.fill8(at, 0, record_.size());
  workload.poison_outputs();
  launch();
  reference.compare(workload, at + offsetof(LaunchRecord, findings));
  workload.count_output_damage(at + offsetof(LaunchRecord, output_damage));
  workload.digest_inputs(at + offsetof(LaunchRecord, inputs));
  const LaunchRecord record = take_record();
  const OutputError error =
      output_error(record.findings.front(), workload.tensors()[kTensorOut].elements());
  samples.max_error = error.max_error;
  samples.rms_error = error.rms_error;
  return judge(record, workload.tensors(), reference.bounds(), inputs).value_or("");
}

ProblemTimes AttentionBench::measure(const ProblemPtr& problem) {
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
    PeerSamples& samples = times.peers[each.name];
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
    PeerSamples& samples = times.peers[racers[i].name];
    samples.cold_us = std::move(raced.cold_us[i]);
    samples.warm_us = std::move(raced.warm_us[i]);
  }
  return times;
}

}  // namespace vitune::bench
