// tuner/loop/source_seeds.cpp -- Reads other devices' winners and picks those of near problems.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/loop/source_seeds.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "core/source_devices.h"
#include "db/stored_devices.h"
#include "generator/operator.h"

namespace vitune {
namespace {

constexpr std::size_t kMostExact = 4, kMostNear = 4;

std::string class_of(const Problem& problem) {
  return problem.operator_name() + ' ' + problem.op().kernel_class(problem);
}

}  // namespace

// Configs of the space of one problem, each once.
class SourceSeeds::Picked {
 public:
  Picked(const Problem& problem, const DeviceInfo& device)
      : problem_(problem), space_(problem.op().space(problem, device)) {}

  // True if it is in the space and was not picked before.
  bool add(const Config& config) {
    Config whole = space_.completed(config);
    if (space_.explain(whole) || std::ranges::count(configs_, whole) > 0) return false;
    configs_.push_back(std::move(whole));
    return true;
  }
  // The same of a config of another problem of the class.
  bool add_carried(const Config& config, const Problem& from) {
    try {
      return add(problem_.op().carried(config, from, problem_, space_));
    } catch (const Error&) {
      return false;  // of a family that has no configs on this device
    }
  }
  std::size_t size() const { return configs_.size(); }
  const std::vector<Config>& configs() const { return configs_; }

 private:
  const Problem& problem_;
  const ParameterSpace space_;
  std::vector<Config> configs_;
};

void SourceSeeds::list_devices() {
  if (!sources_.empty()) return;
  sources_.push_back({device_, std::nullopt});
  for (DeviceInfo& device : search_sources(stored_devices(store_), device_)) {
    sources_.push_back({std::move(device), std::nullopt});
  }
}

// Where a problem has winners by both objectives, that by the wanted one comes first.
const std::vector<SourceSeeds::SourceWinner>& SourceSeeds::winners_of(Source& source) {
  if (source.winners) return *source.winners;
  std::vector<SourceWinner> wanted, others;
  const auto add = [&](const ProblemKey& key, const Winner& winner, Layer) {
    if (find_operator(key.operator_name) == nullptr || !winner.verified) return;
    try {
      ProblemPtr problem = parse_problem(key.text);
      std::string problem_class = class_of(*problem);
      (winner.objective == objective_ ? wanted : others)
          .push_back({std::move(problem), std::move(problem_class), winner.config});
    } catch (const Error&) {
      // of a version with other words
    }
  };
  store_.visit_winners(source.device, add);
  wanted.insert(wanted.end(), std::make_move_iterator(others.begin()),
                std::make_move_iterator(others.end()));
  source.winners = std::move(wanted);
  return *source.winners;
}

void SourceSeeds::say(const DeviceInfo& source) {
  if (std::exchange(has_spoken_, true)) return;
  log(log_sink_, LogLevel::kInfo,
      formatted("problems without a winner on this GPU are searched from the winners of {} first",
                shown_device(source)));
}

void SourceSeeds::add_exact(const Problem& problem, Picked& picked) {
  const std::string text = problem.text();
  for (auto source = sources_.begin() + 1; source != sources_.end(); ++source) {
    for (const SourceWinner& winner : winners_of(*source)) {
      if (winner.problem->text() != text || !picked.add(winner.config)) continue;
      say(source->device);
      if (picked.size() >= kMostExact) return;
    }
  }
}

void SourceSeeds::add_near(const Problem& problem, Picked& picked) {
  const std::string wanted = class_of(problem);
  std::vector<std::pair<double, const SourceWinner*>> alike;
  const auto source = std::ranges::find_if(sources_, [&](Source& each) {
    for (const SourceWinner& winner : winners_of(each)) {
      if (winner.problem_class != wanted) continue;
      alike.emplace_back(problem.op().distance(problem, *winner.problem), &winner);
    }
    return !alike.empty();
  });
  if (source == sources_.end() || source == sources_.begin()) return;
  std::ranges::stable_sort(alike, {}, [](const auto& each) { return each.first; });
  const std::size_t most = picked.size() + kMostNear;
  for (const auto& [distance, winner] : alike) {
    if (picked.size() >= most) return;
    if (picked.add_carried(winner->config, *winner->problem)) say(source->device);
  }
}

std::vector<Config> SourceSeeds::of(const ProblemPtr& problem) {
  list_devices();
  Picked picked(*problem, device_);
  if (sources_.size() > 1) {
    add_exact(*problem, picked);
    add_near(*problem, picked);
  }
  return picked.configs();
}

}  // namespace vitune
