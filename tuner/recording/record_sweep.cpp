// tuner/recording/record_sweep.cpp -- Writes what a sweep measured to a recording.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/recording/record_sweep.h"

#include <algorithm>

#include "core/error.h"
#include "core/format.h"
#include "tuner/loop/tune_plan.h"

namespace vitune {

SweepRecorder::SweepRecorder(std::filesystem::path path, const Evaluator& evaluator,
                             LogSink log_sink)
    : path_(std::move(path)), log_sink_(std::move(log_sink)) {
  if (!std::filesystem::exists(path_)) {
    recording_.device = evaluator.device();
    recording_.compiler_version = evaluator.compiler_version();
    return;
  }
  recording_ = Recording::load(path_);
  const auto compare = [&](const char* what, const std::string& there, const std::string& here) {
    if (there == here) return;
    throw Error(ErrorCode::kUsage,
                formatted("cannot add to the recording {}: its {} is {}, here it is {}; record to "
                          "another file",
                          path_.string(), what, there, here));
  };
  compare("device", recording_.device.key(), evaluator.device().key());
  compare("compiler", recording_.compiler_version, evaluator.compiler_version());
  compare("template digest", recording_.template_digest, recorded_templates(recording_));
}

void SweepRecorder::add(const std::string& name, const TrialBook& book, const SearchSpace& space,
                        const std::vector<std::size_t>& sample, bool has_winner) {
  const std::size_t wanted = sample.empty() ? space.size() : sample.size();
  const std::size_t tried =
      sample.empty() ? book.trials().size()
                     : static_cast<std::size_t>(std::ranges::count_if(
                           sample, [&](std::size_t index) { return book.find(index) != nullptr; }));
  if (tried < wanted || (!sample.empty() && !has_winner)) {
    const std::string_view lack = tried < wanted ? "" : ", and none won";
    log(log_sink_, LogLevel::kWarning,
        formatted("{} is not recorded: {} of {} candidates were tried{}", name, tried, wanted,
                  lack));
    return;
  }
  RecordedProblem problem;
  problem.name = name;
  problem.text = book.problem().text;
  // A library's proposal belongs to that library, and nothing here would name it again.
  for (const Parameter& parameter : space.parameters) {
    if (!parameter.open) problem.parameters.push_back(parameter.name);
  }
  for (const auto& [index, trial] : book.trials()) {
    if (std::ranges::count(space.proposed, index) != 0) continue;
    problem.trials.push_back(trial);
    if (!sample.empty()) problem.drawn.push_back(std::ranges::binary_search(sample, index));
  }
  if (!sample.empty()) problem.space_size = static_cast<std::int64_t>(space.size());
  recording_.put(std::move(problem));
  recording_.template_digest = recorded_templates(recording_);
  recording_.created = iso_utc_now();
  recording_.save(path_);
}

}  // namespace vitune
