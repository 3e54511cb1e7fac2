// tests/faults/operations.h -- The commands that work on a database: each prepared, run as a
// process of its own, and its folder looked at afterwards, whatever became of the process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "db/store.h"

namespace vitune::faults {

using Environment = std::map<std::string, std::string>;
using Rows = std::vector<std::string>;  // as test::everything() gives them, without times

// How a run ended.
struct Ended {
  int status = -1;    // the exit status, or 128 + the signal
  bool hung = false;  // it had to be killed
  std::string err;    // what it said on stderr
};

// The files that may lie beside the database afterwards.
enum class Leavings {
  kNone,        // nothing but what docs/cache_format.md names
  kUnfinished,  // also what a killed process leaves
};

// One command on one prepared database: FOLDER/db/v.db; what else it reads or writes is in
// FOLDER/in and FOLDER/out.
class Operation {
 public:
  // How far a run may come: nothing or all of it, or some of its transactions.
  enum class Kind { kOneStep, kManySteps, kSalvage };
  struct Spec {
    std::string name;
    std::vector<std::string> arguments;  // a leading @ stands for the folder
    Kind kind = Kind::kOneStep;
    std::map<std::string, std::string> files;  // what is there before: name -> bytes
    bool plain = false;  // to be run as on a file system that can do less, see file_calls.h
  };

  // Runs it once without faults, to know what comes out.
  explicit Operation(Spec spec);

  const std::string& name() const { return spec_.name; }
  bool is_on_plain_files() const { return spec_.plain; }
  // Empties the folder (mode 0700, created if need be) and puts there what the command finds.
  void prepare(const std::filesystem::path& folder) const;
  // Runs the command, with `environment` beside its own variables; killed after a minute.
  Ended run(const std::filesystem::path& folder, const Environment& environment = {}) const;
  // The faults of the folder after a run that ended so, a line each; empty: nothing. An exit
  // status that is not documented, a signal other than SIGKILL, a hang; a row of before that is
  // lost, one that was never written, half a step; damage; files left behind. It plays back a
  // journal that is there.
  std::vector<std::string> check(const std::filesystem::path& folder, const Ended& ended,
                                 Leavings leavings = Leavings::kUnfinished) const;
  // Runs the command again, without faults, and looks whether all is as if nothing had been.
  std::vector<std::string> check_again(const std::filesystem::path& folder) const;

  // The rows that may be read before it and after it.
  const Rows& rows_before() const { return before_; }
  const Rows& rows_after() const { return after_; }
  // The faults of the database, the output file and the file that a salvage keeps, where the
  // command was stopped on the way
  // (`finished`: after its end); plays back a journal.
  std::vector<std::string> check_files(const std::filesystem::path& folder, bool finished) const;

 private:
  void check_database(const std::filesystem::path& file, bool finished,
                      std::vector<std::string>& wrong) const;
  void check_leavings(const std::filesystem::path& folder, Leavings leavings,
                      std::vector<std::string>& wrong) const;
  void check_output(const std::filesystem::path& folder, bool finished,
                    std::vector<std::string>& wrong) const;
  bool is_possible(const Rows& rows) const;

  Spec spec_;
  Rows before_, after_;
  std::string output_name_, output_;  // of a command that writes a file
};

// create (an import where there is no database), import, merge, prune, migrate, salvage, export,
// pack, tune, and salvage and export on plain files: made once, at the first call.
const std::vector<Operation>& operations();

}  // namespace vitune::faults
