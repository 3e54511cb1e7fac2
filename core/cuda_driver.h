// core/cuda_driver.h -- The CUDA driver, opened with dlopen, behind thin RAII types.
//
// Nothing here needs CUDA headers or links a CUDA library: on a machine without a driver
// CudaDriver::open() throws Error(kNoDevice) and everything else still works. The declarations follow
// the CUDA Driver API reference; tests/core/cuda_abi_test.cpp compares them with the toolkit's cuda.h
// where that is installed. One thread at a time per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device_info.h"
#include "core/error.h"

namespace vitune {

using CuResult = int;
using CuDevice = int;
using CuPointer = unsigned long long;
struct CuContextTag;
struct CuModuleTag;
struct CuFunctionTag;
struct CuStreamTag;
struct CuEventTag;
struct CuGraphTag;
struct CuGraphExecTag;

// A failed driver call. sticky() means that the context, and so the process, is lost for CUDA.
class CudaError : public Error {
 public:
  CudaError(CuResult result, const std::string& what) : Error(ErrorCode::kFailure, what), result_(result) {}
  CuResult result() const { return result_; }
  // Errors whose documentation says the process must be terminated and relaunched.
  bool sticky() const;

 private:
  CuResult result_;
};

// Grid, block and dynamic shared memory of one launch.
struct LaunchShape {
  std::uint32_t grid[3] = {1, 1, 1};
  std::uint32_t block[3] = {1, 1, 1};
  std::uint32_t shared_bytes = 0;
};

// The function table of libcuda.so.1.
struct DriverApi;

class CudaDriver {
 public:
  // Opens libcuda.so.1 and calls cuInit. Throws Error(kNoDevice) with the reason.
  static std::shared_ptr<const CudaDriver> open();
  ~CudaDriver();

  int device_count() const;
  DeviceInfo device_info(int ordinal) const;
  int version() const;
  const DriverApi& api() const { return *api_; }
  // Throws CudaError naming `call` unless `result` is success.
  void check(CuResult result, std::string_view call) const;

 private:
  CudaDriver() = default;
  std::unique_ptr<DriverApi> api_;
  void* library_ = nullptr;
};

// Retains a device's primary context and makes it current on this thread.
class CudaContext {
 public:
  CudaContext(std::shared_ptr<const CudaDriver> driver, int ordinal);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  const CudaDriver& driver() const { return *driver_; }
  std::pair<std::size_t, std::size_t> free_and_total_memory() const;
  void synchronize() const;

 private:
  std::shared_ptr<const CudaDriver> driver_;
  CuDevice device_ = 0;
};

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(const CudaDriver& driver, std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  CuPointer address() const { return address_; }
  std::size_t size() const { return size_; }
  // Synchronous copies; `offset` and the span must lie inside the buffer.
  void upload(std::span<const std::byte> bytes, std::size_t offset = 0);
  void download(std::span<std::byte> bytes, std::size_t offset = 0) const;

 private:
  const CudaDriver* driver_ = nullptr;
  CuPointer address_ = 0;
  std::size_t size_ = 0;
};

class CudaStream {
 public:
  explicit CudaStream(const CudaDriver& driver);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  CuStreamTag* get() const { return stream_; }
  void synchronize() const;
  // Sets `count` bytes / 32-bit words, asynchronously in stream order.
  void fill8(CuPointer address, std::uint8_t value, std::size_t count) const;
  void fill32(CuPointer address, std::uint32_t value, std::size_t count) const;

 private:
  const CudaDriver& driver_;
  CuStreamTag* stream_ = nullptr;
};

class CudaEvent {
 public:
  explicit CudaEvent(const CudaDriver& driver);
  ~CudaEvent();
  CudaEvent(CudaEvent&& other) noexcept;
  CudaEvent& operator=(CudaEvent&&) = delete;

  void record(const CudaStream& stream) const;
  void synchronize() const;
  // Microseconds from `start` to this event; both must have completed.
  double microseconds_since(const CudaEvent& start) const;

 private:
  const CudaDriver* driver_;
  CuEventTag* event_ = nullptr;
};

// A loaded cubin and one kernel of it. The image is copied by the driver; it must have passed the ELF
// bounds check, since cuModuleLoadData is given no length.
class CudaKernel {
 public:
  CudaKernel(const CudaDriver& driver, std::span<const std::byte> cubin, const std::string& entry);
  ~CudaKernel();
  CudaKernel(CudaKernel&& other) noexcept;
  CudaKernel& operator=(CudaKernel&&) = delete;

  // Raises the dynamic shared memory limit and prefers shared memory over L1.
  void reserve_shared(std::uint32_t bytes) const;
  int registers() const;
  int local_bytes() const;
  int resident_ctas(int threads, std::uint32_t shared_bytes) const;
  // `params` is the kernel's only parameter, passed by value.
  void launch(const LaunchShape& shape, const void* params, const CudaStream& stream) const;

 private:
  const CudaDriver* driver_;
  CuModuleTag* module_ = nullptr;
  CuFunctionTag* function_ = nullptr;
};

// A captured sequence of launches that is replayed as one.
class CudaGraph {
 public:
  // Captures what `body` launches on `stream`.
  template <typename Body>
  CudaGraph(const CudaDriver& driver, const CudaStream& stream, Body&& body) : driver_(driver) {
    begin(stream);
    body();
    end(stream);
  }
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void launch(const CudaStream& stream) const;

 private:
  void begin(const CudaStream& stream);
  void end(const CudaStream& stream);
  const CudaDriver& driver_;
  CuGraphTag* graph_ = nullptr;
  CuGraphExecTag* exec_ = nullptr;
};

}  // namespace vitune
