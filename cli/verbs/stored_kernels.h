// cli/verbs/stored_kernels.h -- The kernels that the rows of a database name, and how each is known
// to this version.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "db/store.h"
#include "generator/compiler.h"
#include "generator/problem.h"

namespace vitune {

// A stored kernel that this version makes of other sources, so that it has another key now.
struct OlderKernel {
  ProblemPtr problem;
  Config config;
  std::string compiler;                      // that made it
  CompileRequest request;                    // of its config today
  Digest now;                                // the key of that
  std::optional<std::int64_t> shared_bytes;  // per CTA, as a trial of it has them
};

struct StoredKernels {
  // Keys that are those of today: of trials and winners, of kernels and of library calls.
  std::set<Digest> current;
  // From the key of a kernel whose source has not changed in any byte, but for the rule by which
  // keys were made, to its key today.
  std::map<Digest, Digest> same_text;
  // By its stored key, a kernel with an image of which it must be found out.
  std::map<Digest, OlderKernel> older;
  // Why rows stay as they are, by their keys: nothing says what their kernels were made of.
  std::map<Digest, std::string> unknown;
};

StoredKernels stored_kernels(Store& store);

// Images that winners of the user's database name and only a layer below it has.
std::vector<Binary> images_elsewhere(LayeredStore& layers);

// Winners that are not served: their kernels are not those that this version makes. With `keys` as
// they will be once these kernels have the keys that they are mapped to.
std::vector<WinnerEntry> stale_winners(Store& store, const std::map<Digest, Digest>& keys = {});

}  // namespace vitune
