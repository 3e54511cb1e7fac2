// cli/verbs/man_page.h -- The manual page, made of the same descriptions as the help texts.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/arguments/session.h"

namespace vitune {

// The command's exit statuses with their meanings, in order; docs/environment.md says more.
std::vector<std::pair<int, std::string>> exit_codes();

// vitune(1) in the man macros of roff.
std::string man_page(const std::vector<Verb>& verbs);

}  // namespace vitune
