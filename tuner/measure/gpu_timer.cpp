// tuner/measure/gpu_timer.cpp -- Event pairs around launches and graph replays.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/measure/gpu_timer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "tuner/measure/statistics.h"

namespace vitune {
namespace {

constexpr std::size_t kLeastFlushBytes = std::size_t{256} << 20;
constexpr double kWarmUpUs = 50000;
constexpr double kLeadUs = 40;     // lets this process queue a launch before its turn comes
constexpr double kReplayUs = 500;  // aimed at per replay
constexpr double kMostCalls = 40;
constexpr int kAnchorSamples = 5;
constexpr int kCallsInFlight = 64;  // the driver blocks when about a thousand launches are queued

std::size_t flush_bytes(const DeviceInfo& device) {
  const auto l2 = static_cast<std::size_t>(std::max<std::int64_t>(device.l2_bytes, 0));
  return std::max(kLeastFlushBytes, 2 * l2) / 16 * 16;
}

}  // namespace

int warm_graph_calls(double call_us) {
  if (!(call_us > 0)) return static_cast<int>(kMostCalls);
  return static_cast<int>(std::clamp(std::round(kReplayUs / call_us), 1.0, kMostCalls));
}

GpuTimer::GpuTimer(const CudaContext& context, const CudaStream& stream,
                   const SupportKernels& support, const DeviceInfo& device)
    : context_(context),
      stream_(stream),
      support_(support),
      flush_(context.driver(), flush_bytes(device)),
      sink_(context.driver(), static_cast<std::size_t>(std::max(device.sm_count, 64)) * 4) {
  stream_.fill8(flush_.address(), 0x5a, flush_.size());
  stream_.fill8(sink_.address(), 0, sink_.size());
  stream_.synchronize();
}

void GpuTimer::warm_up() {
  support_.spin(stream_, kWarmUpUs, sink_.address());
  stream_.synchronize();
}

LaunchTimer::Handle GpuTimer::add(Launch launch) {
  entries_.push_back(Entry{std::move(launch), nullptr, 1});
  return entries_.size() - 1;
}

void GpuTimer::clear() { entries_.clear(); }

void GpuTimer::reserve_events(int pairs) {
  while (static_cast<int>(starts_.size()) < pairs) {
    starts_.emplace_back(context_.driver());
    stops_.emplace_back(context_.driver());
  }
}

std::vector<double> GpuTimer::elapsed(int pairs) const {
  stream_.synchronize();
  std::vector<double> times;
  for (std::size_t i = 0; i < static_cast<std::size_t>(pairs); ++i) {
    times.push_back(stops_[i].microseconds_since(starts_[i]));
  }
  return times;
}

std::vector<double> GpuTimer::cold(Handle handle, int count) {
  const Entry& entry = entries_.at(handle);
  reserve_events(std::min(count, kCallsInFlight));
  std::vector<double> all;
  while (static_cast<int>(all.size()) < count) {
    const int batch = std::min(count - static_cast<int>(all.size()), kCallsInFlight);
    for (std::size_t i = 0; i < static_cast<std::size_t>(batch); ++i) {
      support_.flush(stream_, flush_, sink_.address());
      starts_[i].record(stream_);
      entry.launch();
      stops_[i].record(stream_);
    }
    const std::vector<double> times = elapsed(batch);
    all.insert(all.end(), times.begin(), times.end());
  }
  return all;
}

void GpuTimer::prepare_warm(Handle handle, double call_us) {
  Entry& entry = entries_.at(handle);
  entry.graph_calls = warm_graph_calls(call_us);
  entry.graph = std::make_unique<CudaGraph>(context_.driver(), stream_, [&entry] {
    for (int i = 0; i < entry.graph_calls; ++i) entry.launch();
  });
}

std::vector<double> GpuTimer::warm(Handle handle, int count) {
  const Entry& entry = entries_.at(handle);
  reserve_events(count);
  entry.graph->launch(stream_);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    support_.spin(stream_, kLeadUs, sink_.address());
    starts_[i].record(stream_);
    entry.graph->launch(stream_);
    stops_[i].record(stream_);
  }
  std::vector<double> times = elapsed(count);
  for (double& time : times) time /= entry.graph_calls;
  return times;
}

double GpuTimer::anchor() {
  reserve_events(kAnchorSamples);
  for (std::size_t i = 0; i < kAnchorSamples; ++i) {
    support_.spin(stream_, kLeadUs, sink_.address());
    starts_[i].record(stream_);
    support_.anchor(stream_, sink_.address());
    stops_[i].record(stream_);
  }
  return median(elapsed(kAnchorSamples));
}

}  // namespace vitune
