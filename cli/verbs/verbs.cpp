// cli/verbs/verbs.cpp -- The list of verbs.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/session.h"

namespace vitune {

std::vector<Verb> all_verbs() {
  std::vector<Verb> verbs = {tune_verb(),   bench_verb(), compare_verb(), report_verb(),
                             verify_verb(), show_verb(),  explain_verb(), compile_verb(),
                             models_verb(), run_verb(),   devices_verb(), doctor_verb()};
  for (Verb& verb : db_verbs()) verbs.push_back(std::move(verb));
  for (Verb& verb : fleet_verbs()) verbs.push_back(std::move(verb));
  verbs.push_back(completion_verb());
  verbs.push_back(man_verb());
  return verbs;
}

}  // namespace vitune
