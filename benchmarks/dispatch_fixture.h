// benchmarks/dispatch_fixture.h -- What the benchmarks of libvitune run on: a driver and a
// database.
//
// The driver is the machine's own if there is a GPU, else the mock that the tests of libvitune use:
// then nothing is computed, and the figures are those of the library alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/cuda_driver.h"
#include "db/store.h"
#include "generator/attention/problem.h"
#include "generator/compiler.h"
#include "vitune/vitune.hpp"

namespace vitune::bench {

// The driver as libvitune will find it.
struct Driver {
  std::shared_ptr<const CudaDriver> cuda;
  DeviceInfo device;
  bool is_mock = false;

  // Throws Error(kNoDevice) if there is neither a GPU nor the mock (a build without tests).
  static Driver open();
};

// A folder of its own, in memory where that is possible; removed at the end.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A database with the winners of 10,000 problems of four classes, with their kernels: compiled ones
// of the first class where there is a GPU, well-formed images elsewhere.
class WinnerDatabase {
 public:
  static constexpr int kWinners = 10'000;

  explicit WinnerDatabase(const Driver& driver);

  std::string path() const { return (folder_.path() / "vitune.db").string(); }
  // Problem number `index`, with a winner. The first class has those with index % 4 == 0; the
  // smallest come first.
  static Attention problem(int index);
  // A problem of the first class without a winner; the kernels that may serve it are stored.
  static Attention missing_problem();
  // The stored kernel of problem `index` of the first class.
  Binary kernel(int index) const;
  // The options of a context on this database alone, which compiles nothing.
  ContextOptions options() const;

 private:
  ScratchFolder folder_;
  const Driver& driver_;
};

// Device memory for the tensors of any of the problems, shared by all of them.
class TensorMemory {
 public:
  explicit TensorMemory(const Driver& driver);
  AttentionTensors tensors(const Attention& attention) const;

 private:
  std::optional<CudaContext> context_;
  std::optional<DeviceBuffer> memory_;
  CuPointer base_ = 0;
};

// Adds to the JSON report how it was made.
void add_report_context(const Driver& driver);

}  // namespace vitune::bench
