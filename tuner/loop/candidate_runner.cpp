// tuner/loop/candidate_runner.cpp -- Keeps an evaluator busy with the candidates of one problem.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/loop/candidate_runner.h"

#include <algorithm>

#include "core/format.h"
#include "generator/operator.h"

namespace vitune {
namespace {

constexpr std::size_t kFaultWindow = 20;
constexpr std::chrono::milliseconds kWait{50};
constexpr int kConfirmations = 3;  // tries while the machine keeps it from being judged

}  // namespace

KernelKeys kernel_keys(Evaluator& evaluator) {
  return {[&evaluator](const Config& config) { return evaluator.key(config); },
          [&evaluator](const Config& config) { return evaluator.former_key(config); }};
}

CandidateRunner::CandidateRunner(Evaluator& evaluator, const ProblemPtr& problem,
                                 const SearchSpace& space, TrialBook& book, const LogSink& log_sink,
                                 const std::atomic<bool>& stop)
    : evaluator_(evaluator),
      space_(space),
      book_(book),
      log_sink_(log_sink),
      problem_(problem),
      stop_(stop) {
  EvaluationContext context;
  context.problem = problem;
  context.blocked = [this](const Config& config) { return book_.blocked(config); };
  context.launching = [this](const Config& config) {
    book_.begin_attempt(config);
    launched_.insert(config);
  };
  evaluator_.begin(std::move(context));
}

void CandidateRunner::submit(std::size_t index, const MeasureEffort& effort, bool verify,
                             bool measure) {
  flying_.emplace(index, Step{verify, measure});
  evaluator_.submit(index, {space_.configs[index], effort, verify, measure});
}

// A step that did not verify or did not measure keeps what an earlier one found.
Trial CandidateRunner::merged(std::size_t index, Trial trial, const Step& step) const {
  if (evaluator_.origin() == Origin::kReplayed) trial.kernel_key = evaluator_.key(trial.config);
  const Trial* before = book_.find(index);
  // The machine's state says nothing of a candidate that is known to work.
  if (before != nullptr && before->status == TrialStatus::kOk && may_be_the_machine(trial.status)) {
    return *before;
  }
  if (before == nullptr || trial.status != TrialStatus::kOk) return trial;
  if (!step.verify) trial.error = before->error;
  if (!step.measure) trial.measurement = before->measurement;
  return trial;
}

std::optional<std::size_t> CandidateRunner::collect() {
  auto ended = evaluator_.wait(kWait);
  if (!ended) return std::nullopt;
  const std::size_t index = ended->first;
  const auto flight = flying_.extract(index);
  if (flight.empty()) return std::nullopt;
  was_judged_ = !may_be_the_machine(ended->second.status);
  const Trial trial = merged(index, std::move(ended->second), flight.mapped());
  if (launched_.erase(trial.config) > 0) note_end(trial);
  book_.put(index, trial);
  return index;
}

// Notes the end of a candidate that ran on a device. No kernel of the templates and no library's
// algorithm should be wrong on any device, so the first of a problem is told of; that it is blocked
// saves this user, not the next one.
void CandidateRunner::note_end(const Trial& trial) {
  faults_.push_back(is_fault(trial.status));
  if (faults_.size() > kFaultWindow) faults_.pop_front();
  if (trial.status != TrialStatus::kWrong || told_of_wrong_) return;
  told_of_wrong_ = true;
  const bool is_library = problem_->op().library_version(trial.config) != 0;
  log(log_sink_, LogLevel::kWarning,
      formatted(
          "{}: a candidate gave a wrong result and is not used: {} ({}). {} or this GPU are at "
          "fault: `vitune doctor` tests the GPU, `vitune show --trials` lists all such "
          "candidates; please report them",
          problem_->text(), trial.config.text(), trial.reason,
          is_library ? "The library that it calls" : "The kernels"));
}

void CandidateRunner::run(const std::vector<std::size_t>& indices, const MeasureEffort& effort,
                          bool verify, bool measure, const std::function<void()>& ended) {
  auto next = indices.begin();
  while (!stop_ && (next != indices.end() || busy())) {
    while (!full() && next != indices.end()) submit(*next++, effort, verify, measure);
    if (collect()) ended();
  }
}

std::optional<bool> CandidateRunner::confirm(std::size_t index) {
  for (int tries = 0; tries < kConfirmations; ++tries) {
    run({index}, MeasureEffort{}, true, false, [] {});
    if (was_judged_ || stop_) return book_.find(index)->status == TrialStatus::kOk;
  }
  return std::nullopt;
}

bool CandidateRunner::hopeless() const {
  const auto faults = static_cast<std::size_t>(std::count(faults_.begin(), faults_.end(), true));
  return faults_.size() == kFaultWindow && faults > kFaultWindow / 2;
}

void CandidateRunner::withdraw() {
  book_.flush();
  for (const Config& config : launched_) book_.withdraw_attempt(config);
  launched_.clear();
}

}  // namespace vitune
