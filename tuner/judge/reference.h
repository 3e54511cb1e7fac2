// tuner/judge/reference.h -- What the right answer is, and how far from it a correct kernel may be.
//
// The judge is an fp64 kernel over the very inputs of a workload. The allowance is not a constant:
// a plain, correct 16-bit implementation runs on the same inputs, and a candidate may err little
// more than that one does.
#pragma once

#include <cstdint>
#include <vector>

#include "db/records.h"
#include "generator/attention/problem.h"
#include "tuner/judge/support_kernels.h"
#include "tuner/judge/workload.h"

namespace vitune {

// What one comparison amounts to.
struct OutputError {
  double max_error = 0;
  double rms_error = 0;
  double largest_reference = 0;
  double rms_reference = 0;
  double lse_error = 0;
  double largest_lse = 0;
};

// Figures of `findings` over `elements` elements. Always finite: what overflowed is the largest
// double.
OutputError output_error(const Findings& findings, std::int64_t elements);

struct ErrorBounds {
  double max_error = 0;
  double rms_error = 0;
  double lse_error = 0;
};

// The allowance for a candidate on a problem with 16-bit type `dtype` and `rows` output rows (batch
// * heads * queries), given what the plain implementation makes of the same inputs.
ErrorBounds derive_bounds(const OutputError& plain, ElementType dtype, std::int64_t rows);

// The judge's answer for the inputs a workload holds at construction.
class Reference {
 public:
  // Bytes of device memory that the answer to `problem` takes.
  static std::int64_t bytes(const AttentionProblem& problem);

  // Runs the judge and the plain implementation on `workload`'s inputs. Overwrites its outputs and
  // leaves them poisoned. Throws CudaError; Error(kNoDevice) if the plain implementation itself
  // gives NaN or leaves elements out, which means that the device or the support kernels are at
  // fault.
  Reference(const GpuTools& tools, Workload& workload);

  const ErrorBounds& bounds() const { return bounds_; }
  // Compares the outputs of `workload` with the answer and adds to the zeroed Findings at
  // `findings`; the elements compared are poison afterwards.
  void compare(const Workload& workload, CuPointer findings) const;
  // The answer: [batch, heads, queries, d] and [batch, heads, queries], dense.
  struct Answer {
    std::vector<float> out, lse;
  };
  Answer download() const;
  // Whether the answer still is what the judge wrote: a stray write of a candidate may have hit it.
  bool intact() const;

 private:
  ReferenceParams params(const Workload& workload) const;
  std::uint64_t digest() const;

  GpuTools tools_;
  DeviceBuffer out_, lse_, scratch_;
  ErrorBounds bounds_;
  std::uint64_t digest_ = 0;
};

}  // namespace vitune
