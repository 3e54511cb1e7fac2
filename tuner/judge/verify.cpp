// tuner/judge/verify.cpp -- Launching a candidate on poisoned outputs and judging what it left
// behind.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/judge/verify.h"

#include <algorithm>
#include <cstddef>

#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr int kRepeats = 3;

// "batch 1, head 3, query 196" of a row number that is known modulo 2^32, before the tensor's name.
std::string place_of(std::uint64_t row, const TensorSpec& tensor) {
  auto left = static_cast<std::int64_t>(row & 0xffffffffu);
  std::string place;
  for (std::size_t i = 3; i-- > 0;) {
    if (!tensor.axes[i].empty()) {
      place = formatted("{} {}{}{}", tensor.axes[i], left % tensor.extents[i],
                        place.empty() ? "" : ", ", place);
    }
    left /= tensor.extents[i];
  }
  return place.empty() ? tensor.name : formatted("{} of {}", place, tensor.name);
}

std::optional<std::string> judge_elements(const Findings& f, const TensorSpec& tensor) {
  const std::int64_t elements = tensor.elements();
  if (f.unwritten != 0) {
    return formatted("left {} of {} elements of {} unwritten", f.unwritten, elements, tensor.name);
  }
  if (f.not_finite != 0) {
    return formatted("gave NaN or infinity in {} of {} elements of {}", f.not_finite, elements,
                     tensor.name);
  }
  if (f.not_infinite != 0) {
    return formatted("gave {} elements of {} that are not the infinity that they must be",
                     f.not_infinite, tensor.name);
  }
  if (f.not_zero != 0) {
    return formatted("gave {} elements of {} other than 0 in rows that nothing adds to", f.not_zero,
                     tensor.name);
  }
  return std::nullopt;
}

std::optional<std::string> judge_errors(const Findings& f, const TensorSpec& tensor,
                                        const ErrorBounds& bounds) {
  const OutputError error = output_error(f, tensor.elements());
  if (error.max_error > bounds.max_error) {
    return formatted("erred by {:.3g} at {}, more than the {:.3g} allowed", error.max_error,
                     place_of(f.worst, tensor), bounds.max_error);
  }
  if (error.rms_error > bounds.rms_error) {
    return formatted("erred by {:.3g} rms in {}, more than the {:.3g} allowed", error.rms_error,
                     tensor.name, bounds.rms_error);
  }
  return std::nullopt;
}

// True if `error` is a larger part of its bound than `other` is of its own.
bool is_worse(double error, double bound, double other, double other_bound) {
  const auto part = [](double e, double b) { return e == 0 ? 0 : e / b; };
  return part(error, bound) > part(other, other_bound);
}

}  // namespace

ErrorFigures worst_figures(const LaunchRecord& record, const std::vector<TensorSpec>& tensors,
                           const std::vector<ErrorBounds>& bounds) {
  const std::vector<int> outputs = judged_outputs(tensors);
  ErrorFigures worst;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const TensorSpec& tensor = tensors[static_cast<std::size_t>(outputs[i])];
    const OutputError error = output_error(record.findings[i], tensor.elements());
    const auto& [max_bound, rms_bound] = bounds[i];
    if (i == 0 || is_worse(error.max_error, max_bound, worst.max_error, worst.max_bound)) {
      worst.max_error = error.max_error;
      worst.max_bound = max_bound;
    }
    if (i == 0 || is_worse(error.rms_error, rms_bound, worst.rms_error, worst.rms_bound)) {
      worst.rms_error = error.rms_error;
      worst.rms_bound = rms_bound;
    }
  }
  return worst;
}

std::optional<std::string> judge(const LaunchRecord& record, const std::vector<TensorSpec>& tensors,
                                 const std::vector<ErrorBounds>& bounds,
                                 const std::uint64_t* expected_inputs) {
  if (!std::equal(std::begin(record.inputs), std::end(record.inputs), expected_inputs)) {
    return "modified its inputs or the memory around them";
  }
  if (record.output_damage != 0) {
    return formatted("wrote {} 8-byte words beside its output elements", record.output_damage);
  }
  const std::vector<int> outputs = judged_outputs(tensors);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const TensorSpec& tensor = tensors[static_cast<std::size_t>(outputs[i])];
    if (auto why = judge_elements(record.findings[i], tensor)) return why;
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const TensorSpec& tensor = tensors[static_cast<std::size_t>(outputs[i])];
    if (auto why = judge_errors(record.findings[i], tensor, bounds[i])) return why;
  }
  return std::nullopt;
}

Verifier::Verifier(const GpuTools& tools, ProblemPtr problem, AnswerNotice notice)
    : tools_(tools),
      problem_(std::move(problem)),
      notice_(std::move(notice)),
      record_(tools.context.driver(), sizeof(LaunchRecord)) {}

// The cases that a config is tried on; valid until the next call.
const std::vector<JudgeCase>& Verifier::cases_of(const Config& config) {
  const Operator& op = problem_->op();
  const auto of_class = op.cases_class(*problem_, config, tools_.device);
  std::vector<JudgeCase>& list = case_lists_[of_class];
  if (!of_class || list.empty()) list = op.cases(*problem_, config, tools_.device);
  return list;
}

Verifier::Case& Verifier::case_of(const ProblemPtr& problem) {
  std::unique_ptr<Case>& slot = cases_[problem->text()];
  if (!slot) {
    const std::int64_t answers = 2 * Reference::bytes(*problem);
    const std::int64_t tensors = plan_workload(problem->op().tensors(*problem)).bytes();
    require_memory(tools_.context, tensors + answers);
    slot = std::make_unique<Case>(tools_, problem);
  }
  return *slot;
}

// Leaves the inputs filled with `draw`.
Verifier::Case::Answer& Verifier::answer_of(Case& subject, const std::string& draw) {
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

BoundPlan Verifier::launch_of(const CudaModule& kernels, const Config& config, Case& subject) {
  Workload& workload = subject.workload;
  return workload.bind(
      prepare_plan(kernels, workload.problem(), config, tools_.device, tools_.libraries));
}

LaunchRecord Verifier::take_record() {
  tools_.stream.synchronize();
  LaunchRecord record;
  record_.download(std::as_writable_bytes(std::span(&record, 1)));
  return record;
}

Verdict Verifier::verify_draw(const BoundPlan& launch, Case& subject, const std::string& draw) {
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

  const std::vector<TensorSpec>& tensors = workload.tensors();
  const std::vector<ErrorBounds>& bounds = answer.reference->bounds();
  Verdict verdict;
  verdict.error = worst_figures(record, tensors, bounds);
  if (const auto why = judge(record, tensors, bounds, answer.inputs)) {
    const Problem& problem = workload.problem();
    verdict.status = TrialStatus::kWrong;
    verdict.reason =
        formatted("the kernel {} ({}, {} inputs)", *why, problem.op().sizes(problem), draw);
    workload.forget_inputs();
  }
  return verdict;
}

// Launches on what the workload holds: all runs, the first included, must agree in every bit.
Verdict Verifier::verify_repeats(const BoundPlan& launch, Case& subject) {
  const CuPointer digests = record_.address() + offsetof(LaunchRecord, outputs);
  tools_.stream.fill8(record_.address(), 0, record_.size());
  for (int i = 0; i <= kRepeats; ++i) {
    subject.workload.poison_outputs();
    launch(tools_.stream);
    subject.workload.digest_outputs(digests + 8 * static_cast<CuPointer>(i));
  }
  const LaunchRecord record = take_record();
  const Problem& problem = subject.workload.problem();
  Verdict verdict;
  for (int i = 1; i <= kRepeats; ++i) {
    if (record.outputs[i] == record.outputs[0]) continue;
    verdict.status = TrialStatus::kWrong;
    verdict.reason =
        formatted("the kernel gave other bits when it ran again on the same inputs ({})",
                  problem.op().sizes(problem));
  }
  return verdict;
}

Verdict Verifier::verify_cases(const CudaModule& kernels, const Config& config,
                               const std::vector<JudgeCase>& cases) {
  Case* subject = nullptr;
  std::optional<BoundPlan> launch;
  Verdict verdict;
  for (const JudgeCase& each : cases) {
    Case& next = case_of(each.problem);
    if (&next != subject) launch.emplace(launch_of(kernels, config, next));
    subject = &next;
    verdict = verify_draw(*launch, next, each.draw);
    if (verdict.status != TrialStatus::kOk) return verdict;
  }
  Verdict repeats = verify_repeats(*launch, *subject);
  repeats.error = verdict.error;
  return repeats;
}

Verdict Verifier::verify_once(const CudaModule& kernels, const Config& config, std::string draw) {
  for (const JudgeCase& each : cases_of(config)) {
    if (draw.empty() && is_same(*each.problem, *problem_)) draw = each.draw;
  }
  Case& subject = case_of(problem_);
  return verify_draw(launch_of(kernels, config, subject), subject, draw);
}

Verdict Verifier::verify(const CudaModule& kernels, const Config& config) {
  const std::vector<JudgeCase>& cases = cases_of(config);
  // A second try only where the answers themselves turn out damaged, by this kernel or one before
  // it.
  for (bool again = false;; again = true) {
    Verdict verdict = verify_cases(kernels, config, cases);
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
  subject.workload.fill_inputs(kNormalDraw);
  return subject.workload;
}

}  // namespace vitune
