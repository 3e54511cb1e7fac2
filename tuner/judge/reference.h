// tuner/judge/reference.h -- What the right answer is, and how far from it a correct kernel may be.
//
// The judge is an fp64 kernel over the very inputs of a workload. The allowance is not a constant:
// a plain, correct implementation in the problem's own types runs on the same inputs, and a
// candidate may err little more than that one does.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "generator/operator.h"
#include "tuner/judge/support_kernels.h"
#include "tuner/judge/workload.h"

namespace vitune {

// Outputs that one launch is judged by, at most.
inline constexpr std::size_t kMaxOutputs = 6;
using AllFindings = std::array<Findings, kMaxOutputs>;

// The result of one comparison of an output.
struct OutputError {
  double max_error = 0;
  double rms_error = 0;
  double largest_reference = 0;
  double rms_reference = 0;
};

// Figures of `findings` over `elements` elements. Always finite: what overflowed is the largest
// double.
OutputError output_error(const Findings& findings, std::int64_t elements);

struct ErrorBounds {
  double max_error = 0;
  double rms_error = 0;
};

// The allowance for an output of type `type`, or of values rounded to it, with `rows` rows, given
// what the plain implementation makes of the same inputs.
ErrorBounds derive_bounds(const OutputError& plain, ElementType type, std::int64_t rows);

// The tensors of a problem that are judged, by their places; those of each comparison's findings.
std::vector<int> judged_outputs(const std::vector<TensorSpec>& tensors);

// The judge's answer for the inputs a workload holds at construction.
class Reference {
 public:
  // Bytes of device memory that the answer to `problem` takes.
  static std::int64_t bytes(const Problem& problem);

  // Runs the judge and the plain implementation on `workload`'s inputs. Overwrites its outputs and
  // leaves them poisoned. Throws CudaError; Error(kNoDevice) if the plain implementation itself
  // gives NaN or leaves elements out, which means that the device or the support kernels are at
  // fault.
  Reference(const GpuTools& tools, Workload& workload);

  // Bounds of each of judged_outputs().
  const std::vector<ErrorBounds>& bounds() const { return bounds_; }
  // Compares the outputs of `workload` with the answer and adds to the zeroed AllFindings at
  // `findings`; the elements compared are poison afterwards.
  void compare(const Workload& workload, CuPointer findings) const;
  // The answer to a tensor, dense; empty if there is none.
  std::vector<float> download(int tensor) const;
  // True if the answer still is what the judge wrote: a stray write of a candidate may have hit it.
  bool intact() const;

 private:
  void run(Workload& workload, Precision precision);
  void derive_from_plain(const Workload& workload);
  const DeviceBuffer& answer(int tensor) const;
  std::uint64_t digest() const;

  GpuTools tools_;
  std::vector<DeviceBuffer> answers_;  // of each tensor; empty where there is none
  DeviceBuffer scratch_;
  std::vector<ErrorBounds> bounds_;
  std::uint64_t digest_ = 0;
};

}  // namespace vitune
