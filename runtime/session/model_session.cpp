// runtime/session/model_session.cpp -- Prepares, places, captures and runs a pass's steps.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/model_session.h"

#include <algorithm>

#include "core/cuda_driver_api.h"
#include "core/error.h"
#include "core/format.h"
#include "core/primary_context.h"
#include "runtime/api/failed.h"
#include "runtime/api/last_error.h"

namespace vitune {
namespace {

// Throws what a function of the C interface has left for vitune_last_error().
void require(vitune_status status, const ModelStep& step) {
  if (status == VITUNE_OK) return;
  throw Error(status == VITUNE_UNSUPPORTED ? ErrorCode::kUnsupported : ErrorCode::kFailure,
              formatted("{}'{}': {}", step.at.empty() ? "" : step.at + ": ", step.problem->text(),
                        last_error()));
}

}  // namespace

ModelSession::ModelSession(LoadedModel& model, std::int64_t batch, bool without_graph)
    : model_(model), bound_(model.bind(batch)) {
  const CurrentContext current(model.context().primary());
  const CudaDriver& driver = model.context().driver();
  driver.check(current.result(), current.call());
  const RelaxedCapture relaxed(driver.api());
  try {
    build(driver, without_graph);
  } catch (...) {
    clear();
    throw;
  }
}

ModelSession::~ModelSession() {
  const CurrentContext current(model_.context().primary());
  const RelaxedCapture relaxed(model_.context().driver().api());
  clear();
}

void ModelSession::build(const CudaDriver& driver, bool without_graph) {
  const std::vector<std::int64_t> scratch_bytes = prepare();
  plan_ = plan_memory(bound_, scratch_bytes);
  arena_ = DeviceBuffer(driver, static_cast<std::size_t>(std::max<std::int64_t>(plan_.bytes, 1)));
  place_steps(scratch_bytes);
  own_stream_ = std::make_unique<CudaStream>(driver);
  launch_steps(own_stream_->get());
  own_stream_->synchronize();
  if (without_graph) return;
  graph_ =
      std::make_unique<CudaGraph>(driver, *own_stream_, [&] { launch_steps(own_stream_->get()); });
}

// The context must be current.
void ModelSession::clear() {
  graph_.reset();
  own_stream_.reset();
  arena_ = DeviceBuffer();
}

std::vector<std::int64_t> ModelSession::prepare() {
  std::vector<std::int64_t> scratch_bytes;
  for (const ModelStep& step : bound_.steps) {
    std::size_t bytes = 0;
    require(model_.context().workspace(step.problem, bytes), step);
    scratch_bytes.push_back(static_cast<std::int64_t>(bytes));
  }
  return scratch_bytes;
}

CuPointer ModelSession::address_of(const StepTensor& tensor) {
  const auto& place = plan_.buffers[tensor.buffer];
  const CuPointer start = place ? arena_.address() + static_cast<CuPointer>(*place)
                                : model_.weights_of(bound_.buffers[tensor.buffer]);
  return start + static_cast<CuPointer>(tensor.offset);
}

void ModelSession::place_steps(const std::vector<std::int64_t>& scratch_bytes) {
  for (std::size_t i = 0; i < bound_.steps.size(); ++i) {
    const ModelStep& bound = bound_.steps[i];
    Step step;
    step.problem = std::make_unique<const vitune_problem>(bound.problem);
    for (const auto& tensor : bound.tensors) {
      step.tensors.push_back(tensor ? reinterpret_cast<void*>(address_of(*tensor)) : nullptr);
    }
    step.scratch_bytes = scratch_bytes[i];
    if (step.scratch_bytes > 0) {
      step.scratch = arena_.address() + static_cast<CuPointer>(plan_.scratch[i]);
    }
    steps_.push_back(std::move(step));
  }
}

void ModelSession::launch_steps(CuStreamTag* stream) {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    Call call;
    call.workspace = step.scratch;
    call.workspace_bytes = static_cast<std::uint64_t>(step.scratch_bytes);
    call.stream = stream;
    require(run_problem(model_.context(), step.problem.get(), step.tensors, call), bound_.steps[i]);
  }
}

void ModelSession::launch(CuStreamTag* stream) {
  if (graph_ == nullptr || model_.context().is_capturing(stream)) return launch_steps(stream);
  graph_->launch(stream);
}

vitune_status ModelSession::run(std::span<const void* const> inputs, std::span<void* const> outputs,
                                CuStreamTag* stream) noexcept {
  if (inputs.size() != bound_.inputs.size() || outputs.size() != bound_.outputs.size()) {
    return failed(VITUNE_INVALID_ARGUMENT,
                  "%zu inputs and %zu results are given: the model has %zu "
                  "and %zu",
                  inputs.size(), outputs.size(), bound_.inputs.size(), bound_.outputs.size());
  }
  try {
    const CudaDriver& driver = model_.context().driver();
    const CurrentContext current(model_.context().primary());
    driver.check(current.result(), current.call());
    const auto copy = [&](CuPointer to, CuPointer from, std::size_t place) {
      if (to == 0 || from == 0 || to == from) return;
      driver.check(driver.api().memcpy_dtod_async(
                       to, from, static_cast<std::size_t>(buffer(place).bytes()), stream),
                   "cuMemcpyDtoDAsync");
    };
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      copy(address(i), reinterpret_cast<CuPointer>(inputs[i]), i);
    }
    launch(stream);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::size_t place = inputs.size() + i;
      copy(reinterpret_cast<CuPointer>(outputs[i]), address(place), place);
    }
    return VITUNE_OK;
  } catch (...) {
    return fail_with_current_exception();
  }
}

const ModelBuffer& ModelSession::buffer(std::size_t place) const {
  const std::size_t inputs = bound_.inputs.size();
  return bound_.buffers[place < inputs ? bound_.inputs[place] : bound_.outputs[place - inputs]];
}

CuPointer ModelSession::address(std::size_t place) const {
  const std::size_t inputs = bound_.inputs.size();
  const std::size_t at = place < inputs ? bound_.inputs[place] : bound_.outputs[place - inputs];
  return arena_.address() + static_cast<CuPointer>(plan_.buffers[at].value());
}

}  // namespace vitune
