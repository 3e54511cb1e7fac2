// tuner/loop/tune_plan.cpp -- What a run is asked to do, put in order.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/loop/tune_plan.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <functional>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "generator/operator.h"

namespace vitune {
namespace {

// Problems that share kernels, one after the other.
struct KernelGroup {
  std::string kernels;
  double share = 0;
  std::vector<std::size_t> members;
};

std::vector<std::size_t> larger_shares_first(const std::vector<NamedProblem>& problems,
                                             const std::vector<std::size_t>& order) {
  std::vector<KernelGroup> groups;
  for (const std::size_t i : order) {
    const Problem& problem = *problems[i].problem;
    std::string kernels = problem.operator_name() + '\n' + problem.op().kernel_class(problem);
    if (groups.empty() || groups.back().kernels != kernels) {
      groups.push_back({std::move(kernels), 0, {}});
    }
    groups.back().share += problems[i].share;
    groups.back().members.push_back(i);
  }
  std::ranges::stable_sort(groups, std::greater{}, &KernelGroup::share);
  const auto share_of = [&](std::size_t i) { return problems[i].share; };
  std::vector<std::size_t> sorted;
  for (KernelGroup& group : groups) {
    std::ranges::stable_sort(group.members, std::greater{}, share_of);
    sorted.insert(sorted.end(), group.members.begin(), group.members.end());
  }
  return sorted;
}

}  // namespace

void check_options(const TuneOptions& options) {
  const auto refuse = [](const char* why) { throw Error(ErrorCode::kUsage, why); };
  if (options.record && options.replay) {
    refuse("a replay measures nothing that could be recorded: use --record with a GPU");
  }
  const Strategy recording = options.record_sample ? Strategy::kLocal : Strategy::kExhaustive;
  if (options.record && options.strategy != recording) {
    refuse(
        "a recording holds full sweeps, or with --trials a sample and what a local search tries: "
        "use --record without --strategy");
  }
  if (options.record && (options.budget.time || options.budget.trials)) {
    refuse("a recording's search ends by itself: use --record without --budget");
  }
  if (options.record_sample && (!options.record || *options.record_sample < 1)) {
    refuse("--trials is how many candidates a recording samples: at least 1, with --record FILE");
  }
  if (options.budget.trials && *options.budget.trials < 1) {
    refuse("a budget of trials is at least 1");
  }
  if (options.budget.time && options.budget.time->count() < 1) {
    refuse("a budget of time is at least 1 s");
  }
  if (!options.replay && options.devices.empty()) refuse("no device was named to tune on");
  for (std::size_t i = 0; i < options.devices.size(); ++i) {
    const auto begin = options.devices.begin();
    if (options.devices[i] < 0) refuse("a device's number is 0 or more");
    if (std::find(begin, begin + static_cast<std::ptrdiff_t>(i), options.devices[i]) !=
        begin + static_cast<std::ptrdiff_t>(i)) {
      refuse("a device is named twice");
    }
  }
}

std::vector<std::size_t> tuning_order(const std::vector<NamedProblem>& problems) {
  std::vector<std::size_t> order(problems.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Problem& one = *problems[a].problem;
    const Problem& other = *problems[b].problem;
    if (&one.op() != &other.op()) return one.operator_name() < other.operator_name();
    return one.op().is_before(one, other);
  });
  return larger_shares_first(problems, order);
}

std::vector<TuneOutcome> untouched(const std::vector<NamedProblem>& problems) {
  std::vector<TuneOutcome> outcomes(problems.size());
  for (std::size_t i = 0; i < problems.size(); ++i) {
    outcomes[i].problem = problems[i];
    outcomes[i].message = "interrupted before it was decided";
  }
  return outcomes;
}

void remember(std::vector<Config>& similar, const Config& config) {
  constexpr std::size_t kMost = 4;
  std::erase(similar, config);
  similar.insert(similar.begin(), config);
  if (similar.size() > kMost) similar.pop_back();
}

std::string iso_utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), length};
}

}  // namespace vitune
