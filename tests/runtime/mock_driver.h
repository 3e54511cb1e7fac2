// tests/runtime/mock_driver.h -- The state of the mock CUDA driver and what its calls do to it.
//
// Included by mock_libcuda.cpp only, whose functions are the driver's names for it. Thread safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/cuda_driver_api.h"
#include "tests/runtime/mock_image.h"
#include "tests/runtime/mock_libcuda.h"

namespace vitune::test {
inline constexpr int kDevices = 2;
inline constexpr int kInvalidValue = 1, kDeinitialized = 4, kInvalidDevice = 101,
                     kInvalidContext = 201, kNoBinaryForGpu = 209, kInvalidImage = 200,
                     kInvalidHandle = 400, kNotFound = 500, kContextIsDestroyed = 709,
                     kCaptureUnsupported = 900;
inline constexpr int kDefaultSharedLimit = 48 << 10;

// A module and its one function. Kept for the life of the process, so that a launch after the
// unload is an error that can be told and no crash.
struct Module {
  std::uint64_t image = 0;
  int device = 0;
  std::string entry;
  std::atomic<bool> loaded{true};
  std::atomic<int> shared_limit{kDefaultSharedLimit};
  std::atomic<int> registers{128};
};

struct Range {
  CuPointer begin = 0, end = 0;
  int device = 0, memory_type = 0;
};

struct Failure {
  std::string name;
  int wait = 0;  // calls before it starts
  int times = 0;
  CuResult code = 0;
};

struct ContextStack {
  std::array<CuContextTag*, 64> contexts;
  int depth;
};
inline thread_local ContextStack stack;
inline thread_local int thread_capture_mode = 0;

class Mock final : public MockCuda {
 public:
  void reset() override {
    const std::lock_guard lock(mutex_);
    log_.clear();
    launches_.clear();
    failures_.clear();
    armed_ = false;
    any_wait_ = 0;
    count_ = 0;
    requests_ = {};
    recording_ = true;
    delay_ = {};
    hold_ = false;
    held_.notify_all();
    local_bytes_ = 0;
    resident_ctas_ = -1;
    ranges_.clear();
    captures_.clear();
    any_capture_ = false;
    broken_ = 0;
    for (int i = 0; i < kDevices; ++i) devices_[static_cast<std::size_t>(i)] = mock_device(i);
  }
  void set_recording(bool on) override { recording_ = on; }
  std::vector<MockCall> calls() override {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  std::vector<MockLaunch> launches() override {
    const std::lock_guard lock(mutex_);
    return launches_;
  }
  void clear_log() override {
    const std::lock_guard lock(mutex_);
    log_.clear();
    launches_.clear();
  }
  std::uint64_t count() override { return count_; }
  MockRequests requests() override {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  template <typename T>
  void note(T MockRequests::*what, T value) {
    const std::lock_guard lock(mutex_);
    requests_.*what = value;
  }
  void fail(const std::string& name, int nth, CuResult code, int times) override {
    const std::lock_guard lock(mutex_);
    failures_.push_back({name, nth - 1, times, code});
    armed_ = true;
  }
  void fail_any(std::uint64_t nth, CuResult code) override {
    const std::lock_guard lock(mutex_);
    any_wait_ = nth;
    any_code_ = code;
    armed_ = true;
  }
  void clear_failures() override {
    const std::lock_guard lock(mutex_);
    failures_.clear();
    any_wait_ = 0;
    armed_ = false;
  }
  void set_load_delay(std::chrono::milliseconds delay) override {
    const std::lock_guard lock(mutex_);
    delay_ = delay;
  }
  void hold_loads(bool hold) override {
    const std::lock_guard lock(mutex_);
    hold_ = hold;
    held_.notify_all();
  }
  int loads_waiting() override {
    const std::lock_guard lock(mutex_);
    return waiting_;
  }
  void set_local_bytes(int bytes) override { local_bytes_ = bytes; }
  void set_resident_ctas(int ctas) override { resident_ctas_ = ctas; }
  void set_device(int ordinal, const DeviceInfo& info) override {
    const std::lock_guard lock(mutex_);
    devices_.at(static_cast<std::size_t>(ordinal)) = info;
  }
  void add_range(CuPointer address, std::size_t bytes, int device, int memory_type) override {
    const std::lock_guard lock(mutex_);
    ranges_.push_back({address, address + bytes, device, memory_type});
  }
  void remove_range(CuPointer address) {
    const std::lock_guard lock(mutex_);
    std::erase_if(ranges_, [&](const auto& range) { return range.begin == address; });
  }
  void set_capturing(CuStreamTag* stream, bool capturing) override {
    const std::lock_guard lock(mutex_);
    if (capturing) {
      captures_[stream] = 1;
    } else {
      captures_.erase(stream);
    }
    any_capture_ = !captures_.empty();
  }
  int captures() override {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(captures_.size());
  }
  int broken_captures() override { return broken_; }
  MockLive live() override { return {modules_, retained_[0] + retained_[1], others_}; }
  CuContextTag* primary(int ordinal) override {
    return reinterpret_cast<CuContextTag*>(&retained_.at(static_cast<std::size_t>(ordinal)));
  }
  CuContextTag* current() override {
    return stack.depth == 0 ? nullptr : stack.contexts[static_cast<std::size_t>(stack.depth - 1)];
  }
  void set_current(CuContextTag* context) override {
    if (stack.depth == 0) ++stack.depth;
    stack.contexts[static_cast<std::size_t>(stack.depth - 1)] = context;
  }
  int depth() override { return stack.depth; }
  int capture_mode() override { return thread_capture_mode; }

  // Counts and logs a call; the error it has to give, or 0.
  CuResult begin(const char* name) {
    count_.fetch_add(1, std::memory_order_relaxed);
    const bool recording = recording_.load(std::memory_order_relaxed);
    const bool armed = armed_.load(std::memory_order_relaxed);
    if (!recording && !armed) return kCuSuccess;
    const std::lock_guard lock(mutex_);
    if (recording) log_.push_back({name, std::this_thread::get_id()});
    return armed ? failure_of(name) : kCuSuccess;
  }

  // The same for a call that needs a live current context.
  CuResult begin_in_context(const char* name) {
    if (const CuResult failure = begin(name)) return failure;
    const int device = current_device();
    if (device < 0) return kInvalidContext;
    return retained_[static_cast<std::size_t>(device)] > 0 ? kCuSuccess : kContextIsDestroyed;
  }

  // The same for a call that must not be made while any stream is captured, unless this thread has
  // chosen the relaxed mode.
  CuResult begin_unsafe(const char* name) {
    if (const CuResult failure = begin_in_context(name)) return failure;
    if (!any_capture_ || thread_capture_mode == kCuStreamCaptureModeRelaxed) return kCuSuccess;
    const std::lock_guard lock(mutex_);
    for (auto& [stream, status] : captures_) {
      if (status == 1) ++broken_;
      status = 2;
    }
    return kCaptureUnsupported;
  }

  // Number of the current context's device; -1 for none, -2 for one that is not ours.
  int current_device() {
    const CuContextTag* const context = current();
    if (context == nullptr) return -1;
    for (int i = 0; i < kDevices; ++i) {
      if (context == primary(i)) return i;
    }
    return -2;
  }

  DeviceInfo device(int ordinal) {
    const std::lock_guard lock(mutex_);
    return devices_[static_cast<std::size_t>(ordinal)];
  }

  CuResult retain(CuContextTag** context, int ordinal) {
    ++retained_[static_cast<std::size_t>(ordinal)];
    *context = primary(ordinal);
    return kCuSuccess;
  }
  CuResult release(int ordinal) {
    return --retained_[static_cast<std::size_t>(ordinal)] < 0 ? kInvalidContext : kCuSuccess;
  }

  CuResult load(CuModuleTag** module, const std::byte* data) {
    wait_for_load();
    const auto image = mock_image(data);
    if (!image) return kInvalidImage;
    const int ordinal = current_device();
    const DeviceInfo info = device(ordinal);
    if (image->sm != 0 && (image->sm / 10 != info.cc_major || image->sm % 10 > info.cc_minor)) {
      return kNoBinaryForGpu;
    }
    auto made = std::make_unique<Module>();
    made->image = image->id;
    made->device = ordinal;
    made->entry = image->entry;
    *module = reinterpret_cast<CuModuleTag*>(made.get());
    ++modules_;
    const std::lock_guard lock(mutex_);
    all_modules_.push_back(std::move(made));
    return kCuSuccess;
  }
  CuResult unload(CuModuleTag* tag) {
    Module* const module = reinterpret_cast<Module*>(tag);
    if (!module->loaded.exchange(false)) return kInvalidHandle;
    --modules_;
    return kCuSuccess;
  }

  CuResult launch(CuFunctionTag* function, const LaunchShape& shape, CuStreamTag* stream,
                  void** parameters) {
    Module* const module = reinterpret_cast<Module*>(function);
    if (module == nullptr || !module->loaded) return kInvalidHandle;
    if (module->device != current_device()) return kInvalidHandle;
    const std::uint32_t threads = shape.block[0] * shape.block[1] * shape.block[2];
    const bool grid = shape.grid[0] > 0 && shape.grid[0] <= 2147483647u && shape.grid[1] > 0 &&
                      shape.grid[1] <= 65535u && shape.grid[2] > 0 && shape.grid[2] <= 65535u;
    if (!grid || threads == 0 || threads > 1024) return kInvalidValue;
    if (shape.shared_bytes > static_cast<std::uint32_t>(module->shared_limit)) return kInvalidValue;
    if (parameters == nullptr || parameters[0] == nullptr) return kInvalidValue;
    if (!recording_.load(std::memory_order_relaxed)) return kCuSuccess;
    MockLaunch made;
    made.shape = shape;
    std::memcpy(&made.params, parameters[0], sizeof(made.params));
    if (parameters[1] != nullptr) std::memcpy(&made.maps, parameters[1], sizeof(made.maps));
    made.stream = stream;
    made.image = module->image;
    made.device = module->device;
    const std::lock_guard lock(mutex_);
    launches_.push_back(made);
    return kCuSuccess;
  }

  CuResult pointer_attribute(void* data, CuPointerAttribute which, CuPointer address) {
    const std::lock_guard lock(mutex_);
    for (const Range& range : ranges_) {
      if (address < range.begin || address >= range.end) continue;
      *static_cast<int*>(data) = which == kCuPointerMemoryType ? range.memory_type : range.device;
      return kCuSuccess;
    }
    return kInvalidValue;  // what the driver says of memory it does not know
  }

  CuResult capture_status(CuStreamTag* stream, int* status) {
    const std::lock_guard lock(mutex_);
    const auto found = captures_.find(stream);
    *status = found == captures_.end() ? 0 : found->second;
    return kCuSuccess;
  }

  int local_bytes() const { return local_bytes_; }
  int resident_ctas() const { return resident_ctas_; }

  template <typename Tag>
  CuResult make(Tag** object) {
    ++others_;
    *object = static_cast<Tag*>(std::malloc(1));
    return kCuSuccess;
  }
  template <typename Tag>
  CuResult destroy(Tag* object) {
    --others_;
    std::free(object);
    return kCuSuccess;
  }

 private:
  CuResult failure_of(const std::string& name) {
    if (any_wait_ > 0 && --any_wait_ == 0) return any_code_;
    for (Failure& failure : failures_) {
      if (failure.name != name || failure.times == 0) continue;
      if (failure.wait-- > 0) continue;
      --failure.times;
      return failure.code;
    }
    return kCuSuccess;
  }
  void wait_for_load() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    held_.wait(lock, [this] { return !hold_; });
    --waiting_;
    const auto delay = delay_;
    lock.unlock();
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
  }

  std::mutex mutex_;
  std::condition_variable held_;
  std::vector<MockCall> log_;
  std::vector<MockLaunch> launches_;
  MockRequests requests_;
  std::vector<Failure> failures_;
  std::uint64_t any_wait_ = 0;
  CuResult any_code_ = 0;
  std::chrono::milliseconds delay_{};
  bool hold_ = false;
  int waiting_ = 0;
  std::vector<Range> ranges_;
  std::map<CuStreamTag*, int> captures_;
  std::array<DeviceInfo, kDevices> devices_{mock_device(0), mock_device(1)};
  std::vector<std::unique_ptr<Module>> all_modules_;
  std::atomic<bool> recording_{true}, armed_{false}, any_capture_{false};
  std::atomic<std::uint64_t> count_{0};
  std::atomic<int> broken_{0}, modules_{0}, others_{0}, local_bytes_{0}, resident_ctas_{-1};
  std::array<std::atomic<int>, kDevices> retained_{};
};

}  // namespace vitune::test
