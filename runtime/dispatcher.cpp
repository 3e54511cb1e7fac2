// runtime/dispatcher.cpp -- Exact, nearest and default choices for a problem.
#include "runtime/dispatcher.h"

#include <array>
#include <utility>

#include "generator/attention/kernel_spec.h"

namespace vitune {
namespace {

constexpr std::array<std::pair<LookupOutcome, std::string_view>, 3> kOutcomeNames = {
    {{LookupOutcome::kExact, "exact"},
     {LookupOutcome::kNearest, "nearest"},
     {LookupOutcome::kDefault, "default"}}};

constexpr std::array<std::pair<MissPolicy, std::string_view>, 4> kPolicyNames = {
    {{MissPolicy::kNearest, "nearest"},
     {MissPolicy::kDefault, "default"},
     {MissPolicy::kCompile, "compile"},
     {MissPolicy::kError, "error"}}};

}  // namespace

std::string lookup_outcome_name(LookupOutcome outcome) {
  for (const auto& [value, name] : kOutcomeNames) {
    if (value == outcome) return std::string(name);
  }
  return "?";
}

std::optional<MissPolicy> miss_policy_from_name(std::string_view name) {
  for (const auto& [value, known] : kPolicyNames) {
    if (known == name) return value;
  }
  return std::nullopt;
}

std::vector<Choice> Dispatcher::choices(const AttentionProblem& problem, LayeredStore& store) {
  std::vector<Choice> choices;
  const ProblemKey key{"attention", problem.canonical().text()};
  if (auto winner = store.find_winner(device_, key, objective_); winner && winner->verified) {
    Choice exact;
    exact.outcome = LookupOutcome::kExact;
    exact.config = winner->config;
    exact.reason = "tuned for this problem on this kind of GPU";
    exact.row = WinnerEntry{device_, key, std::move(*winner)};
    choices.push_back(std::move(exact));
  }
  Choice fallback;
  fallback.config = default_attention_config(problem, device_);
  fallback.reason = "no tuned kernel of its class";
  choices.push_back(std::move(fallback));
  return choices;
}

void Dispatcher::invalidate() {}

}  // namespace vitune
