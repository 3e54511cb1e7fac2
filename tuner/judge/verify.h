// tuner/judge/verify.h -- Whether a kernel is right: judged before it is timed, on inputs meant to
// break it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/cuda_driver.h"
#include "db/records.h"
#include "generator/operator.h"
#include "generator/prepared_plan.h"
#include "tuner/judge/reference.h"
#include "tuner/judge/support_kernels.h"
#include "tuner/judge/workload.h"

namespace vitune {

// The traces of one launch, as the device reports them. All zero before the launch.
struct LaunchRecord {
  AllFindings findings;                        // of each of judged_outputs()
  std::uint64_t inputs[Workload::kMaxInputs];  // digests of the input allocations afterwards
  std::uint64_t output_damage;                 // words written that are no output element
  std::uint64_t outputs[4];                    // digests of a launch's outputs and of its repeats'
};

// Why a launch on these tensors was wrong, in one sentence without its subject, or nothing.
std::optional<std::string> judge(const LaunchRecord& record, const std::vector<TensorSpec>& tensors,
                                 const std::vector<ErrorBounds>& bounds,
                                 const std::uint64_t* expected_inputs);

// The largest error and the rms error, each of the output where it is the largest part of its
// bound.
ErrorFigures worst_figures(const LaunchRecord& record, const std::vector<TensorSpec>& tensors,
                           const std::vector<ErrorBounds>& bounds);

struct Verdict {
  TrialStatus status = TrialStatus::kOk;  // or kWrong
  std::string reason;
  // The errors of worst_figures(), on the full problem with normal inputs; where wrong, on what
  // failed.
  ErrorFigures error;
};

// Judges kernels on one problem. Workloads and right answers are made once and kept.
class Verifier {
 public:
  // Called with true before a right answer is made, when no candidate is running, and with false
  // after it: it may take far longer than a candidate.
  using AnswerNotice = std::function<void(bool begins)>;
  Verifier(const GpuTools& tools, ProblemPtr problem, AnswerNotice notice = {});

  // Launches what the operator's cases() ask for, the smallest problem first, and the last one
  // again. A CudaError means that the kernel faulted or could not be launched.
  Verdict verify(const CudaModule& kernels, const Config& config);

  // A single launch on the full problem with inputs of this draw, by default the first that the
  // problem's cases have: for tools that make each launch slow.
  Verdict verify_once(const CudaModule& kernels, const Config& config, std::string draw = {});

  const Problem& problem() const { return *problem_; }
  // The full problem's tensors, holding normal inputs: what timing runs on.
  Workload& timing_workload();

 private:
  // One problem's tensors with the answer to each draw.
  struct Case {
    Case(const GpuTools& tools, const ProblemPtr& problem) : workload(tools, problem) {}
    struct Answer {
      std::unique_ptr<Reference> reference;
      std::uint64_t inputs[Workload::kMaxInputs] = {};
    };
    Workload workload;
    std::map<std::string, Answer> answers;  // by draw
  };

  const std::vector<JudgeCase>& cases_of(const Config& config);
  Case& case_of(const ProblemPtr& problem);
  Case::Answer& answer_of(Case& subject, const std::string& draw);
  BoundPlan launch_of(const CudaModule& kernels, const Config& config, Case& subject);
  Verdict verify_cases(const CudaModule& kernels, const Config& config,
                       const std::vector<JudgeCase>& cases);
  Verdict verify_draw(const BoundPlan& launch, Case& subject, const std::string& draw);
  Verdict verify_repeats(const BoundPlan& launch, Case& subject);
  bool answers_intact() const;
  LaunchRecord take_record();

  GpuTools tools_;
  ProblemPtr problem_;
  AnswerNotice notice_;
  DeviceBuffer record_;
  std::map<std::string, std::unique_ptr<Case>> cases_;  // by text
  // By Operator::cases_class(), and of the last config that is of none.
  std::map<std::optional<std::int64_t>, std::vector<JudgeCase>> case_lists_;
};

}  // namespace vitune
