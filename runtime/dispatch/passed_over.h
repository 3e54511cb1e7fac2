// runtime/dispatch/passed_over.h -- Which choices were looked at before the one that serves, and
// why they do not.
//
// A value; one thread at a time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/dispatch/dispatcher.h"

namespace vitune {

class PassedOver {
 public:
  // `why` is a clause: "the stored kernel 0123abcd is for sm_80". What was said of the same choice
  // before is replaced.
  void add(const Choice& choice, std::string why);
  // Adds to what was said of the choice, if anything.
  void extend(const Choice& choice, std::string_view more);
  // The choice serves after all, having been compiled.
  void remove(const Choice& choice);

  bool empty() const { return choices_.empty(); }
  // "passed over: 3 (exact: the stored kernel ...)", with the first reason; empty if there are
  // none. At most `most_bytes` long, of which there must be 64.
  std::string summary(std::size_t most_bytes) const;
  // All of them with their configs, for the log.
  std::string details() const;

 private:
  struct One {
    LookupOutcome outcome;
    Config config;
    std::string why;
  };
  std::vector<One>::iterator find(const Choice& choice);
  std::vector<One> choices_;
};

}  // namespace vitune
