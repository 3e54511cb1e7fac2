// tests/faults/spoilt_run.h -- Runs an operation with libvitune_file_calls.so: records its file
// calls, or spoils some of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/db/test_support.h"
#include "tests/faults/file_calls.h"
#include "tests/faults/operations.h"

namespace vitune::faults {

// One call of a run, as the library has recorded it.
struct RecordedCall {
  Logged logged{};
  std::string path, to, data;
};

// The call to spoil: see file_calls.h.
struct Fault {
  std::uint32_t at = 0;
  int kind = 0;
  bool for_ever = false;
  std::optional<Call> only = {};  // no other kind of call
};
std::string text_of(const Fault& fault);

// Every fault of these kinds that can befall the calls, in the calls' order.
struct FaultKind {
  int kind;
  bool for_ever;
};
std::vector<Fault> possible_faults(const std::vector<RecordedCall>& calls,
                                   const std::vector<FaultKind>& kinds);

// A scratch folder in memory, if that is possible, with the prepared operation in folder().
class SpoiltRun {
 public:
  explicit SpoiltRun(const Operation& operation);
  ~SpoiltRun();
  SpoiltRun(const SpoiltRun&) = delete;
  SpoiltRun& operator=(const SpoiltRun&) = delete;

  std::filesystem::path folder() const { return scratch_ / "run"; }
  // Prepares the operation and runs it, spoilt.
  Ended run(const Fault& fault);
  // Prepares it, calls `before`, and runs it without faults; gives its calls on the folder's files.
  template <typename Before>
  std::vector<RecordedCall> record(Before&& before) {
    operation_.prepare(folder());
    before();
    return recorded();
  }
  // The state of the last run's fault.
  const State& state() const { return *state_; }

 private:
  Environment environment() const;
  std::vector<RecordedCall> recorded();

  const Operation& operation_;
  test::TempDir scratch_;
  State* state_;
};

}  // namespace vitune::faults
