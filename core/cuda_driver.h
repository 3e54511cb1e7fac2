// core/cuda_driver.h -- The CUDA driver, opened with dlopen, behind thin RAII types.
//
// Nothing here needs CUDA headers or links a CUDA library: on a machine without a driver
// CudaDriver::open() throws Error(kNoDevice) and everything else still works. The declarations
// follow the CUDA Driver API reference; tests/core/cuda_abi_test.cpp compares them with the
// toolkit's cuda.h where that is installed. One thread at a time per object.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

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
  CudaError(CuResult result, const std::string& what)
      : Error(ErrorCode::kFailure, what), result_(result) {}
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
  // The kernel itself waits for the grids before it (griddepcontrol.wait), so that it may be
  // brought onto the device while the last of them end: programmatic dependent launch, for compute
  // capability 9.0 and later. Only hints that; a driver that cannot launches in the ordinary way.
  bool waits_for_earlier = false;
  // CTAs wait for each other, whichever they are: all of them come onto the device at once, or the
  // launch is refused (cooperative launch).
  bool is_cooperative = false;
};

// The function table of libcuda.so.1; see core/cuda_driver_api.h.
struct DriverApi;

class CudaDriver {
 public:
  // Opens libcuda.so.1 and calls cuInit. Throws Error(kNoDevice) with the reason. The library stays
  // loaded for good, since the driver cannot be unloaded safely.
  static std::shared_ptr<const CudaDriver> open();
  ~CudaDriver();

  int device_count() const;
  // Throws Error(kNoDevice) if there is no device of this number.
  DeviceInfo device_info(int ordinal) const;
  // 13000 for CUDA 13.0.
  int version() const;
  const DriverApi& api() const { return *api_; }
  // Throws CudaError naming `call` unless `result` is success.
  void check(CuResult result, std::string_view call) const;

 private:
  CudaDriver();
  friend class CudaContext;
  friend class PrimaryContext;
  CuDevice device(int ordinal) const;
  std::unique_ptr<DriverApi> api_;
};

// Retains a device's primary context and makes it current on this thread; must outlive what is made
// in it.
class CudaContext {
 public:
  // Throws Error(kNoDevice) if there is no device of this number.
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

// Device memory, uninitialised. Throws CudaError 2 when there is not enough.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(const CudaDriver& driver, std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  CuPointer address() const { return address_; }
  std::size_t size() const { return size_; }
  // Synchronous copies; Error(kFailure) unless `offset` and the span lie inside the buffer. They do
  // not wait for work in a CudaStream: synchronize that first.
  void upload(std::span<const std::byte> bytes, std::size_t offset = 0);
  void download(std::span<std::byte> bytes, std::size_t offset = 0) const;

 private:
  const CudaDriver* driver_ = nullptr;
  CuPointer address_ = 0;
  std::size_t size_ = 0;
};

// A stream that does not synchronise with the default stream.
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
  // Copies `bytes` from device memory to device memory, asynchronously in stream order.
  void copy(CuPointer destination, CuPointer source, std::size_t bytes) const;

 private:
  const CudaDriver& driver_;
  CuStreamTag* stream_ = nullptr;
};

// A point in a stream, with its time.
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

// One kernel of a loaded cubin; keeps the module loaded.
class CudaKernel {
 public:
  // Loads the cubin for this kernel alone. The image is copied by the driver; it must have passed
  // the ELF bounds check, since cuModuleLoadData is given no length.
  CudaKernel(const CudaDriver& driver, std::span<const std::byte> cubin, const std::string& entry);

  // Raises the dynamic shared memory limit, and prefers shared memory over L1 where the kernel
  // keeps more than sums there: L1 holds the loads that are on their way, so one that is cut to its
  // least bounds the bandwidth of a kernel that loads through it.
  void reserve_shared(std::uint32_t bytes) const;
  int registers() const;
  // Bytes of local memory per thread: spills and stack.
  int local_bytes() const;
  const CudaDriver& driver() const { return *driver_; }
  // CTAs that fit on one SM, as the driver counts them; `shared_bytes` is the dynamic part.
  int resident_ctas(int threads, std::uint32_t shared_bytes) const;
  // `params` is the kernel's only parameter, passed by value.
  void launch(const LaunchShape& shape, const void* params, const CudaStream& stream) const;
  // The same on a stream of the caller's, without a check: for calls that must not throw. `second`
  // is the second parameter of kernels that have one.
  CuResult try_launch(const LaunchShape& shape, const void* params, CuStreamTag* stream,
                      const void* second = nullptr) const noexcept;
  // One pointer per parameter of the kernel, each to a value of that parameter's type.
  void launch(const LaunchShape& shape, std::span<const void* const> arguments,
              const CudaStream& stream) const;
  // An array of pointers would pass for the single parameter above.
  void launch(const LaunchShape& shape, const void* const* arguments,
              const CudaStream& stream) const = delete;

 private:
  friend class CudaModule;
  CudaKernel(const CudaDriver& driver, std::shared_ptr<CuModuleTag> module,
             const std::string& entry);
  int attribute(int which) const;
  const CudaDriver* driver_;
  std::shared_ptr<CuModuleTag> module_;
  CuFunctionTag* function_ = nullptr;
};

// A loaded cubin, for taking several kernels from it. The image must have passed the ELF bounds
// check.
class CudaModule {
 public:
  CudaModule(const CudaDriver& driver, std::span<const std::byte> cubin);
  // One without kernels, for plans that only call a library.
  explicit CudaModule(const CudaDriver& driver) : driver_(&driver) {}
  // Throws CudaError if the module has no such kernel.
  CudaKernel kernel(const std::string& entry) const { return {*driver_, module_, entry}; }

 private:
  const CudaDriver* driver_;
  std::shared_ptr<CuModuleTag> module_;
};

// A captured sequence of launches that is replayed as one.
class CudaGraph {
 public:
  // Captures what `body` launches on `stream`; if that throws, the capture is given up.
  template <typename Body>
  CudaGraph(const CudaDriver& driver, const CudaStream& stream, Body&& body) : driver_(driver) {
    begin(stream);
    try {
      body();
    } catch (...) {
      abandon(stream);
      throw;
    }
    end(stream);
  }
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void launch(const CudaStream& stream) const { launch(stream.get()); }
  // The same on a stream of the caller's.
  void launch(CuStreamTag* stream) const;

 private:
  void begin(const CudaStream& stream);
  void end(const CudaStream& stream);
  void abandon(const CudaStream& stream) noexcept;
  void destroy() noexcept;
  const CudaDriver& driver_;
  CuGraphTag* graph_ = nullptr;
  CuGraphExecTag* exec_ = nullptr;
};

}  // namespace vitune
