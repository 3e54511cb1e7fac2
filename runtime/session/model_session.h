// runtime/session/model_session.h -- ModelSession: a model's pass for one batch, ready to run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/cuda_driver.h"
#include "model/memory_plan.h"
#include "runtime/api/problem_call.h"
#include "runtime/session/loaded_model.h"

namespace vitune {

// plan_memory(), or what a test has in its place.
using MemoryPlanner =
    std::function<MemoryPlan(const BoundModel&, const std::vector<std::int64_t>& scratch_bytes)>;

class ModelSession {
 public:
  // Prepares every problem of the pass, loads the weights that it reads, takes one arena for all
  // values, runs once and captures a graph (unless `without_graph`). Throws Error for a step that
  // cannot be served, CudaError for too little memory. The model must outlive the session.
  ModelSession(LoadedModel& model, std::int64_t batch, bool without_graph,
               const MemoryPlanner& planner = plan_memory);
  ~ModelSession();
  // Leaves device memory behind, for a context that has gone; then nothing but the end may follow.
  void abandon() noexcept;
  ModelSession(const ModelSession&) = delete;
  ModelSession& operator=(const ModelSession&) = delete;

  // Runs the pass on the caller's stream and returns at once: copies from `inputs`, computes,
  // copies to `outputs`; device pointers, of which one that is null or the buffer's own costs no
  // copy. One thread and one stream at a time.
  // `images`: 1 to the batch; what the others' rows hold is not copied and does not count.
  vitune_status run(std::int64_t images, std::span<const void* const> inputs,
                    std::span<void* const> outputs, CuStreamTag* stream) noexcept;
  // Runs all images of the batch.
  vitune_status run(std::span<const void* const> inputs, std::span<void* const> outputs,
                    CuStreamTag* stream) noexcept {
    return run(batch_, inputs, outputs, stream);
  }

  // False once the context has other kernels for the pass, or another form of it would be taken.
  bool is_current() const;
  // Each step's module, a tab and its problem, a line each.
  std::string steps_text() const;

  // Where an input, or behind these a result, lies.
  CuPointer address(std::size_t place) const;
  const ModelBuffer& buffer(std::size_t place) const;
  std::size_t inputs() const { return bound_.inputs.size(); }
  std::size_t places() const { return bound_.inputs.size() + bound_.outputs.size(); }
  std::int64_t batch() const { return batch_; }
  bool has_graph() const { return device_->graph != nullptr; }
  LoadedModel& model() const { return model_; }
  std::int64_t arena_bytes() const { return plan_.bytes; }

  // ---- For those who look at a pass step by step (vitune verify, vitune bench)

  const BoundModel& bound() const { return bound_; }
  const MemoryPlan& plan() const { return plan_; }
  const DeviceBuffer& arena() const { return device_->arena; }
  // The tensors of a step, in the order of Operator::tensors(); null where one is not given.
  std::span<void* const> tensors(std::size_t step) const { return steps_.at(step).tensors; }
  std::int64_t scratch_bytes(std::size_t step) const { return steps_.at(step).scratch_bytes; }
  // Launches one step, in any stream. The context must be current. Throws Error.
  void launch_step(std::size_t step, CuStreamTag* stream);

 private:
  struct Step {
    std::unique_ptr<const vitune_problem> problem;
    std::vector<void*> tensors;
    CuPointer scratch = 0;
    std::int64_t scratch_bytes = 0;
  };
  // In the order in which they are made.
  struct OnDevice {
    DeviceBuffer arena;
    std::unique_ptr<CudaStream> stream;
    std::unique_ptr<CudaGraph> graph;
  };
  void build(const CudaDriver& driver, bool without_graph, const MemoryPlanner& planner);
  std::string served(const BoundModel& bound) const;
  std::size_t bytes_of(std::size_t place, std::int64_t images) const;
  std::vector<std::int64_t> prepare();
  CuPointer address_of(const StepTensor& tensor);
  void place_steps(const std::vector<std::int64_t>& scratch_bytes);
  void launch_steps(CuStreamTag* stream);
  void launch(CuStreamTag* stream);

  LoadedModel& model_;
  const std::int64_t batch_;
  const BoundModel bound_;
  std::string served_;
  MemoryPlan plan_;
  std::vector<Step> steps_;
  std::unique_ptr<OnDevice> device_;  // null: abandoned
};

}  // namespace vitune
