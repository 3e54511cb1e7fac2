// cli/verbs/completion.cpp -- What can be completed, and the verb that prints the scripts.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/completion.h"

#include <algorithm>
#include <map>
#include <set>

#include "catalogue/problem_set.h"
#include "cli/arguments/verb_options.h"
#include "core/device_info.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/operator.h"

namespace vitune {
namespace {

namespace po = boost::program_options;

// Words that may follow --device, by the placeholder of the verb.
std::vector<std::string> device_words(const std::string& placeholder) {
  if (placeholder == "WHICH") return {"auto", "all", "0", "replay:h200"};
  if (placeholder == "GPUS") return {"auto", "all", "0"};
  if (placeholder == "GPU") return {"0", "replay:h200"};
  return {"0"};
}

// Options whose value is one of a few words; the others are told by their placeholder.
std::vector<std::string> words_of(const std::string& option, const std::string& placeholder) {
  if (option == "device" || option == "devices") return device_words(placeholder);
  const std::map<std::string, std::vector<std::string>> known = {
      {"arch", supported_architectures()},
      {"as", asked_by_names()},
      {"color", {"auto", "always", "never"}},
      {"dtype", {"bf16", "fp16"}},
      {"effort", {"quick", "normal", "thorough"}},
      {"kind", {"cold", "warm", "both"}},
      {"objective", {"cold", "warm"}},
      {"operator", operator_names()},
      {"preset", preset_names()},
      {"strategy", {"local", "random", "exhaustive"}},
  };
  const auto found = known.find(option);
  return found == known.end() ? std::vector<std::string>{} : found->second;
}

WordKind kind_of(const std::string& placeholder) {
  if (placeholder.find("MODEL") != std::string::npos) return WordKind::kModel;
  if (placeholder.find("FILE") != std::string::npos) return WordKind::kFile;
  if (placeholder.find("DIR") != std::string::npos) return WordKind::kFolder;
  return WordKind::kAny;
}

// Lists have room for a few words: the text up to the first clause's end.
std::string first_clause(const std::string& text) {
  const std::size_t end = std::min(text.find("; "), text.find(", for example"));
  return text.substr(0, end);
}

CompletionOption completion_option(const po::option_description& option) {
  CompletionOption result;
  result.name = option.long_name();
  // "-q" or "--quiet": Program_options has no other way to ask for the letter.
  const std::string shown =
      option.canonical_display_name(po::command_line_style::allow_dash_for_short);
  if (shown.size() == 2 && shown[0] == '-') result.letter = shown.substr(1);
  result.description = first_clause(option.description());
  result.has_value = option.semantic()->max_tokens() > 0;
  if (!result.has_value) return result;
  const std::string parameter = option.format_parameter();  // "WHEN (=auto)"
  result.words = words_of(result.name, parameter.substr(0, parameter.find(' ')));
  result.is_list = parameter.find("LIST") != std::string::npos;
  result.kind = result.words.empty() ? kind_of(parameter) : WordKind::kWords;
  return result;
}

CompletionVerb completion_verb_of(const Verb& verb) {
  CompletionVerb result{verb.name, verb.summary, {}, kind_of(verb.operands), {}};
  const VerbOptions options = verb_options(verb);
  for (const auto* group : {&options.own, &options.common}) {
    for (const auto& option : group->options()) {
      result.options.push_back(completion_option(*option));
    }
  }
  if (verb.name == "completion") {
    result.operand = WordKind::kWords;
    result.operand_words = completion_shells();
  }
  return result;
}

void describe_completion(po::options_description&) {}

int run_completion(Session& session) {
  if (session.operands.size() != 1) {
    throw Error(ErrorCode::kUsage,
                formatted("name one shell: {}", joined(completion_shells(), ", ")));
  }
  session.refuse({"json", "csv", "md"}, "does not go with 'completion', which prints a script");
  session.console.print(completion_script(session.operands[0], completion_verbs(all_verbs())));
  return 0;
}

}  // namespace

std::vector<CompletionVerb> completion_verbs(const std::vector<Verb>& verbs) {
  std::vector<CompletionVerb> result;
  std::set<std::string> first_words = {"version"};
  for (const Verb& verb : verbs) {
    result.push_back(completion_verb_of(verb));
    first_words.insert(verb.name.substr(0, verb.name.find(' ')));
  }
  result.push_back({"help", "The verbs, or the options of one", {}, WordKind::kWords, {}});
  result.back().operand_words.assign(first_words.begin(), first_words.end());
  result.push_back({"version", "The version", {}, WordKind::kAny, {}});
  return result;
}

const std::vector<std::string>& completion_shells() {
  static const std::vector<std::string> kShells = {"bash", "zsh", "fish"};
  return kShells;
}

Verb completion_verb() {
  return {"completion",
          "Print the completion script of a shell",
          "bash|zsh|fish",
          "An installed vitune has its scripts where the shells look for them. Otherwise:\n"
          "  bash   source <(vitune completion bash)        # in ~/.bashrc\n"
          "  zsh    vitune completion zsh > <a folder of $fpath>/_vitune\n"
          "  fish   vitune completion fish > ~/.config/fish/completions/vitune.fish",
          describe_completion,
          run_completion,
          true};
}

}  // namespace vitune
