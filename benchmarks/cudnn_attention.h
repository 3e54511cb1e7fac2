// benchmarks/cudnn_attention.h -- cuDNN's fused attention on given tensors, as one launch.
//
// Through cuDNN's C++ frontend; only in a build with VITUNE_WITH_CUDNN. One thread; the context
// that the tensors are of must be current.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/cuda_driver.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/problem.h"

namespace vitune::bench {

class CudnnAttention {
 public:
  // Builds cuDNN's plan for the problem. Throws Error(kUnsupported) with cuDNN's reason if it has
  // none: bool masks, a bias of several windows, shapes without an engine.
  CudnnAttention(const CudaDriver& driver, const CudaStream& stream,
                 const AttentionProblem& problem, const AttentionPointers& pointers);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // Launches once on the stream, asynchronously; may be captured. Throws Error(kFailure).
  void launch() const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace vitune::bench
