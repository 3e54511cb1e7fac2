// cli/passes/pass_check.h -- Whether each step of a session is right, in the session's own arena.
//
// A step is run on the inputs that the steps before it have really left, and its results are held
// against the operator's fp64 answer to these, with the allowance of the tuner's judge. Memory that
// holds no value is poison before it; behind it, what is no result and no scratch memory of it must
// be as it was. Liveness is derived from the steps here, not taken from the memory plan.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "db/records.h"
#include "runtime/session/model_session.h"
#include "tuner/judge/reference.h"

namespace vitune {

struct StepVerdict {
  std::size_t step = 0;
  ErrorFigures error;  // of the output where it is the largest part of its bound
  std::string why;     // a predicate ("erred by ..."); empty: the step is right

  // The larger of both errors as a part of its bound; 1 is all that is allowed.
  double part_of_bound() const;
};

struct PassVerdict {
  std::vector<StepVerdict> steps;  // in their order, up to one whose results are not finite
  // A sentence about the pass as one graph or about its weights; empty: nothing is wrong with them.
  std::string whole;

  bool is_right() const;
};

class PassCheck {
 public:
  // Launches a step on a stream.
  using StepLaunch = std::function<void(std::size_t step, CuStreamTag* stream)>;

  // `tools` has the judges of all operators of the session; `launch` stands in for the session's
  // own in tests. All must outlive this object, which overwrites the session's arena.
  PassCheck(ModelSession& session, const GpuTools& tools, StepLaunch launch = {});

  // Draws inputs by `seed`, runs and judges the steps one by one, then runs the pass whole, which
  // must give the same bits. Less is judged where `stop` is set. `tell` is called before each step.
  // Throws CudaError, Error.
  PassVerdict check(std::uint64_t seed, const std::atomic<bool>& stop,
                    const std::function<void(std::size_t step)>& tell = {});

 private:
  struct Life {
    std::int64_t written = 0;    // the first step that does; -1: before all
    std::int64_t last_read = 0;  // the last step that does; the number of steps: behind all
    std::int64_t writer = -1;    // the last step that does
  };
  std::vector<Life> lives() const;
  void draw_inputs(std::uint64_t seed);
  // [begin, end) of a value's bytes in the arena.
  struct Range {
    std::size_t begin = 0, end = 0;
  };
  Range range_of(std::size_t buffer) const;
  bool is_live(std::size_t buffer, std::int64_t before_step) const;
  void poison_dead(std::size_t step);
  StepVerdict judge_step(std::size_t step);
  void copy_inputs(std::size_t step, const Workload& workload) const;
  void copy_outputs(std::size_t step, const Workload& workload) const;
  std::string results_wrong(Workload& workload, const Reference& reference, ErrorFigures& error);
  std::string changed_elsewhere(std::size_t step) const;
  std::vector<bool> results_of(std::size_t step) const;
  std::string owner_text(std::size_t buffer) const;
  std::vector<std::vector<std::byte>> results() const;
  std::vector<std::string> weight_digests() const;
  std::string graph_differs();
  void download_arena(std::vector<std::byte>& bytes) const;
  void upload_arena(const std::vector<std::byte>& bytes) const;

  ModelSession& session_;
  const GpuTools tools_;
  const StepLaunch launch_;
  const std::vector<Life> lives_;
  DeviceBuffer record_;
  std::vector<std::byte> before_, after_;  // the arena's bytes around a step
};

}  // namespace vitune
