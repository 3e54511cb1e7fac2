// tuner/judge/workload.h -- The tensors of one problem on the device, laid out as the caller's are.
//
// Each tensor lies between two guard zones. Everything that is no element (guards, holes of strided
// views) is poison, all bytes 0xff: a NaN in every floating type, so that a kernel that uses it
// shows. Tensors that are views of one packed allocation share one here too. One thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/cuda_driver.h"
#include "generator/operator.h"
#include "generator/prepared_plan.h"
#include "tuner/judge/support_kernels.h"

namespace vitune {

// Where a tensor starts: an allocation and a byte offset in it.
struct Placement {
  std::size_t allocation = 0;
  std::int64_t offset = 0;
  bool operator==(const Placement&) const = default;
};

inline constexpr std::int64_t kGuardBytes = 4096;

struct WorkloadPlan {
  std::vector<std::int64_t> allocations;          // bytes, guards included; multiples of 256
  std::vector<std::optional<Placement>> tensors;  // of each; nothing if it is not given

  std::int64_t bytes() const;
};

// Which tensors share an allocation and where each starts. Pointers have exactly the alignment that
// the problem promises. Throws Error(kUsage) if sizes overflow 64 bits.
WorkloadPlan plan_workload(const std::vector<TensorSpec>& tensors);

// Tools that a worker keeps for all of its work.
struct GpuTools {
  const CudaContext& context;
  const CudaStream& stream;
  const SupportKernels& support;
  const DeviceInfo& device;
  Libraries* libraries = nullptr;  // for plans that call one
};

// Throws CudaError(out of memory) unless `bytes` more fit with some room to spare.
void require_memory(const CudaContext& context, std::int64_t bytes);

class Workload {
 public:
  // Throws CudaError, out of memory included.
  Workload(const GpuTools& tools, const ProblemPtr& problem);

  const Problem& problem() const { return *problem_; }
  const ProblemPtr& shared_problem() const { return problem_; }
  std::int64_t bytes() const { return plan_.bytes(); }
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  // Address of each tensor; 0 for those that are not given.
  std::vector<std::uintptr_t> addresses() const;
  // Fills the inputs unless they hold this draw already.
  void fill_inputs(const std::string& draw);
  // True if all inputs are multiples of a unit, so that sums of products are exact in any order.
  bool holds_whole_numbers() const { return holds_whole_numbers_; }
  // The next fill_inputs() fills again.
  void forget_inputs() { filled_.clear(); }
  void poison_outputs();
  // Adds a digest of each input allocation, guards included, to the words from `sums` on, one word
  // per input allocation. Returns their number, at most kMaxInputs.
  std::size_t digest_inputs(CuPointer sums) const;
  static constexpr std::size_t kMaxInputs = 12;
  // Adds a digest of the outputs to the word at `sum`.
  void digest_outputs(CuPointer sum) const;
  // The bytes from a tensor's first element to the end of its allocation, once the stream is idle.
  std::vector<std::byte> download(int tensor) const;
  // Adds the number of 64-bit words of the outputs' allocations that are not poison.
  void count_output_damage(CuPointer count) const;
  // The plan of a kernel's launch on these tensors, with scratch memory that holds poison when this
  // returns. Throws CudaError.
  BoundPlan bind(PreparedPlan plan);

 private:
  CuPointer address(int tensor) const;
  bool is_output(std::size_t allocation) const;
  void fill(const Fill& part);
  void write(const Fill& part);

  GpuTools tools_;
  ProblemPtr problem_;
  std::vector<TensorSpec> tensors_;
  WorkloadPlan plan_;
  std::vector<DeviceBuffer> buffers_;
  std::vector<DeviceBuffer> scratch_;  // the last is the largest; plans may hold the others
  std::string filled_;                 // the draw that the inputs hold; empty: none
  bool holds_whole_numbers_ = false;
};

}  // namespace vitune
