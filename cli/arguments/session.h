// cli/arguments/session.h -- One run of a verb: its parsed arguments and what it may use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments/options.h"
#include "cli/output/console.h"
#include "core/env.h"

namespace vitune {

// The value given to an option, or its default.
struct OptionValue {
  std::vector<std::string> texts;  // none of a switch
  bool given = false;              // not a default; of a switch: on
};

struct Session {
  std::map<std::string, OptionValue> values;
  std::vector<std::string> operands;
  Environment environment;
  mutable Console console;  // whoever reads the arguments may say something about them
  const std::atomic<bool>& stop;
  std::filesystem::path program;  // absolute path of this executable

  bool has(const std::string& option) const;          // was given, or is a switch that is on
  std::string text(const std::string& option) const;  // its value; the option must have one
  std::vector<std::string> texts(const std::string& option) const;  // empty if it has none
  // Throws Error(kUsage), "--<option> <why>", if one of `options` was given: what was typed must
  // not be ignored silently.
  void refuse(std::initializer_list<const char*> options, std::string_view why) const;
};

// One verb of the command. Options, help text and completion all come from `options`.
struct Verb {
  std::string name;      // "tune", "db merge"
  std::string summary;   // one line for `vitune help`
  std::string operands;  // "[PROBLEM...]", or empty if it takes none
  std::string notes;     // shown below the options; may be empty
  std::function<void(boost::program_options::options_description&)> options;
  std::function<int(Session&)> run;  // returns the exit status
  bool prints_script = false;        // a text for a program: no database, one form
};

// Every verb, in the order in which `vitune help` lists them.
std::vector<Verb> all_verbs();

// The help text of one verb.
std::string verb_help(const Verb& verb);

// Parses what follows the verb. Throws Error(kUsage) with the nearest known option. Nothing if
// --help was asked for.
std::optional<Session> parse_session(const Verb& verb, const std::vector<std::string>& arguments,
                                     const std::atomic<bool>& stop);

Verb tune_verb();
Verb bench_verb();
Verb compare_verb();
Verb report_verb();
Verb verify_verb();
Verb show_verb();
Verb explain_verb();
Verb compile_verb();
std::vector<Verb> db_verbs();
std::vector<Verb> fleet_verbs();
Verb devices_verb();
Verb doctor_verb();
Verb models_verb();
Verb run_verb();
Verb completion_verb();
Verb man_verb();

}  // namespace vitune
