// cli/verbs/man_page.cpp -- Writes vitune(1) and the verb that prints it.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/man_page.h"

#include <sstream>

#include "catalogue/problem_set.h"
#include "cli/arguments/verb_options.h"
#include "cli/verbs/cmd_compare.h"
#include "core/format.h"
#include "vitune/vitune.h"

namespace vitune {
namespace {

namespace po = boost::program_options;
using Pairs = std::vector<std::pair<std::string, std::string>>;

// Text that roff prints as it is, wherever it stands in a line.
std::string plain(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else if (c == '\n') {
      result += ' ';
    } else {
      result += c;
    }
  }
  return result;
}

// A line of text; one that begins like a request is guarded.
std::string line(const std::string& text) {
  const bool request = text.starts_with('.') || text.starts_with('\'');
  return (request ? "\\&" : "") + text + "\n";
}

std::string bold(std::string_view text) { return "\\fB" + plain(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + plain(text) + "\\fR"; }

std::string heading(const char* macro, std::string_view text) {
  std::string argument;  // quotes end a macro's argument
  for (const char c : plain(text)) argument += c == '"' ? std::string("\\(dq") : std::string(1, c);
  return formatted(".{} \"{}\"\n", macro, argument);
}

std::string tagged(const std::string& tag, std::string_view text) {
  return ".TP\n" + line(tag) + line(plain(text));
}

std::string list(const Pairs& pairs) {
  std::string text;
  for (const auto& [name, meaning] : pairs) text += tagged(bold(name), meaning);
  return text;
}

// Prose is filled; lines that are indented are examples and keep their breaks.
std::string notes(const std::string& text) {
  std::string result;
  bool example = false;
  std::istringstream lines(text);
  for (std::string each; std::getline(lines, each);) {
    const bool indented = each.starts_with("  ");
    if (indented != example) result += indented ? ".RS 4\n.nf\n" : ".fi\n.RE\n";
    example = indented;
    result += line(plain(indented ? each.substr(2) : each));
  }
  return result + (example ? ".fi\n.RE\n" : "");
}

std::string option_text(const po::option_description& option) {
  std::string tag = bold("--" + option.long_name());
  const std::string shown =
      option.canonical_display_name(po::command_line_style::allow_dash_for_short);
  if (shown.size() == 2 && shown[0] == '-') tag = bold(shown) + ", " + tag;
  if (option.semantic()->max_tokens() == 0) return tagged(tag, option.description() + ".");
  // "WHEN (=auto)"
  const std::string parameter = option.format_parameter();
  const std::size_t mark = parameter.find(" (=");
  tag += " " + italic(parameter.substr(0, mark));
  std::string text = option.description();
  if (mark != std::string::npos) {
    text += "; default: " + parameter.substr(mark + 3, parameter.size() - mark - 4);
  }
  return tagged(tag, text + ".");
}

std::string options_text(const po::options_description& options) {
  std::string text;
  for (const auto& option : options.options()) text += option_text(*option);
  return text;
}

std::string verb_text(const Verb& verb) {
  std::string text = heading("SS", "vitune " + verb.name + " [options]" +
                                       (verb.operands.empty() ? "" : " " + verb.operands));
  text += line(plain(verb.summary + "."));
  text += options_text(verb_options(verb).own);
  return verb.notes.empty() ? text : text + ".PP\n" + notes(verb.notes);
}

Pairs presets() {
  Pairs pairs;
  for (const std::string& name : preset_names()) {
    pairs.emplace_back(name, preset_description(name) + ".");
  }
  return pairs;
}

Pairs statuses() {
  Pairs pairs;
  for (const auto& [code, meaning] : exit_codes()) {
    pairs.emplace_back(formatted("{}", code), meaning + ".");
  }
  return pairs;
}

// The variables of docs/environment.md.
Pairs variables() {
  return {
      {"VITUNE_DB", "The database file; behind colons read-only ones below it, FILE:FILE."},
      {"VITUNE_CACHE_DIR", "Folder of vitune.db, if VITUNE_DB is not set."},
      {"VITUNE_LOG_LEVEL", "debug, info, warning or error; -v and -q win over it."},
      {"VITUNE_MISS", "For libvitune: what serves a problem without a winner of its own."},
      {"VITUNE_CAPTURE", "For libvitune: a file to write each new problem to."},
      {"VITUNE_LOG_CMD",
       "For libvitune: if set, the first call of each problem prints the command that measures "
       "it."},
      {"VITUNE_CHECK",
       "For vitune in PyTorch: 1 reads offsets of packed sequences back and refuses wrong ones."},
      {"VITUNE_DISABLE", "For libvitune: if set, every call is refused."},
      {"XDG_CACHE_HOME, HOME", "Where the database is by default."},
      {"VITUNE_CUBLASLT",
       "The file of libcublasLt that plans call, and no other: an absolute path."},
      {"CUDA_HOME, CUDA_PATH", "A toolkit whose lib64 or lib has libnvrtc and libcublasLt."},
      {"NO_COLOR", "If set, no colour on stderr."},
  };
}

Pairs files() {
  return {
      {"$XDG_CACHE_HOME/vitune/vitune.db", "The database, else ~/.cache/vitune/vitune.db."},
      {"PREFIX/share/vitune/", "Presets, models, shipped winners and recordings."},
  };
}

void describe_man_page(po::options_description&) {}

int run_man_page(Session& session) {
  session.refuse({"json", "csv", "md"}, "does not go with 'man', which prints a page for man(1)");
  session.console.print(man_page(all_verbs()));
  return 0;
}

}  // namespace

std::vector<std::pair<int, std::string>> exit_codes() {
  return {{0, "ok"},
          {1, "failure"},
          {2, "usage"},
          {3, "no usable GPU"},
          {4, "verification failed"},
          {5, "database locked, damaged or newer"},
          {kRegressionStatus, "slower than the threshold of vitune compare allows"},
          {130, "interrupted with results saved"}};
}

std::string man_page(const std::vector<Verb>& verbs) {
  std::string text = formatted(
      ".\\\" vitune.1 -- The manual page; written by 'vitune man'.\n"
      ".TH VITUNE 1 \"\" \"vitune {}.{}.{}\" \"User Commands\"\n",
      VITUNE_VERSION_MAJOR, VITUNE_VERSION_MINOR, VITUNE_VERSION_PATCH);
  text += heading("SH", "NAME") + "vitune \\- autotuned kernels of vision transformers\n";
  text += heading("SH", "SYNOPSIS") + bold("vitune") + " " + italic("verb") + " [" +
          italic("options") + "]\n";
  text += heading("SH", "DESCRIPTION") +
          line(plain("vitune finds, keeps and serves the fastest kernel for each "
                     "problem of a vision transformer on the GPU at hand. Results go to stdout, "
                     "everything else to stderr."));
  text += heading("SH", "VERBS");
  for (const Verb& verb : verbs) text += verb_text(verb);
  text += heading("SS", "vitune help [VERB]") + "The verbs, or the options of one.\n";
  text += heading("SS", "vitune version") + "The version.\n";
  text += heading("SH", "COMMON OPTIONS") + options_text(verb_options(verbs.front()).common);
  text += heading("SH", "PRESETS") + list(presets());
  text += heading("SH", "EXIT STATUS") + list(statuses());
  text += heading("SH", "ENVIRONMENT") + list(variables());
  return text + heading("SH", "FILES") + list(files());
}

Verb man_verb() {
  return {"man",
          "Print the manual page",
          "",
          "An installed vitune has it as vitune(1). To read it without: vitune man | man -l -",
          describe_man_page,
          run_man_page,
          true};
}

}  // namespace vitune
