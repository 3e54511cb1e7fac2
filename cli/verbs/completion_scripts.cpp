// cli/verbs/completion_scripts.cpp -- Writes what can be completed in the words of bash, zsh and
// fish.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/completion.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

using Verbs = std::vector<CompletionVerb>;
// Words with what they do.
using Choices = std::vector<std::pair<std::string, std::string>>;

// `text` with `mark` before each of `special`.
std::string escaped(std::string_view text, std::string_view special, std::string_view mark) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) result += mark;
    result += c;
  }
  return result;
}

// 'text', as bash and zsh quote it.
std::string shell_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string spaced(const std::vector<std::string>& words) { return joined(words, " "); }

// "db" of "db merge", or nothing.
std::string group_of(const CompletionVerb& verb) {
  const std::size_t space = verb.name.find(' ');
  return space == std::string::npos ? "" : verb.name.substr(0, space);
}

// Words that may stand first, each once.
Choices first_words(const Verbs& verbs) {
  Choices words;
  for (const CompletionVerb& verb : verbs) {
    const std::string group = group_of(verb);
    if (group.empty()) {
      words.emplace_back(verb.name, verb.summary);
    } else if (words.empty() || words.back().first != group) {
      words.emplace_back(group, "Verbs of one kind: vitune " + group + " --help");
    }
  }
  return words;
}

// Group -> its second words, in order.
std::vector<std::pair<std::string, Choices>> groups_of(const Verbs& verbs) {
  std::vector<std::pair<std::string, Choices>> groups;
  for (const CompletionVerb& verb : verbs) {
    const std::string group = group_of(verb);
    if (group.empty()) continue;
    if (groups.empty() || groups.back().first != group) groups.push_back({group, {}});
    groups.back().second.emplace_back(verb.name.substr(group.size() + 1), verb.summary);
  }
  return groups;
}

std::string names_of(const Choices& words) {
  std::vector<std::string> names;
  for (const auto& word : words) names.push_back(word.first);
  return spaced(names);
}

// --- bash

constexpr const char* kBashHead =
    R"bash(# bash completion of vitune; written by 'vitune completion bash'.
_vitune_words() { COMPREPLY=($(compgen -W "$1" -- "$cur")) || :; }
_vitune_list() {
  local head=
  [[ $cur == *,* ]] && head=${cur%,*},
  COMPREPLY=($(compgen -P "$head" -W "$1" -- "${cur##*,}"))
}
_vitune_models() { _vitune_words "$("${COMP_WORDS[0]/#\~/$HOME}" models --names 2>/dev/null)"; }
_vitune_paths() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen "$1" -- "$cur")
}
_vitune() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}
  COMPREPLY=()
  # Readline cuts --option=value at its sign.
  if [[ $cur == '=' ]]; then
    cur=
  elif [[ $prev == '=' ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
)bash";

std::string bash_action(WordKind kind, const std::vector<std::string>& words, bool is_list) {
  switch (kind) {
    case WordKind::kAny:
      return ":";
    case WordKind::kWords:
      return (is_list ? "_vitune_list " : "_vitune_words ") + shell_quoted(spaced(words));
    case WordKind::kFile:
      return "_vitune_paths -f";
    case WordKind::kFolder:
      return "_vitune_paths -d";
    case WordKind::kModel:
      return "_vitune_models";
  }
  return ":";
}

std::string bash_spellings(const CompletionOption& option) {
  return "--" + option.name + (option.letter.empty() ? "" : "|-" + option.letter);
}

std::string bash_verb(const CompletionVerb& verb) {
  std::vector<std::string> dashed;
  std::string text = formatted("    {})\n      case $prev in\n", shell_quoted(verb.name));
  for (const CompletionOption& option : verb.options) {
    dashed.push_back("--" + option.name);
    if (!option.has_value) continue;
    text += formatted("        {}) {}; return ;;\n", bash_spellings(option),
                      bash_action(option.kind, option.words, option.is_list));
  }
  text += formatted("      esac\n      [[ $cur == -* ]] && _vitune_words {} && return\n",
                    shell_quoted(spaced(dashed)));
  return text + formatted("      {} ;;\n", bash_action(verb.operand, verb.operand_words, false));
}

std::string bash_script(const Verbs& verbs) {
  std::string text = kBashHead;
  text += formatted("  ((COMP_CWORD == 1)) && _vitune_words {} && return\n",
                    shell_quoted(names_of(first_words(verbs))));
  for (const auto& [group, words] : groups_of(verbs)) {
    text += formatted("  if [[ $verb == {} ]]; then\n", group);
    text += formatted("    ((COMP_CWORD == 2)) && _vitune_words {} && return\n",
                      shell_quoted(names_of(words)));
    text += "    verb=\"$verb ${COMP_WORDS[2]}\"\n  fi\n";
  }
  text += "  case $verb in\n";
  for (const CompletionVerb& verb : verbs) text += bash_verb(verb);
  return text + "  esac\n}\ncomplete -F _vitune vitune\n";
}

// --- zsh

std::string zsh_action(WordKind kind, const std::vector<std::string>& words, bool is_list) {
  switch (kind) {
    case WordKind::kAny:
      return " ";
    case WordKind::kWords: {
      std::vector<std::string> plain;
      for (const std::string& word : words) plain.push_back(escaped(word, ":", "\\"));
      return is_list ? "_sequence compadd - " + spaced(plain) : "(" + spaced(plain) + ")";
    }
    case WordKind::kFile:
      return "_files";
    case WordKind::kFolder:
      return "_files -/";
    case WordKind::kModel:
      return "_vitune_models";
  }
  return " ";
}

std::string zsh_option(const CompletionOption& option) {
  const std::string description = "[" + escaped(option.description, "[]:\\", "\\") + "]";
  const std::string long_form = "--" + option.name, letter = "-" + option.letter;
  std::string rest = description;
  if (option.has_value) {
    rest += formatted(":{}:{}", option.name, zsh_action(option.kind, option.words, option.is_list));
  }
  const std::string sign = option.has_value ? "=" : "";
  if (option.letter.empty()) {
    // A star: what is given twice is for the command to judge.
    return shell_quoted((option.has_value ? "*" : "") + long_form + sign + rest);
  }
  if (option.has_value) return formatted("'*'{{{}+,{}=}}{}", letter, long_form, shell_quoted(rest));
  return formatted("'({} {})'{{{},{}}}{}", letter, long_form, letter, long_form,
                   shell_quoted(rest));
}

std::string zsh_described(const Choices& words) {
  std::string text = "(\n";
  for (const auto& [word, summary] : words) {
    text += formatted("      {}\n", shell_quoted(word + ":" + escaped(summary, ":", "\\")));
  }
  return text + "    )\n";
}

std::string zsh_verb(const CompletionVerb& verb) {
  std::string text = formatted("    {}) _arguments -s -S", shell_quoted(verb.name));
  for (const CompletionOption& option : verb.options) text += " \\\n      " + zsh_option(option);
  return text + formatted(" \\\n      {} ;;\n",
                          shell_quoted("*:argument:" +
                                       zsh_action(verb.operand, verb.operand_words, false)));
}

std::string zsh_script(const Verbs& verbs) {
  std::string text =
      "#compdef vitune\n# zsh completion of vitune; written by 'vitune completion zsh'.\n"
      "_vitune_models() {\n  local -a names\n"
      "  names=(${(f)\"$(${vitune_program/#\\~/$HOME} models --names 2>/dev/null)\"})\n"
      "  compadd -a names\n}\n"
      "_vitune() {\n  local vitune_program=$words[1] verb=$words[2]\n  local -a choices\n"
      "  if ((CURRENT == 2)); then\n    choices=";
  text += zsh_described(first_words(verbs));
  text += "    _describe -t verbs verb choices\n    return\n  fi\n";
  for (const auto& [group, words] : groups_of(verbs)) {
    text += formatted("  if [[ $verb == {} ]]; then\n", group);
    text += formatted("    if ((CURRENT == 3)); then\n    choices={}", zsh_described(words));
    text += "    _describe -t verbs verb choices\n    return\n    fi\n";
    text += "    verb=\"$verb $words[3]\"\n    shift words\n    ((CURRENT--))\n  fi\n";
  }
  text += "  shift words\n  ((CURRENT--))\n  case $verb in\n";
  for (const CompletionVerb& verb : verbs) text += zsh_verb(verb);
  // Autoloaded, the file is the body of _vitune; read by source, it registers it.
  return text +
         "  esac\n}\nif [[ $funcstack[1] == _vitune ]]; then\n  _vitune \"$@\"\nelse\n"
         "  compdef _vitune vitune\nfi\n";
}

// --- fish

std::string fish_quoted(std::string_view text) { return "'" + escaped(text, "'\\", "\\") + "'"; }

std::string fish_action(WordKind kind, const std::vector<std::string>& words) {
  switch (kind) {
    case WordKind::kAny:
      return " -x";
    case WordKind::kWords:  // also behind a comma: sm_80,sm_90
      return " -x -a " + fish_quoted(formatted(R"((__fish_complete_list , "printf '%s\n' {}"))",
                                               spaced(words)));
    case WordKind::kFile:
      return " -r -F";
    case WordKind::kFolder:
      return " -x -a '(__fish_complete_directories)'";
    case WordKind::kModel:
      return " -x -a '(__vitune_models)'";
  }
  return " -x";
}

std::string fish_operand(const std::string& condition, const CompletionVerb& verb) {
  switch (verb.operand) {
    case WordKind::kWords:
      return formatted("{} -a {}\n", condition, fish_quoted(spaced(verb.operand_words)));
    case WordKind::kModel:
      return condition + " -a '(__vitune_models)'\n";
    case WordKind::kFile:
      return condition + " -F\n";
    default:
      return "";
  }
}

std::string fish_verb(const CompletionVerb& verb) {
  const std::string condition =
      formatted("complete -c vitune -n {}", fish_quoted("__vitune_verb " + verb.name));
  std::string text;
  for (const CompletionOption& option : verb.options) {
    text += formatted("{} -l {}{}{} -d {}\n", condition, option.name,
                      option.letter.empty() ? "" : " -s " + option.letter,
                      option.has_value ? fish_action(option.kind, option.words) : "",
                      fish_quoted(option.description));
  }
  return text + fish_operand(condition, verb);
}

std::string fish_script(const Verbs& verbs) {
  std::vector<std::string> groups;
  for (const auto& group : groups_of(verbs)) groups.push_back(group.first);
  std::string text = formatted(
      "# fish completion of vitune; written by 'vitune completion fish'.\n"
      "function __vitune_no_verb\n  test (count (commandline -opc)) -lt 2\nend\n"
      "function __vitune_verb\n  set -l words (commandline -opc)\n  set -l verb $words[2]\n"
      "  if contains -- \"$verb\" {}; and test (count $words) -ge 3\n"
      "    set verb \"$verb $words[3]\"\n  end\n  test \"$verb\" = \"$argv\"\nend\n"
      "function __vitune_models\n  set -l words (commandline -opc)\n"
      "  eval $words[1] models --names 2>/dev/null\nend\ncomplete -c vitune -f\n",
      spaced(groups));
  for (const auto& [word, summary] : first_words(verbs)) {
    text += formatted("complete -c vitune -n __vitune_no_verb -a {} -d {}\n", word,
                      fish_quoted(summary));
  }
  for (const auto& [group, words] : groups_of(verbs)) {
    for (const auto& [word, summary] : words) {
      text += formatted("complete -c vitune -n '__vitune_verb {}' -a {} -d {}\n", group, word,
                        fish_quoted(summary));
    }
  }
  for (const CompletionVerb& verb : verbs) text += fish_verb(verb);
  return text;
}

}  // namespace

std::string completion_script(std::string_view shell, const std::vector<CompletionVerb>& verbs) {
  if (shell == "bash") return bash_script(verbs);
  if (shell == "zsh") return zsh_script(verbs);
  if (shell == "fish") return fish_script(verbs);
  throw Error(ErrorCode::kUsage, formatted("there is no completion for the shell '{}': use {}",
                                           shell, joined(completion_shells(), ", ")));
}

}  // namespace vitune
