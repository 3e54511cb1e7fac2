// tuner/evaluate/replay_evaluator.cpp -- Judges candidates by what a recording says of them.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/evaluate/replay_evaluator.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/format.h"
#include "generator/compile_options.h"
#include "generator/operator.h"

namespace vitune {

ReplayEvaluator::ReplayEvaluator(Recording recording, std::unique_ptr<CompilePool> pool,
                                 LogSink log_sink, const std::atomic<bool>& stop)
    : recording_(std::move(recording)),
      pool_(std::move(pool)),
      log_sink_(std::move(log_sink)),
      stop_(stop),
      compiler_version_(recording_.compiler_version) {
  open_compiler();
  const std::string built_in = recorded_templates(recording_);
  if (recording_.template_digest != built_in) {
    log(log_sink_, LogLevel::kInfo,
        formatted("the recording was made with other kernels (templates {:.12}, here {:.12}): its "
                  "figures are those of the recorded ones",
                  recording_.template_digest, built_in));
  }
}

void ReplayEvaluator::open_compiler() {
  if (!pool_) return;
  try {
    compiler_version_ = pool_->compiler_version();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNoCompiler) throw;
    pool_.reset();
    log(log_sink_, LogLevel::kInfo,
        formatted("replayed winners are stored without their kernels: {}", error.what()));
  }
}

const RecordedProblem& ReplayEvaluator::recorded(const Problem& problem) const {
  const std::string& text = problem.text();
  if (const RecordedProblem* found = recording_.find(text)) return *found;
  std::string names;
  for (const auto& known : recording_.problems) names += "\n  " + known.name + ": " + known.text;
  throw Error(ErrorCode::kUsage, formatted("the recording of {} has no \"{}\"; it has:{}",
                                           recording_.device.name, text, names));
}

SearchSpace ReplayEvaluator::space(const ProblemPtr& problem) {
  const RecordedProblem& known = recorded(*problem);
  std::vector<Parameter> parameters;
  for (const std::string& name : known.parameters) {
    std::set<std::int64_t> values;
    for (const Trial& row : known.trials) values.insert(row.config.at(name));
    parameters.push_back({name, {values.begin(), values.end()}, "recorded"});
  }
  std::vector<Config> configs;
  for (const Trial& row : known.trials) configs.push_back(row.config);
  SearchSpace space(std::move(parameters), std::move(configs));
  space.preset = space.find(default_config(*problem, recording_.device));
  if (!known.drawn.empty()) {
    log(log_sink_, LogLevel::kInfo,
        formatted("{}: {} of {} configs are recorded, a sample: what wins may not be the best",
                  known.name, known.trials.size(), known.space_size));
  }
  return space;
}

void ReplayEvaluator::begin(EvaluationContext context) {
  const RecordedProblem& known = recorded(*context.problem);
  problem_ = context.problem;
  done_.clear();
  sorted_.clear();
  for (const Trial& row : known.trials) sorted_.push_back(&row);
  std::sort(sorted_.begin(), sorted_.end(),
            [](const Trial* a, const Trial* b) { return a->config < b->config; });
}

const Trial& ReplayEvaluator::trial(const Config& config) const {
  const auto at =
      std::lower_bound(sorted_.begin(), sorted_.end(), config,
                       [](const Trial* row, const Config& wanted) { return row->config < wanted; });
  if (at == sorted_.end() || (*at)->config != config) {
    throw Error(ErrorCode::kUsage,
                formatted("{} is not recorded for {}", config.text(), problem_->text()));
  }
  return **at;
}

Digest ReplayEvaluator::key(const Config& config) {
  try {
    const auto request = problem_->op().request(*problem_, config, recording_.device.arch());
    return kernel_key(request, compiler_version_);
  } catch (const Error&) {
    return {};  // recorded with kernels that had other tunables
  }
}

Digest ReplayEvaluator::former_key(const Config& config) {
  try {
    const auto request = problem_->op().request(*problem_, config, recording_.device.arch());
    return text_kernel_key(request, compiler_version_);
  } catch (const Error&) {
    return {};
  }
}

void ReplayEvaluator::submit(std::size_t id, const Candidate& candidate) {
  done_.emplace_back(id, &trial(candidate.config));
}

std::optional<std::pair<std::size_t, Trial>> ReplayEvaluator::wait(std::chrono::milliseconds) {
  if (done_.empty()) return std::nullopt;
  std::pair<std::size_t, Trial> next{done_.front().first, *done_.front().second};
  done_.pop_front();
  return next;
}

RaceResult ReplayEvaluator::race(const std::vector<Config>& configs, int, int) {
  RaceResult result;
  for (const Config& config : configs) result.measurements.push_back(trial(config).measurement);
  return result;
}

std::optional<Binary> ReplayEvaluator::binary(const Config& config) {
  if (!pool_ || key(config) == Digest{}) return std::nullopt;
  const auto request = problem_->op().request(*problem_, config, recording_.device.arch());
  pool_->submit(next_compile_++, request);
  while (true) {
    if (stop_) throw Error(ErrorCode::kInterrupted, "interrupted while compiling a winner");
    const auto done = pool_->wait(std::chrono::milliseconds(50));
    if (!done) continue;
    const CompileResult& compiled = done->second;
    if (!is_answer(compiled.status)) throw not_compiled(config, compiled.log);
    if (compiled.status != CompileStatus::kOk) {
      log(log_sink_, LogLevel::kWarning,
          formatted("the winner {} does not compile here and is stored without its kernel: {}",
                    config.text(), compiled.log));
      return std::nullopt;
    }
    return Binary{kernel_key(request, compiler_version_),
                  request.arch,
                  made_by(request, compiler_version_),
                  request.entry,
                  compiled.facts,
                  compiled.cubin};
  }
}

}  // namespace vitune
