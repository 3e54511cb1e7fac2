// cli/verbs/same_code.h -- Compiles stored kernels again and compares what runs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "cli/arguments/session.h"
#include "cli/verbs/stored_kernels.h"

namespace vitune {

// Results of the comparison, by kind.
struct CodeComparison {
  std::map<Digest, Digest> same;  // from the stored key to today's: the code is the same
  std::map<Digest, std::set<Digest>> images;  // of each, those of the user's database
  std::map<Digest, std::string> differs;      // why it is not, or is not known to be
};

// Compiles each kernel from the sources of today, in processes of its own, and compares its code
// (generator/cubin_code), registers, spills, shared memory, architecture and entry with every image
// that the user's database has of it, and with those of `elsewhere`: one that differs speaks for
// all of them. Only the compiler that made an image can tell. Once the session is to stop,
// Error(kInterrupted).
CodeComparison compare_code(Session& session, const std::map<Digest, OlderKernel>& kernels,
                            const std::vector<Binary>& elsewhere);

}  // namespace vitune
