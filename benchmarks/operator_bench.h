// benchmarks/operator_bench.h -- Whole calls of one problem, of any operator, timed on one GPU.
//
// libvitune, and what a subclass adds to it, run on the same tensors: first each output is judged
// as the tuner judges a candidate, then all are raced by the tuner's own code
// (tuner/measure/measure.h; docs/measuring.md). One thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/cuda_driver.h"
#include "generator/operator.h"
#include "tuner/judge/reference.h"
#include "tuner/judge/support_kernels.h"
#include "tuner/judge/verify.h"
#include "tuner/judge/workload.h"
#include "tuner/measure/gpu_timer.h"

namespace vitune::bench {

// The contestant that every race has: libvitune.
inline constexpr const char* kVitune = "vitune";

// The times of one contestant on one problem; one sample per round, in microseconds.
struct Samples {
  std::string refused;  // why there are no samples; empty if there are
  std::vector<double> cold_us, warm_us;
  double max_error = 0, rms_error = 0;  // of its output against fp64, absolute
  bool exact = true;                    // false: libvitune has no winner of this very problem
};

struct ProblemTimes {
  std::map<std::string, Samples> contestants;
  bool low_confidence = false;  // clocks or neighbours moved while it was measured
};

class OperatorBench {
 public:
  // Throws Error(kNoDevice), Error(kNoCompiler), Exception of libvitune.
  OperatorBench(int ordinal, int rounds);
  virtual ~OperatorBench();

  const DeviceInfo& device() const { return device_; }
  // Measures a problem when it is asked for first. A contestant that fails is refused, and costs no
  // other its times; throws where no tensors can be made.
  const ProblemTimes& times(const ProblemPtr& problem);

 protected:
  struct Contestant {
    std::string name;
    Launch launch;  // owns what it needs
  };
  // Who races on these tensors. One that cannot is noted as refused in `times` and left out.
  virtual std::vector<Contestant> contestants(const Workload& workload, ProblemTimes& times);
  const CudaDriver& driver() const { return *driver_; }
  const CudaStream& stream() const { return stream_; }

 private:
  struct Library;  // a context of libvitune

  ProblemTimes measure(const ProblemPtr& problem);
  Launch vitune_launch(const Workload& workload, Samples& samples);
  // Why the output of a launch is wrong, or nothing; notes its errors.
  std::string judged(const Launch& launch, Workload& workload, const Reference& reference,
                     const std::uint64_t* inputs, Samples& samples);
  LaunchRecord take_record();
  GpuTools tools() const { return {context_, stream_, *support_, device_}; }

  std::shared_ptr<const CudaDriver> driver_;
  DeviceInfo device_;
  CudaContext context_;
  CudaStream stream_;
  std::unique_ptr<SupportKernels> support_;
  std::unique_ptr<GpuTimer> timer_;
  DeviceBuffer record_;
  std::unique_ptr<Library> library_;
  int rounds_;
  std::filesystem::path lock_path_;
  std::map<std::string, ProblemTimes> known_;  // by the problem's text
};

}  // namespace vitune::bench
