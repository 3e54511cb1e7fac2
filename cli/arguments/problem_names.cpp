// cli/arguments/problem_names.cpp -- The names of the benchmark's problems.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/problem_names.h"

#include "catalogue/problem_set.h"
#include "cli/arguments/data_files.h"
#include "core/error.h"

namespace vitune {

std::map<std::string, std::string> preset_problem_names(const Session& session) {
  std::map<std::string, std::string> names;
  const auto data_dir = find_data_dir(session);
  if (!data_dir) return names;
  try {
    for (const NamedProblem& problem : preset("bench", *data_dir)) {
      names.try_emplace(problem.problem->text(), problem.name);
    }
  } catch (const Error&) {
    return {};  // a name is a convenience: 'vitune doctor' says what is wrong with the data
  }
  return names;
}

}  // namespace vitune
