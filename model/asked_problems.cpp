// model/asked_problems.cpp -- Counts the problems of a session's steps.
// SPDX-License-Identifier: Apache-2.0
#include "model/asked_problems.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "model/bind.h"
#include "model/check.h"

namespace vitune {

namespace {

bool is_part_of_fold(const std::string& text) {
  return text.find(" norm=") != std::string::npos || text.find(" moments=") != std::string::npos;
}

// As if layers of that form alone had winners.
FormFacts preferring(bool is_folded) {
  FormFacts facts;
  facts.outlook = [is_folded](const ProblemPtr& problem) {
    ProblemOutlook outlook;
    if (is_part_of_fold(problem->text()) == is_folded) outlook.winner_us = 1;
    return outlook;
  };
  return facts;
}

std::vector<AskedProblem> problems_by(const BatchTensors& tensors, const ModelGraph& graph,
                                      const ModelContainer& file, const FormFacts& facts) {
  std::vector<ProblemPtr> asked;
  for (const ModelStep& step : bind_model(tensors, graph, file, facts).steps) {
    asked.push_back(step.problem);
  }
  return counted_problems(asked);
}

}  // namespace

std::vector<AskedProblem> counted_problems(const std::vector<ProblemPtr>& asked) {
  std::vector<AskedProblem> counted;
  std::map<std::string, std::size_t> places;
  for (const ProblemPtr& problem : asked) {
    const auto [place, is_new] = places.emplace(problem->text(), counted.size());
    if (is_new) counted.push_back({problem});
    ++counted[place->second].calls;
  }
  return counted;
}

std::vector<AskedProblem> session_problems(const ModelContainer& file, const ModelGraph& graph,
                                           std::int64_t batch) {
  require_sound(file, graph, batch);
  const BatchTensors tensors(file, graph, batch);
  std::vector<AskedProblem> asked = problems_by(tensors, graph, file, {});
  std::set<std::string> known;
  for (const AskedProblem& each : asked) known.insert(each.problem->text());
  for (const bool is_folded : {true, false}) {
    for (AskedProblem& each : problems_by(tensors, graph, file, preferring(is_folded))) {
      if (!known.insert(each.problem->text()).second) continue;
      each.is_second = true;
      asked.push_back(std::move(each));
    }
  }
  return asked;
}

}  // namespace vitune
