// tuner/judge/verify.cpp -- Launching a candidate on poisoned outputs and judging what it left
// behind.
#include "tuner/judge/verify.h"

#include <algorithm>
#include <cstddef>

#include "core/error.h"
#include "core/format.h"
#include "generator/attention/tensor_maps.h"
#include "generator/attention/edge_shapes.h"

namespace vitune {
namespace {

constexpr int kRepeats = 3;

std::string sizes_of(const AttentionProblem& p) {
  return formatted("b={} h={} nq={} nk={}", p.batch, p.heads, p.nq, p.nk);
}

std::string draw_name(Draw draw) {
  switch (draw) {
    case Draw::kNormal:
      return "normal";
    case Draw::kExtreme:
      return "extreme";
    case Draw::kOutlier:
      return "outlier";
    case Draw::kMasked:
      return "masked";
  }
  return {};
}

// What kernels for `problem` have to be tried on once.
std::optional<Draw> special_draw(const AttentionProblem& problem) {
  if (problem.bias) return Draw::kMasked;
  // They may hold on to the maximum of a row's first keys (holds_reference in
  // templates/attention/config.cuh).
  const bool has_scores = problem.bias || problem.mask;
  if (problem.dtype == ElementType::kBf16 && !has_scores && !problem.lse) return Draw::kOutlier;
  return std::nullopt;
}

// "batch 1, head 3, query 196" of a row number that is known modulo 2^32.
std::string place_of(std::uint64_t row, const AttentionProblem& p) {
  const auto index = static_cast<std::int64_t>(row & 0xffffffffu);
  return formatted("batch {}, head {}, query {}", index / p.nq / p.heads, index / p.nq % p.heads,
                   index % p.nq);
}

std::optional<std::string> judge_elements(const Findings& f, std::int64_t elements) {
  if (f.unwritten != 0) {
    return formatted("left {} of {} output elements unwritten", f.unwritten, elements);
  }
  if (f.not_finite != 0) {
    return formatted("gave NaN or infinity in {} of {} output elements", f.not_finite, elements);
  }
  if (f.not_zero != 0) {
    return formatted("gave {} output elements other than 0 in rows without any key", f.not_zero);
  }
  if (f.lse_wrong != 0) {
    return formatted("gave {} log-sum-exp values that are NaN, unwritten, or wrongly (not) -inf",
                     f.lse_wrong);
  }
  return std::nullopt;
}

std::optional<std::string> judge_errors(const Findings& f, const AttentionProblem& p,
                                        const ErrorBounds& bounds) {
  const OutputError error = output_error(f, p.batch * p.heads * p.nq * p.d);
  if (error.max_error > bounds.max_error) {
    return formatted("erred by {:.3g} at {}, more than the {:.3g} allowed", error.max_error,
                     place_of(f.worst, p), bounds.max_error);
  }
  if (error.rms_error > bounds.rms_error) {
    return formatted("erred by {:.3g} rms, more than the {:.3g} allowed", error.rms_error,
                     bounds.rms_error);
  }
  if (p.lse && error.lse_error > bounds.lse_error) {
    return formatted("erred by {:.3g} in the log-sum-exp, more than the {:.3g} allowed",
                     error.lse_error, bounds.lse_error);
  }
  return std::nullopt;
}

ErrorFigures figures_of(const LaunchRecord& record, const AttentionProblem& p,
                        const ErrorBounds& bounds) {
  const OutputError error = output_error(record.findings, p.batch * p.heads * p.nq * p.d);
  return {error.max_error, error.rms_error, bounds.max_error, bounds.rms_error};
}

}  // namespace

std::optional<std::string> judge(const LaunchRecord& record, const AttentionProblem& p,
                                 const ErrorBounds& bounds, const std::uint64_t* expected_inputs) {
  if (!std::equal(std::begin(record.inputs), std::end(record.inputs), expected_inputs)) {
    return "modified its inputs or the memory around them";
  }
  if (record.output_damage != 0) {
    return formatted("wrote {} 8-byte words beside its output elements", record.output_damage);
  }
  if (auto why = judge_elements(record.findings, p.batch * p.heads * p.nq * p.d)) return why;
  return judge_errors(record.findings, p, bounds);
}

PreparedLaunch::PreparedLaunch(const CudaKernel& kernel, const AttentionProblem& problem,
                               const Config& config, const DeviceInfo& device,
                               const AttentionPointers& pointers)
    : kernel_(&kernel) {
  const auto shared = static_cast<std::uint32_t>(attention_shared_bytes(problem, config));
  kernel.reserve_shared(shared);
  const int resident = kernel.resident_ctas(attention_threads(problem, config), shared);
  shape_ = attention_launch_shape(problem, config, device, resident);
  params_ = attention_params(problem, config, pointers, shape_);
  maps_ = encode_tensor_maps(kernel.driver(), problem, config, params_);
}

void PreparedLaunch::operator()(const CudaStream& stream) const {
  kernel_->driver().check(kernel_->try_launch(shape_, &params_, stream.get(), &maps_),
                          "cuLaunchKernel");
}

Verifier::Verifier(const GpuTools& tools, const AttentionProblem& problem, AnswerNotice notice)
    : tools_(tools),
      problem_(problem),
      notice_(std::move(notice)),
      record_(tools.context.driver(), sizeof(LaunchRecord)) {}

Verifier::Case& Verifier::case_of(const AttentionProblem& problem) {
  std::unique_ptr<Case>& slot = cases_[problem.text()];
  if (!slot) {
    const std::int64_t answers = 2 * Reference::bytes(problem);
    require_memory(tools_.context, plan_workload(problem).bytes() + answers);
    slot = std::make_unique<Case>(tools_, problem);
  }
  return *slot;
}

// Leaves the inputs filled with `draw`.
Verifier::Case::Answer& Verifier::answer_of(Case& subject, Draw draw) {
  subject.workload.fill_inputs(draw);
  Case::Answer& answer = subject.answers[draw];
  if (answer.reference) return answer;
  if (notice_) notice_(true);
  auto reference = std::make_unique<Reference>(tools_, subject.workload);
  tools_.stream.fill8(record_.address(), 0, record_.size());
  subject.workload.digest_inputs(record_.address() + offsetof(LaunchRecord, inputs));
  const LaunchRecord record = take_record();
  std::copy(std::begin(record.inputs), std::end(record.inputs), answer.inputs);
  answer.reference = std::move(reference);
  if (notice_) notice_(false);
  return answer;
}

LaunchRecord Verifier::take_record() {
  tools_.stream.synchronize();
  LaunchRecord record;
  record_.download(std::as_writable_bytes(std::span(&record, 1)));
  return record;
}

Verdict Verifier::verify_draw(const PreparedLaunch& launch, Case& subject, Draw draw) {
  Workload& workload = subject.workload;
  const Case::Answer& answer = answer_of(subject, draw);
  const CuPointer record_at = record_.address();
  tools_.stream.fill8(record_at, 0, record_.size());
  workload.poison_outputs();
  launch(tools_.stream);
  answer.reference->compare(workload, record_at + offsetof(LaunchRecord, findings));
  workload.count_output_damage(record_at + offsetof(LaunchRecord, output_damage));
  workload.digest_inputs(record_at + offsetof(LaunchRecord, inputs));
  const LaunchRecord record = take_record();

  const AttentionProblem& p = workload.problem();
  const ErrorBounds& bounds = answer.reference->bounds();
  Verdict verdict;
  verdict.error = figures_of(record, p, bounds);
  if (const auto why = judge(record, p, bounds, answer.inputs)) {
    verdict.status = TrialStatus::kWrong;
    verdict.reason = formatted("the kernel {} ({}, {} inputs)", *why, sizes_of(p), draw_name(draw));
    workload.forget_inputs();
  }
  return verdict;
}

// Launches on what the workload holds: all runs, the first included, must agree in every bit.
Verdict Verifier::verify_repeats(const PreparedLaunch& launch, Case& subject) {
  const CuPointer digests = record_.address() + offsetof(LaunchRecord, outputs);
  tools_.stream.fill8(record_.address(), 0, record_.size());
  for (int i = 0; i <= kRepeats; ++i) {
    subject.workload.poison_outputs();
    launch(tools_.stream);
    subject.workload.digest_outputs(digests + 8 * static_cast<CuPointer>(i));
  }
  const LaunchRecord record = take_record();
  Verdict verdict;
  for (int i = 1; i <= kRepeats; ++i) {
    if (record.outputs[i] == record.outputs[0]) continue;
    verdict.status = TrialStatus::kWrong;
    verdict.reason =
        formatted("the kernel gave other bits when it ran again on the same inputs ({})",
                  sizes_of(subject.workload.problem()));
  }
  return verdict;
}

Verdict Verifier::verify_case(const CudaKernel& kernel, const Config& config,
                              const AttentionProblem& problem, bool full) {
  Case& subject = case_of(problem);
  const PreparedLaunch launch(kernel, problem, config, tools_.device, subject.workload.pointers());
  Verdict verdict;
  for (const Draw draw : kDraws) {
    verdict = verify_draw(launch, subject, draw);
    if (verdict.status != TrialStatus::kOk) return verdict;
  }
  if (!full) return verdict;
  Verdict repeats = verify_repeats(launch, subject);
  repeats.error = verdict.error;
  return repeats;
}

Verdict Verifier::verify_once(const CudaKernel& kernel, const Config& config, Draw draw) {
  return verify_once(kernel, config, problem_, draw);
}

Verdict Verifier::verify_once(const CudaKernel& kernel, const Config& config,
                              const AttentionProblem& problem, Draw draw) {
  Case& subject = case_of(problem);
  const PreparedLaunch launch(kernel, problem, config, tools_.device, subject.workload.pointers());
  return verify_draw(launch, subject, draw);
}

Verdict Verifier::verify(const CudaKernel& kernel, const Config& config) {
  std::vector<AttentionProblem> problems = edge_problems(problem_, config, tools_.device);
  problems.push_back(problem_);
  // A second try only where the answers themselves turn out damaged, by this kernel or one before
  // it.
  for (bool again = false;; again = true) {
    Verdict verdict;
    for (std::size_t i = 0; i < problems.size() && verdict.status == TrialStatus::kOk; ++i) {
      const bool full = i + 1 == problems.size();
      if (const auto draw = full ? special_draw(problem_) : std::nullopt) {
        // On the largest edge shape, if there is one: as many keys, few heads.
        verdict = verify_once(kernel, config, problems[i > 0 ? i - 1 : i], *draw);
        if (verdict.status != TrialStatus::kOk) break;
      }
      verdict = verify_case(kernel, config, problems[i], full);
    }
    if (verdict.status == TrialStatus::kOk || again || answers_intact()) return verdict;
    cases_.clear();
  }
}

bool Verifier::answers_intact() const {
  return std::all_of(cases_.begin(), cases_.end(), [](const auto& entry) {
    const auto& answers = entry.second->answers;
    return std::all_of(answers.begin(), answers.end(), [](const auto& answer) {
      return !answer.second.reference || answer.second.reference->intact();
    });
  });
}

Workload& Verifier::timing_workload() {
  Case& subject = case_of(problem_);
  subject.workload.fill_inputs(Draw::kNormal);
  return subject.workload;
}

}  // namespace vitune
