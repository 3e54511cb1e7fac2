// tuner/judge/verify.h -- Whether a kernel is right: judged before it is timed, on inputs meant to
// break it.
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
#include "generator/attention/kernel_spec.h"
#include "generator/attention/problem.h"
#include "tuner/judge/reference.h"
#include "tuner/judge/support_kernels.h"
#include "tuner/judge/workload.h"

namespace vitune {

// What one launch left behind, as the device reports it. All zero before the launch.
struct LaunchRecord {
  Findings findings;
  std::uint64_t inputs[Workload::kMaxInputs];  // digests of the input allocations afterwards
  std::uint64_t output_damage;                 // words written that are no output element
  std::uint64_t outputs[4];                    // digests of a launch's outputs and of its repeats'
};

// Why a launch on `problem` was wrong, in one sentence without its subject, or nothing.
std::optional<std::string> judge(const LaunchRecord& record, const AttentionProblem& problem,
                                 const ErrorBounds& bounds, const std::uint64_t* expected_inputs);

// A loaded kernel launched on one set of tensors.
class PreparedLaunch {
 public:
  // Throws CudaError if the kernel cannot have the shared memory it needs.
  PreparedLaunch(const CudaKernel& kernel, const AttentionProblem& problem, const Config& config,
                 const DeviceInfo& device, const AttentionPointers& pointers);
  void operator()(const CudaStream& stream) const;

 private:
  const CudaKernel* kernel_;
  LaunchShape shape_;
  AttentionParams params_;
  AttentionTensorMaps maps_;
};

struct Verdict {
  TrialStatus status = TrialStatus::kOk;  // or kWrong
  std::string reason;
  ErrorFigures error;  // on the full problem with normal inputs; where wrong, on what failed
};

// Judges kernels on one problem. Workloads and right answers are made once and kept.
class Verifier {
 public:
  // Called with true before a right answer is made, when no candidate is running, and with false
  // after it: it may take far longer than a candidate.
  using AnswerNotice = std::function<void(bool begins)>;
  Verifier(const GpuTools& tools, const AttentionProblem& problem, AnswerNotice notice = {});

  // The first launch is a single one at the smallest edge shape, the last are on the full problem
  // with normal inputs. A CudaError means that the kernel faulted or could not be launched.
  Verdict verify(const CudaKernel& kernel, const Config& config);

  // A single launch on the full problem: for tools that make each one slow.
  Verdict verify_once(const CudaKernel& kernel, const Config& config, Draw draw = Draw::kExtreme);

  // The full problem's tensors, holding normal inputs: what timing runs on.
  Workload& timing_workload();

 private:
  // One problem's tensors with the answer to each draw.
  struct Case {
    Case(const GpuTools& tools, const AttentionProblem& problem) : workload(tools, problem) {}
    struct Answer {
      std::unique_ptr<Reference> reference;
      std::uint64_t inputs[Workload::kMaxInputs] = {};
    };
    Workload workload;
    std::map<Draw, Answer> answers;
  };

  Case& case_of(const AttentionProblem& problem);
  Case::Answer& answer_of(Case& subject, Draw draw);
  Verdict verify_once(const CudaKernel& kernel, const Config& config,
                      const AttentionProblem& problem, Draw draw);
  Verdict verify_case(const CudaKernel& kernel, const Config& config,
                      const AttentionProblem& problem, bool full);
  Verdict verify_draw(const PreparedLaunch& launch, Case& subject, Draw draw);
  Verdict verify_repeats(const PreparedLaunch& launch, Case& subject);
  bool answers_intact() const;
  LaunchRecord take_record();

  GpuTools tools_;
  AttentionProblem problem_;
  AnswerNotice notice_;
  DeviceBuffer record_;
  std::map<std::string, std::unique_ptr<Case>> cases_;
};

}  // namespace vitune
