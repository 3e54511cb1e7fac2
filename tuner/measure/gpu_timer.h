// tuner/measure/gpu_timer.h -- Times launches on a GPU with events: cold on an emptied L2, warm by
// graph replay.
//
// Every figure is the time between two events on the stream, so it contains what an event pair
// around an empty kernel reads (about 3 us cold on an H200). Before each pair the device is given
// work to do that lets this process run ahead of it: else the time of the launch call itself would
// be measured.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "core/cuda_driver.h"
#include "tuner/judge/support_kernels.h"
#include "tuner/measure/measure.h"

namespace vitune {

class GpuTimer : public LaunchTimer {
 public:
  // Allocates the buffer that flushes the L2: twice its size, at least 256 MiB. Throws CudaError.
  GpuTimer(const CudaContext& context, const CudaStream& stream, const SupportKernels& support,
           const DeviceInfo& device);

  // Keeps the device busy for about 50 ms so that its clocks rise.
  void warm_up();

  Handle add(Launch launch) override;
  void clear() override;
  std::vector<double> cold(Handle handle, int count) override;
  void prepare_warm(Handle handle, double call_us) override;
  std::vector<double> warm(Handle handle, int count) override;
  double anchor() override;

 private:
  struct Entry {
    Launch launch;
    std::unique_ptr<CudaGraph> graph;
    int graph_calls = 1;
  };
  // Makes sure of `pairs` event pairs.
  void reserve_events(int pairs);
  // Waits for the device, then gives the first `pairs` elapsed times in microseconds.
  std::vector<double> elapsed(int pairs) const;

  const CudaContext& context_;
  const CudaStream& stream_;
  const SupportKernels& support_;
  DeviceBuffer flush_;
  DeviceBuffer sink_;
  std::vector<CudaEvent> starts_, stops_;
  std::vector<Entry> entries_;
};

// How many calls of about `call_us` a replayed graph holds: enough for about 0.5 ms, 1 to 40.
int warm_graph_calls(double call_us);

}  // namespace vitune
