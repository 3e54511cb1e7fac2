// cli/arguments/problem_names.cpp -- The benchmark's problems, by their texts.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/problem_names.h"

#include <algorithm>

#include "catalogue/problem_set.h"
#include "cli/arguments/data_files.h"
#include "core/error.h"

namespace vitune {

namespace {

// None where the shipped data cannot be read: a name is a convenience, and 'vitune doctor' says
// what is wrong with the data.
std::vector<NamedProblem> known_problems(const Session& session) {
  const auto data_dir = find_data_dir(session);
  if (!data_dir) return {};
  try {
    return preset("bench", *data_dir);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::map<std::string, std::string> preset_problem_names(const Session& session) {
  std::map<std::string, std::string> names;
  for (const NamedProblem& problem : known_problems(session)) {
    names.try_emplace(problem.problem->text(), problem.name);
  }
  return names;
}

void add_known_peers(const Session& session, std::vector<NamedProblem>& problems) {
  const std::vector<NamedProblem> known = known_problems(session);
  for (NamedProblem& problem : problems) {
    if (!problem.peers.empty()) continue;
    const auto same = std::ranges::find(known, problem.problem->text(),
                                        [](const auto& other) { return other.problem->text(); });
    if (same != known.end()) problem.peers = same->peers;
  }
}

}  // namespace vitune
