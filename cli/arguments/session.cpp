// cli/arguments/session.cpp -- Arguments through Boost.Program_options, with one kind of error
// message.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/session.h"

#include <unistd.h>

#include <sstream>

#include "cli/arguments/verb_options.h"
#include "cli/output/lines.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

namespace po = boost::program_options;

void add_common_options(po::options_description& options) {
  add_value(options, "db", "FILE",
            "the database; default: the first in VITUNE_DB, else vitune.db in VITUNE_CACHE_DIR, "
            "else the user's cache directory");
  add_value(options, "trust-owner", "UID",
            "also use databases that this user owns: who writes them decides what the GPU runs");
  add_value(options, "data-dir", "DIR",
            "presets, shipped winners and recordings; default: found beside the program");
  add_switch(options, "json", "print one JSON document");
  add_switch(options, "csv", "print comma-separated values");
  add_switch(options, "md", "print a Markdown table");
  add_switch(options, "quiet,q", "no progress and no notes; warnings and errors only");
  add_switch(options, "verbose,v", "more notes");
  add_value(options, "color", "WHEN", "colours: auto, always or never", "auto");
  add_switch(options, "help,h", "print this help");
}

po::options_description group(const char* title, std::size_t width) {
  const auto columns = static_cast<unsigned>(width);
  return po::options_description(title, columns, columns * 16 / 25);
}

VerbOptions options_within(const Verb& verb, std::size_t width) {
  VerbOptions options{group("Options", width), group("Common options", width)};
  if (verb.options) verb.options(options.own);
  if (verb.prints_script) {
    add_switch(options.common, "help,h", "print this help");
  } else {
    add_common_options(options.common);
  }
  return options;
}

// All options that are parsed; for a verb that prints a script also the options that it refuses by
// name.
po::options_description all_options(const Verb& verb) {
  po::options_description all;
  if (verb.options) verb.options(all);
  add_common_options(all);
  return all;
}

// "-p [ --problem ] TEXT   a problem" as it is written everywhere else: "-p, --problem TEXT".
std::string usual_notation(const std::string& help) {
  constexpr std::string_view kOpen = " [ --", kClose = " ]";
  std::string text;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line); text += line + "\n") {
    const std::size_t open = line.find(kOpen);
    if (open != 4 || line[2] != '-') continue;  // "  -p [ --"
    const std::size_t close = line.find(kClose, open);
    line.erase(close, kClose.size());
    line.replace(open, kOpen.size(), ", --");
    const std::size_t gap = line.find("  ", open + 2);
    if (gap != std::string::npos) line.insert(gap, kOpen.size() + kClose.size() - 4, ' ');
  }
  return text;
}

std::string unknown_option_text(const Verb& verb, const po::options_description& options,
                                const std::string& name) {
  std::vector<std::string> known;
  for (const auto& option : options.options()) known.push_back("--" + option->long_name());
  const auto nearest = nearest_name(name.starts_with("--") ? name : "--" + name, known);
  return formatted("'{}' is not an option of 'vitune {}'{}", name, verb.name,
                   nearest ? formatted("; did you mean {}?", *nearest) : "");
}

po::variables_map parse_values(const Verb& verb, const po::options_description& visible,
                               const std::vector<std::string>& arguments) {
  po::options_description all;
  all.add(visible).add_options()("operand", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("operand", -1);
  const std::string hint = formatted("; see 'vitune {} --help'", verb.name);
  try {
    po::variables_map values;
    const int style =
        po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(
        po::command_line_parser(arguments).options(all).positional(positional).style(style).run(),
        values);
    return values;
  } catch (const po::unknown_option& error) {
    throw Error(ErrorCode::kUsage,
                unknown_option_text(verb, visible, error.get_option_name()) + hint);
  } catch (const po::error& error) {
    throw Error(ErrorCode::kUsage, error.what() + hint);
  }
}

OptionValue option_value(const po::variable_value& value) {
  if (const auto* on = boost::any_cast<bool>(&value.value())) return {{}, *on};
  const bool given = !value.defaulted();
  if (const auto* list = boost::any_cast<std::vector<std::string>>(&value.value())) {
    return {*list, given};
  }
  return {{value.as<std::string>()}, given};
}

LogLevel chosen_level(const po::variables_map& values, const Environment& environment) {
  if (values["verbose"].as<bool>()) return LogLevel::kDebug;
  if (values["quiet"].as<bool>()) return LogLevel::kWarning;
  const std::string named = environment.log_level.value_or("info");
  if (named == "debug") return LogLevel::kDebug;
  if (named == "warning") return LogLevel::kWarning;
  if (named == "error") return LogLevel::kError;
  if (named == "info") return LogLevel::kInfo;
  throw Error(ErrorCode::kUsage,
              formatted("VITUNE_LOG_LEVEL '{}' is not one of debug, info, warning, error", named));
}

ConsoleOptions console_options(const po::variables_map& values, const Environment& environment) {
  ConsoleOptions options;
  const bool json = values["json"].as<bool>(), csv = values["csv"].as<bool>(),
             md = values["md"].as<bool>();
  if (json + csv + md > 1) throw Error(ErrorCode::kUsage, "choose one of --json, --csv and --md");
  options.format = json  ? Format::kJson
                   : csv ? Format::kCsv
                   : md  ? Format::kMarkdown
                         : Format::kText;
  const std::string color = values["color"].as<std::string>();
  if (color != "auto" && color != "always" && color != "never") {
    throw Error(ErrorCode::kUsage,
                formatted("--color '{}' is not one of auto, always, never", color));
  }
  const auto colors = [&](int stream) {
    return color == "always" || (color == "auto" && !environment.no_color &&
                                 !environment.dumb_terminal && isatty(stream) == 1);
  };
  options.color = colors(STDERR_FILENO);
  options.color_results = options.format == Format::kText && colors(STDOUT_FILENO);
  options.dumb = environment.dumb_terminal;
  options.level = chosen_level(values, environment);
  return options;
}

// Prose is filled, whatever its lines were; lines that are indented are examples and keep theirs.
std::string filled_notes(const std::string& notes, std::size_t width) {
  std::string text, prose;
  const auto end_prose = [&] {
    if (!prose.empty()) text += fill_text(prose, width);
    prose.clear();
  };
  std::istringstream lines(notes);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  ")) {
      end_prose();
      text += fill_text(line, width, 4);
    } else {
      prose += (prose.empty() ? "" : " ") + line;
    }
  }
  end_prose();
  return text;
}

}  // namespace

bool Session::has(const std::string& option) const {
  const auto found = values.find(option);
  return found != values.end() && found->second.given;
}

std::string Session::text(const std::string& option) const { return values.at(option).texts.at(0); }

std::vector<std::string> Session::texts(const std::string& option) const {
  const auto found = values.find(option);
  return found == values.end() ? std::vector<std::string>{} : found->second.texts;
}

void Session::refuse(std::initializer_list<const char*> options, std::string_view why) const {
  for (const char* option : options) {
    if (has(option)) throw Error(ErrorCode::kUsage, formatted("--{} {}", option, why));
  }
}

VerbOptions verb_options(const Verb& verb) { return options_within(verb, 100); }

std::string verb_help(const Verb& verb) {
  const std::size_t width = help_columns();
  const VerbOptions options = options_within(verb, width);
  std::ostringstream help;
  help << fill_text(formatted("Usage: vitune {} [options]{}{}\n\n{}.\n", verb.name,
                              verb.operands.empty() ? "" : " ", verb.operands, verb.summary),
                    width);
  // The verb's own first, the common ones in a group of their own.
  if (!options.own.options().empty()) help << "\n" << options.own;
  help << "\n" << options.common;
  std::string text = usual_notation(help.str());
  if (!verb.notes.empty()) text += "\n" + filled_notes(verb.notes, width);
  return text;
}

std::optional<Session> parse_session(const Verb& verb, const std::vector<std::string>& arguments,
                                     const std::atomic<bool>& stop) {
  const po::options_description options = all_options(verb);
  po::variables_map values = parse_values(verb, options, arguments);
  if (values["help"].as<bool>()) return std::nullopt;
  std::vector<std::string> operands;
  if (values.count("operand") > 0) operands = values["operand"].as<std::vector<std::string>>();
  if (verb.operands.empty() && !operands.empty()) {
    throw Error(ErrorCode::kUsage,
                formatted("'vitune {}' takes no argument '{}'; see 'vitune {} --help'", verb.name,
                          operands.front(), verb.name));
  }
  const Environment environment = read_environment();
  Console console(console_options(values, environment));
  std::map<std::string, OptionValue> known;
  for (const auto& [name, value] : values) known.emplace(name, option_value(value));
  return Session{std::move(known),
                 std::move(operands),
                 environment,
                 std::move(console),
                 stop,
                 std::filesystem::read_symlink("/proc/self/exe")};
}

}  // namespace vitune
