// runtime/session/model_session.h -- ModelSession: a model's pass for one batch, ready to run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/cuda_driver.h"
#include "model/memory_plan.h"
#include "runtime/api/problem_call.h"
#include "runtime/session/loaded_model.h"

namespace vitune {

class ModelSession {
 public:
  // Prepares every problem of the pass, loads the weights that it reads, takes one arena for all
  // values, runs once and captures a graph (unless `without_graph`). Throws Error for a step that
  // cannot be served, CudaError for too little memory. The model must outlive the session.
  ModelSession(LoadedModel& model, std::int64_t batch, bool without_graph);
  ~ModelSession();
  ModelSession(const ModelSession&) = delete;
  ModelSession& operator=(const ModelSession&) = delete;

  // Runs the pass on the caller's stream and returns at once: copies from `inputs`, computes,
  // copies to `outputs`; device pointers, of which one that is null or the buffer's own costs no
  // copy. One thread and one stream at a time.
  vitune_status run(std::span<const void* const> inputs, std::span<void* const> outputs,
                    CuStreamTag* stream) noexcept;

  // Where an input, or behind these a result, lies.
  CuPointer address(std::size_t place) const;
  const ModelBuffer& buffer(std::size_t place) const;
  std::size_t inputs() const { return bound_.inputs.size(); }
  std::size_t places() const { return bound_.inputs.size() + bound_.outputs.size(); }
  const LoadedModel& model() const { return model_; }
  std::int64_t arena_bytes() const { return plan_.bytes; }

 private:
  struct Step {
    std::unique_ptr<const vitune_problem> problem;
    std::vector<void*> tensors;
    CuPointer scratch = 0;
    std::int64_t scratch_bytes = 0;
  };
  void build(const CudaDriver& driver, bool without_graph);
  void clear();
  std::vector<std::int64_t> prepare();
  CuPointer address_of(const StepTensor& tensor);
  void place_steps(const std::vector<std::int64_t>& scratch_bytes);
  void launch_steps(CuStreamTag* stream);
  void launch(CuStreamTag* stream);

  LoadedModel& model_;
  const BoundModel bound_;
  MemoryPlan plan_;
  DeviceBuffer arena_;
  std::vector<Step> steps_;
  std::unique_ptr<CudaStream> own_stream_;
  std::unique_ptr<CudaGraph> graph_;
};

}  // namespace vitune
