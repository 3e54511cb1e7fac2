// cli/verbs/shown_names.h -- The problems that the user of `vitune show` named, and how they are
// called.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "cli/arguments/session.h"
#include "db/store.h"

namespace vitune {

// Names the user gave to problems, by canonical text; all problems count if this is empty.
std::map<std::string, std::string> wanted_names(const Session& session);
// True if a stored problem is among them and of an operator that this version knows.
bool is_wanted(const std::map<std::string, std::string>& names, const ProblemKey& key);

// Names of problems: the user's, else a preset's. `wanted` must outlive it.
class ShownNames {
 public:
  ShownNames(const Session& session, const std::map<std::string, std::string>& wanted);
  const std::string& operator()(const std::string& text) const;

 private:
  const std::map<std::string, std::string>& wanted_;
  const std::map<std::string, std::string> presets_;
};

}  // namespace vitune
