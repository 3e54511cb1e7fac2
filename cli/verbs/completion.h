// cli/verbs/completion.h -- Completion scripts for shells, made of the verbs and their options.
//
// What a shell can offer is decided here once, as CompletionVerb; completion_scripts.cpp writes it
// in the words of each shell. No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments/session.h"

namespace vitune {

// Kinds of words that may follow an option or stand for an operand.
enum class WordKind {
  kAny,     // a number, a text: nothing can be offered
  kWords,   // one of `words`
  kFile,    // a path
  kFolder,  // a path of a folder
  kModel    // a name that `vitune models --names` lists
};

struct CompletionOption {
  std::string name;         // "db"; without dashes
  std::string letter;       // "q", or empty
  std::string description;  // one clause
  bool has_value = false;   // the next word belongs to it
  WordKind kind = WordKind::kAny;
  std::vector<std::string> words;  // of kWords
  bool is_list = false;            // several of them may stand with commas between
};

struct CompletionVerb {
  std::string name;     // "tune", "db merge"
  std::string summary;  // one line
  std::vector<CompletionOption> options;
  WordKind operand = WordKind::kAny;
  std::vector<std::string> operand_words;  // of kWords
};

// All that can be completed: every verb with its options, and help and version.
std::vector<CompletionVerb> completion_verbs(const std::vector<Verb>& verbs);

// Shells that have a script: "bash", "zsh", "fish".
const std::vector<std::string>& completion_shells();

// The script for one of completion_shells(); throws Error(kUsage) for another.
std::string completion_script(std::string_view shell, const std::vector<CompletionVerb>& verbs);

}  // namespace vitune
