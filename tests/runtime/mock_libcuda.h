// tests/runtime/mock_libcuda.h -- What a test sets and reads of the mock CUDA driver.
//
// The driver is tests/runtime/mock_libcuda.cpp, a library of its own with the soname libcuda.so.1;
// open_mock_cuda() loads it before anything asks for a driver. Thread safe. Two devices with the
// facts of an H200 SXM, numbers 0 and 1. Device addresses are numbers that nothing reads through.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "core/cuda_driver.h"
#include "templates/attention/params.cuh"
#include "tests/devices.h"

namespace vitune::test {

// One driver call, in the order in which they began.
struct MockCall {
  std::string name;  // "cuLaunchKernel"
  std::thread::id thread;
};

// One launch that the driver took.
struct MockLaunch {
  LaunchShape shape;
  AttentionParams params{};
  AttentionTensorMaps maps{};  // of a second parameter, if one was passed
  CuStreamTag* stream = nullptr;
  std::uint64_t image = 0;  // mock_image_id() of the module
  int device = 0;           // of the module's context
  int local_bytes = 0;
};

// The requests of the last calls to the driver.
struct MockRequests {
  unsigned stream_flags = 0;  // of the last stream made
  int capture_mode = -1;      // of the last capture begun
  int carveout = -1;          // the last share of shared memory that a kernel preferred
};

// Objects made and not destroyed.
struct MockLive {
  int modules = 0;
  int contexts = 0;  // retains without a release
  int others = 0;    // streams, events, graphs, memory
  int total() const { return modules + contexts + others; }
};

class MockCuda {
 public:
  // Forgets the log, failures, delays, ranges, captures and launches. Live objects stay.
  virtual void reset() = 0;

  // --- the log
  // Off: calls are only counted and nothing is locked on the launch path.
  virtual void set_recording(bool on) = 0;
  virtual std::vector<MockCall> calls() = 0;
  virtual std::vector<MockLaunch> launches() = 0;
  virtual void clear_log() = 0;
  // Calls since reset(), recorded or not.
  virtual std::uint64_t count() = 0;
  // Since reset().
  virtual MockRequests requests() = 0;

  // --- failures
  // The nth (1 = next) call of `name` from now on gives `code`; with `times`, that many from there.
  virtual void fail(const std::string& name, int nth, CuResult code, int times = 1) = 0;
  // The nth call of any name from now on gives `code`.
  virtual void fail_any(std::uint64_t nth, CuResult code) = 0;
  virtual void clear_failures() = 0;

  // --- behaviour
  virtual void set_load_delay(std::chrono::milliseconds delay) = 0;
  // Holds every cuModuleLoadData until it is let go; loads_waiting() says how many are held.
  virtual void hold_loads(bool hold) = 0;
  virtual int loads_waiting() = 0;
  // The driver's answer for each kernel; a negative number means "as a real one would".
  virtual void set_local_bytes(int bytes) = 0;
  virtual void set_resident_ctas(int ctas) = 0;
  virtual void set_device(int ordinal, const DeviceInfo& info) = 0;
  // A range of device memory; `memory_type` is 1 for pinned host memory, 2 for device memory.
  virtual void add_range(CuPointer address, std::size_t bytes, int device, int memory_type) = 0;
  // Starts or ends a capture as cuStreamBeginCapture would. A stream is any number but 0.
  virtual void set_capturing(CuStreamTag* stream, bool capturing) = 0;
  // Streams that are being captured.
  virtual int captures() = 0;
  // Captures that a forbidden call has broken.
  virtual int broken_captures() = 0;

  // --- state
  virtual MockLive live() = 0;
  // The primary context of a device, as cuCtxGetCurrent would give it.
  virtual CuContextTag* primary(int ordinal) = 0;
  // This thread's current context, without a trace in the log.
  virtual CuContextTag* current() = 0;
  virtual void set_current(CuContextTag* context) = 0;
  // How deep this thread's stack of contexts is.
  virtual int depth() = 0;
  // This thread's mode of captures: 0 (global) unless it has been exchanged.
  virtual int capture_mode() = 0;

 protected:
  ~MockCuda() = default;
};

inline DeviceInfo mock_device(int ordinal = 0) {
  return testing_support::h200_device("NVIDIA H200 (mock " + std::to_string(ordinal) + ")");
}

// FNV-1a of the image's bytes: which kernel a launch ran.
inline std::uint64_t mock_image_id(const std::byte* image, std::size_t size) {
  std::uint64_t hash = 14695981039346656037u;
  for (std::size_t i = 0; i < size; ++i) {
    hash = (hash ^ std::to_integer<std::uint64_t>(image[i])) * 1099511628211u;
  }
  return hash;
}

// Loads the mock as libcuda.so.1 and resets it; nothing if the process has a real driver already.
inline MockCuda* open_mock_cuda(const char* path) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  auto* get = reinterpret_cast<MockCuda* (*)()>(dlsym(library, "vitune_mock_cuda"));
  if (get == nullptr) return nullptr;
  MockCuda* mock = get();
  mock->reset();
  return mock;
}

}  // namespace vitune::test
