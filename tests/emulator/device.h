// tests/emulator/device.h -- The emulated device: memory, modules, launches, virtual time.
//
// A launch runs at once, whatever its stream: a valid order for programs that synchronise
// correctly. Time follows the work that was done, and the kernels that only pass time are not run
// at all. A repeated launch of an attention kernel, whose outputs depend on nothing it writes, is
// run only when somebody looks at memory. One mutex; guarded() takes it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/cuda_driver_api.h"
#include "tests/emulator/simt.h"

namespace vitune_emulator {

using vitune::CuPointer;
using vitune::CuResult;

constexpr CuResult kSuccess = vitune::kCuSuccess;
constexpr CuResult kInvalidValue = 1, kOutOfMemory = 2, kInvalidImage = 200, kNotFound = 500,
                   kIllegalAddress = 700, kMisaligned = 716, kLaunchFailed = 719,
                   kCooperativeTooLarge = 720, kCaptureInvalid = 901;
constexpr std::size_t kTotalMemory = std::size_t{4} << 30;
constexpr int kClockKhz = 1000000, kSmCount = 4;

struct LoadedModule {
  void* library = nullptr;
  const Module* code = nullptr;
  std::map<std::string, std::unique_ptr<struct LoadedKernel>> kernels;
};

struct LoadedKernel {
  LoadedModule* module = nullptr;
  const Kernel* code = nullptr;
  std::string name;
  unsigned shared_limit = 48 << 10;
};

struct Launch {
  LoadedKernel* kernel = nullptr;  // null: `host`, which takes so many microseconds, is run instead
  std::function<void()> host = {};
  double host_us = 0;
  Grid grid;
  std::vector<std::vector<char>> parameters;
};

struct Graph {
  std::vector<Launch> launches;
};

struct Stream {
  std::optional<Graph> capture;
};

struct Event {
  double at_us = 0;
};

struct Device {
  std::recursive_mutex mutex;
  std::map<CuPointer, std::size_t> allocations;
  std::size_t used = 0;
  double now_us = 0;
  CuResult fault = kSuccess;  // sticky
  std::string fault_text;
  unsigned turn = 0;
  std::map<std::string, unsigned long long> known_work;  // of launches that were run before
  std::vector<Launch> postponed;
  unsigned long long noise = 0x243f6a8885a308d3ull;
};

Device& device();

// True if the bytes lie in one allocation.
bool inside(const void* at, std::size_t bytes);

// Loads a module compiled by nvrtc.cpp.
CuResult load_module(LoadedModule& module, const void* image);

// Runs or postpones a launch and lets its time pass. A fault is kept for a later call, as launches
// are asynchronous.
void execute(Launch& launch);

// Runs what was postponed; before anything that reads, writes or frees memory.
void run_postponed();

// Everything but queries of errors goes through here.
template <class Work>
CuResult guarded(Work&& work) {
  const std::lock_guard lock(device().mutex);
  if (device().fault != kSuccess) return device().fault;
  return work();
}

// The same for what reads or writes memory.
template <class Work>
CuResult guarded_memory(Work&& work) {
  return guarded([&] {
    run_postponed();
    return device().fault != kSuccess ? device().fault : work();
  });
}

}  // namespace vitune_emulator
