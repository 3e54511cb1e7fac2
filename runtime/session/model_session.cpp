// runtime/session/model_session.cpp -- Prepares, places, captures and runs a pass's steps.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/model_session.h"

#include <algorithm>
#include <map>
#include <utility>

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

ModelSession::ModelSession(LoadedModel& model, std::int64_t batch, bool without_graph,
                           const MemoryPlanner& planner)
    : model_(model),
      batch_(batch),
      bound_(model.bind(batch)),
      device_(std::make_unique<OnDevice>()) {
  const CurrentContext current(model.context().primary());
  const CudaDriver& driver = model.context().driver();
  driver.check(current.result(), current.call());
  const RelaxedCapture relaxed(driver.api());
  try {
    build(driver, without_graph, planner);
  } catch (...) {
    device_.reset();
    throw;
  }
}

ModelSession::~ModelSession() {
  if (device_ == nullptr) return;
  const CurrentContext current(model_.context().primary());
  const RelaxedCapture relaxed(model_.context().driver().api());
  device_.reset();
}

void ModelSession::abandon() noexcept { static_cast<void>(device_.release()); }

void ModelSession::build(const CudaDriver& driver, bool without_graph,
                         const MemoryPlanner& planner) {
  const std::vector<std::int64_t> scratch_bytes = prepare();
  plan_ = planner(bound_, scratch_bytes);
  device_->arena =
      DeviceBuffer(driver, static_cast<std::size_t>(std::max<std::int64_t>(plan_.bytes, 1)));
  place_steps(scratch_bytes);
  device_->stream = std::make_unique<CudaStream>(driver);
  CudaStream& stream = *device_->stream;
  launch_steps(stream.get());
  stream.synchronize();
  served_ = served(bound_);
  if (without_graph) return;
  device_->graph = std::make_unique<CudaGraph>(driver, stream, [&] { launch_steps(stream.get()); });
}

// The problems of the steps, and which kernels serve them.
std::string ModelSession::served(const BoundModel& bound) const {
  std::map<std::string, std::string> kernels;  // by problems, which blocks of a model have alike
  std::string text;
  for (const ModelStep& step : bound.steps) {
    const auto [at, is_new] = kernels.emplace(step.problem->text(), "");
    if (is_new) {
      vitune_selection selection = VITUNE_SELECTION_INIT;
      require(model_.context().query(step.problem, &selection), step);
      at->second = formatted("{} {}", selection.config, selection.kernel_key);
    }
    text += formatted("{}: {}\n", at->first, at->second);
  }
  return text;
}

bool ModelSession::is_current() const { return served(model_.bind(batch_)) == served_; }

std::string ModelSession::steps_text() const {
  std::string text;
  for (const ModelStep& step : bound_.steps) {
    text += formatted("{}\t{}\n", step.at, step.problem->text());
  }
  return text;
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
  const CuPointer start = place ? device_->arena.address() + static_cast<CuPointer>(*place)
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
      step.scratch = device_->arena.address() + static_cast<CuPointer>(plan_.scratch[i]);
    }
    steps_.push_back(std::move(step));
  }
}

void ModelSession::launch_step(std::size_t step, CuStreamTag* stream) {
  const Step& which = steps_.at(step);
  Call call;
  call.workspace = which.scratch;
  call.workspace_bytes = static_cast<std::uint64_t>(which.scratch_bytes);
  call.stream = stream;
  require(run_problem(model_.context(), which.problem.get(), which.tensors, call),
          bound_.steps[step]);
}

void ModelSession::launch_steps(CuStreamTag* stream) {
  for (std::size_t i = 0; i < steps_.size(); ++i) launch_step(i, stream);
}

void ModelSession::launch(CuStreamTag* stream) {
  if (device_->graph == nullptr || model_.context().is_capturing(stream))
    return launch_steps(stream);
  device_->graph->launch(stream);
}

// The bytes of a tensor; if it grows with the batch, those of its first images.
std::size_t ModelSession::bytes_of(std::size_t place, std::int64_t images) const {
  const std::int64_t all = buffer(place).bytes();
  const bool grows =
      place < inputs() ? model_.input_grows(place) : model_.output_grows(place - inputs());
  return static_cast<std::size_t>(grows && images != batch_ ? all / batch_ * images : all);
}

vitune_status ModelSession::run(std::int64_t images, std::span<const void* const> inputs,
                                std::span<void* const> outputs, CuStreamTag* stream) noexcept {
  if (inputs.size() != bound_.inputs.size() || outputs.size() != bound_.outputs.size()) {
    return failed(VITUNE_INVALID_ARGUMENT,
                  "%zu inputs and %zu results are given: the model has %zu "
                  "and %zu",
                  inputs.size(), outputs.size(), bound_.inputs.size(), bound_.outputs.size());
  }
  if (images < 1 || images > batch_) {
    return failed(VITUNE_INVALID_ARGUMENT,
                  "%lld images are given: a session of %lld takes 1 to that many",
                  static_cast<long long>(images), static_cast<long long>(batch_));
  }
  if (images < batch_ && !model_.why_images_mix().empty()) {
    return failed(
        VITUNE_UNSUPPORTED,
        "%lld images in a session of %lld: results may depend on other images (%s); make a "
        "session of %lld",
        static_cast<long long>(images), static_cast<long long>(batch_),
        model_.why_images_mix().c_str(), static_cast<long long>(images));
  }
  try {
    const CudaDriver& driver = model_.context().driver();
    const CurrentContext current(model_.context().primary());
    driver.check(current.result(), current.call());
    const auto copy = [&](CuPointer to, CuPointer from, std::size_t place) {
      if (to == 0 || from == 0 || to == from) return;
      driver.check(driver.api().memcpy_dtod_async(to, from, bytes_of(place, images), stream),
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
  return device_->arena.address() + static_cast<CuPointer>(plan_.buffers[at].value());
}

}  // namespace vitune
