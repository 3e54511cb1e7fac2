// cli/arguments/verb_options.h -- The options of a verb, for those who describe each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/program_options.hpp>

#include "cli/arguments/session.h"

namespace vitune {

// The verb's own options and the common ones, in two groups: what its help, its completion and the
// man page are made of.
struct VerbOptions {
  boost::program_options::options_description own, common;
};
VerbOptions verb_options(const Verb& verb);

}  // namespace vitune
