// cli/verbs/shown_names.cpp -- Problems by their canonical text.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/shown_names.h"

#include "cli/arguments/inputs.h"
#include "cli/arguments/problem_names.h"
#include "generator/operator.h"

namespace vitune {

std::map<std::string, std::string> wanted_names(const Session& session) {
  std::map<std::string, std::string> names;
  for (const NamedProblem& problem : requested_problems(session, "")) {
    names[problem.problem->text()] = problem.name;
  }
  return names;
}

bool is_wanted(const std::map<std::string, std::string>& names, const ProblemKey& key) {
  return find_operator(key.operator_name) != nullptr && (names.empty() || names.contains(key.text));
}

ShownNames::ShownNames(const Session& session, const std::map<std::string, std::string>& wanted)
    : wanted_(wanted), presets_(preset_problem_names(session)) {}

const std::string& ShownNames::operator()(const std::string& text) const {
  const auto wanted = wanted_.find(text);
  if (wanted != wanted_.end() && wanted->second != text) return wanted->second;
  const auto known = presets_.find(text);
  return known == presets_.end() ? text : known->second;
}

}  // namespace vitune
