// core/cuda_stream.cpp -- Streams, events and captured graphs.
// SPDX-License-Identifier: Apache-2.0
#include "core/cuda_driver_api.h"

namespace vitune {

CudaStream::CudaStream(const CudaDriver& driver) : driver_(driver) {
  driver_.check(driver_.api().stream_create(&stream_, kCuStreamNonBlocking), "cuStreamCreate");
}

CudaStream::~CudaStream() { driver_.api().stream_destroy(stream_); }

void CudaStream::synchronize() const {
  driver_.check(driver_.api().stream_synchronize(stream_), "cuStreamSynchronize");
}

void CudaStream::fill8(CuPointer address, std::uint8_t value, std::size_t count) const {
  if (count == 0) return;
  driver_.check(driver_.api().memset_d8_async(address, value, count, stream_), "cuMemsetD8Async");
}

void CudaStream::fill32(CuPointer address, std::uint32_t value, std::size_t count) const {
  if (count == 0) return;
  driver_.check(driver_.api().memset_d32_async(address, value, count, stream_), "cuMemsetD32Async");
}

void CudaStream::copy(CuPointer destination, CuPointer source, std::size_t bytes) const {
  if (bytes == 0) return;
  driver_.check(driver_.api().memcpy_dtod_async(destination, source, bytes, stream_),
                "cuMemcpyDtoDAsync");
}

CudaEvent::CudaEvent(const CudaDriver& driver) : driver_(&driver) {
  driver.check(driver.api().event_create(&event_, kCuEventDefault), "cuEventCreate");
}

CudaEvent::~CudaEvent() {
  if (event_ != nullptr) driver_->api().event_destroy(event_);
}

CudaEvent::CudaEvent(CudaEvent&& other) noexcept
    : driver_(other.driver_), event_(std::exchange(other.event_, nullptr)) {}

void CudaEvent::record(const CudaStream& stream) const {
  driver_->check(driver_->api().event_record(event_, stream.get()), "cuEventRecord");
}

void CudaEvent::synchronize() const {
  driver_->check(driver_->api().event_synchronize(event_), "cuEventSynchronize");
}

double CudaEvent::microseconds_since(const CudaEvent& start) const {
  float milliseconds = 0;
  driver_->check(driver_->api().event_elapsed_time(&milliseconds, start.event_, event_),
                 "cuEventElapsedTime");
  return static_cast<double>(milliseconds) * 1000;
}

void CudaGraph::begin(const CudaStream& stream) {
  // Thread-local: what other threads of the process do meanwhile must not spoil the capture.
  driver_.check(driver_.api().stream_begin_capture(stream.get(), kCuStreamCaptureModeThreadLocal),
                "cuStreamBeginCapture");
}

void CudaGraph::end(const CudaStream& stream) {
  driver_.check(driver_.api().stream_end_capture(stream.get(), &graph_), "cuStreamEndCapture");
  const CuResult result = driver_.api().graph_instantiate(&exec_, graph_, 0);
  // This runs in the constructor, so no destructor will clean up after a throw.
  if (result != kCuSuccess) destroy();
  driver_.check(result, "cuGraphInstantiate");
}

void CudaGraph::abandon(const CudaStream& stream) noexcept {
  driver_.api().stream_end_capture(stream.get(), &graph_);
  destroy();
}

void CudaGraph::destroy() noexcept {
  if (exec_ != nullptr) driver_.api().graph_exec_destroy(exec_);
  if (graph_ != nullptr) driver_.api().graph_destroy(graph_);
  exec_ = nullptr;
  graph_ = nullptr;
}

CudaGraph::~CudaGraph() { destroy(); }

void CudaGraph::launch(CuStreamTag* stream) const {
  driver_.check(driver_.api().graph_launch(exec_, stream), "cuGraphLaunch");
}

}  // namespace vitune
