// cli/main.cpp -- The vitune command: finds the verb, runs it, turns errors into exit codes.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/arguments/device_probe.h"
#include "cli/arguments/session.h"
#include "cli/output/lines.h"
#include "cli/output/text.h"
#include "cli/signals.h"
#include "cli/verbs/man_page.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/compile_pool.h"
#include "probe/ceilings.h"
#include "tuner/worker/bench_worker.h"

namespace vitune {
namespace {

constexpr int kUsageStatus = 2;

int run_worker(const std::vector<std::string>& arguments) {
  if (arguments[0] == "--worker=compile" && arguments.size() == 1) return run_compile_worker();
  if (arguments[0] == "--worker=devices" && arguments.size() == 1) return run_device_worker();
  if (arguments[0] == "--worker=bench" && arguments.size() == 2) {
    return run_bench_worker(
        static_cast<int>(parse_integer(arguments[1], 0, 1023, "a GPU's ordinal")));
  }
  if (arguments[0] == "--worker=ceilings" && arguments.size() == 2) {
    return run_ceiling_worker(
        static_cast<int>(parse_integer(arguments[1], 0, 1023, "a GPU's ordinal")));
  }
  throw Error(ErrorCode::kUsage,
              "this --worker is not known; workers are started by vitune itself");
}

// As wide as the terminal, within what can be read.
std::string filled(const std::string& text, std::size_t indent = 0) {
  return fill_text(text, help_columns(), indent);
}

std::string verb_line(const std::string& name, const std::string& summary) {
  return filled(formatted("  {:<12} {}\n", name, summary), 15);
}

std::string overview() {
  std::string text = filled(
      "vitune finds, keeps and serves the fastest kernel for each problem of a vision "
      "transformer.\n");
  text += "\nUsage: vitune <verb> [options]\n\nVerbs:\n";
  for (const Verb& verb : all_verbs()) text += verb_line(verb.name, verb.summary);
  text += verb_line("help", "this text, or that of a verb: vitune help tune");
  text += verb_line("version", "the version");
  text += "\n" + filled(
                     "Start with 'vitune doctor' (is all in place?) and 'vitune tune' "
                     "(ViT-B/16 on this GPU).\n");
  text += "Exit codes:\n";
  for (const auto& [code, meaning] : exit_codes()) {
    text += filled(formatted("  {:<5}{}\n", code, meaning), 7);
  }
  return text;
}

// The verb that `arguments` start with, and how many of them its name takes.
const Verb* find_verb(const std::vector<Verb>& verbs, const std::vector<std::string>& arguments,
                      std::size_t& words) {
  for (const Verb& verb : verbs) {
    const std::size_t space = verb.name.find(' ');
    words = space == std::string::npos ? 1 : 2;
    if (arguments.size() < words) continue;
    if (words == 1 && arguments[0] == verb.name) return &verb;
    if (words == 2 && arguments[0] + " " + arguments[1] == verb.name) return &verb;
  }
  words = 0;
  return nullptr;
}

// The verbs that share the first word of their name: "db" -> those of the database.
std::string group_overview(const std::vector<Verb>& verbs, const std::string& group) {
  std::string lines;
  for (const Verb& verb : verbs) {
    if (verb.name.starts_with(group + " ")) lines += verb_line(verb.name, verb.summary);
  }
  return lines.empty() ? lines : formatted("Usage: vitune {} <verb> [options]\n\n{}", group, lines);
}

// Words that have no help of their own.
bool is_in_overview_only(const std::string& word) {
  return word == "help" || word == "--help" || word == "-h" || word == "version" ||
         word == "--version";
}

[[noreturn]] void throw_unknown_verb(const std::vector<Verb>& verbs,
                                     const std::vector<std::string>& arguments) {
  std::vector<std::string> names, group;
  for (const Verb& verb : verbs) {
    names.push_back(verb.name);
    if (verb.name.starts_with(arguments[0] + " "))
      group.push_back(verb.name.substr(arguments[0].size() + 1));
  }
  if (!group.empty()) {
    const auto nearest = arguments.size() > 1 ? nearest_name(arguments[1], group) : std::nullopt;
    throw Error(ErrorCode::kUsage,
                formatted("'vitune {}' needs one of: {}{}", arguments[0], joined(group, ", "),
                          nearest ? "; did you mean " + *nearest + "?" : ""));
  }
  names.insert(names.end(), {"help", "version"});
  std::erase(names, arguments[0]);  // "db stats" as one word, or a word behind "help"
  const auto nearest = nearest_name(arguments[0], names);
  throw Error(ErrorCode::kUsage,
              formatted("'{}' is not a verb of vitune{} See 'vitune help'", arguments[0],
                        nearest ? formatted("; did you mean '{}'?", *nearest) : "."));
}

// Prints through a console, so that a full disk or a closed pipe is noticed.
int print_text(std::string_view text) {
  Console console{ConsoleOptions{}};
  console.print(text);
  return console.finish();
}

int run_verb(const Verb& verb, const std::vector<std::string>& arguments) {
  const StopSignals signals;
  auto session = parse_session(verb, arguments, signals.stop());
  if (!session) return print_text(verb_help(verb));
  const int status = verb.run(*session);
  const int written = session->console.finish();
  return status == 0 ? written : status;
}

// "vitune -q --db x.db tune": common options in front of the verb belong behind it.
void put_verb_first(std::vector<std::string>& arguments) {
  constexpr std::array<std::string_view, 7> kSwitches = {"-q",     "--quiet", "-v",  "--verbose",
                                                         "--json", "--csv",   "--md"};
  constexpr std::array<std::string_view, 4> kValues = {"--db", "--color", "--data-dir",
                                                       "--trust-owner"};
  std::size_t verb = 0;
  while (verb < arguments.size() && arguments[verb].starts_with('-')) {
    const std::string_view option = arguments[verb];
    const std::string_view name = option.substr(0, option.find('='));
    if (std::ranges::find(kSwitches, option) != kSwitches.end()) {
      ++verb;
    } else if (std::ranges::find(kValues, name) != kValues.end()) {
      verb += name.size() < option.size() ? 1 : 2;
    } else {
      return;
    }
  }
  if (verb >= arguments.size()) return;
  std::size_t words = 0;
  const std::vector<std::string> behind(arguments.begin() + static_cast<std::ptrdiff_t>(verb),
                                        arguments.end());
  find_verb(all_verbs(), behind, words);
  const auto end =
      arguments.begin() + static_cast<std::ptrdiff_t>(
                              std::min(verb + std::max<std::size_t>(words, 1), arguments.size()));
  std::rotate(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(verb), end);
}

int run_command(std::vector<std::string> arguments) {
  if (arguments.empty()) {
    std::fputs(overview().c_str(), stderr);
    return kUsageStatus;
  }
  if (arguments[0].starts_with("--worker")) return run_worker(arguments);
  if (arguments[0] == "version" || arguments[0] == "--version") {
    return print_text(formatted("vitune {}\n", VITUNE_VERSION));
  }
  put_verb_first(arguments);
  const auto asks_for_help = [](const std::string& word) {
    return word == "--help" || word == "-h";
  };
  const bool help = arguments[0] == "help" || asks_for_help(arguments[0]);
  if (help) arguments.erase(arguments.begin());
  if (arguments.empty() || (help && is_in_overview_only(arguments[0]))) {
    return print_text(overview());
  }
  const std::vector<Verb> verbs = all_verbs();
  std::size_t words = 0;
  const Verb* verb = find_verb(verbs, arguments, words);
  if (verb == nullptr) {
    const std::string group = group_overview(verbs, arguments[0]);
    const bool wants_group = arguments.size() == 1 ? help : asks_for_help(arguments[1]);
    if (!group.empty() && wants_group) return print_text(group);
    throw_unknown_verb(verbs, arguments);
  }
  if (help) return print_text(verb_help(*verb));
  arguments.erase(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(words));
  return run_verb(*verb, arguments);
}

// Else the next file to be opened (a database, a worker's socket) would get what is written there.
// Each is opened the way that makes its use an error, but for messages that nobody can read.
void hold_places_of_closed_streams() {
  constexpr int kModes[] = {O_WRONLY, O_RDONLY, O_WRONLY};
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (fcntl(stream, F_GETFD) != -1) continue;
    const int fd = open("/dev/null", kModes[stream]);
    if (fd < 0 || fd == stream) continue;
    dup2(fd, stream);
    close(fd);
  }
}

// Explains an error of the system where nobody on the way knew its purpose.
std::string explained(const std::system_error& error) {
  const std::string refused = formatted("the system refused: {}", error.what());
  if (error.code() == std::errc::resource_unavailable_try_again) {
    return refused +
           "; it gives this user no more threads or processes: end other programs, or raise the "
           "limit (`ulimit -u`; in a container its pids limit)";
  }
  if (error.code() == std::errc::too_many_files_open ||
      error.code() == std::errc::too_many_files_open_in_system) {
    return refused + "; raise the limit of open files (`ulimit -n`)";
  }
  return refused;
}

// Asks for no memory.
int report_lack_of_memory() {
  constexpr std::string_view kLine =
      "vitune: error: the machine has too little memory for this; try fewer problems or --jobs 1\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kLine.data(), kLine.size());
  return 1;
}

std::atomic<bool> memory_was_refused = false;

[[noreturn]] void note_refused_memory() {
  memory_was_refused = true;
  throw std::bad_alloc();
}

// nlohmann's values ask for memory when they are destroyed, and a destructor cannot say that there
// is none: what ends the program then is told as any other lack of memory. Where there is none
// for an exception either, not even in the runtime's own reserve, it ends here without one.
[[noreturn]] void end_of_program() {
  try {
    const std::exception_ptr error = std::current_exception();
    if (error == nullptr && memory_was_refused) ::_exit(report_lack_of_memory());
    if (error != nullptr) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    ::_exit(report_lack_of_memory());
  } catch (...) {  // a defect: its core is wanted
  }
  std::abort();
}

// One line for people; the message already says what was tried and what to do next.
int report(const char* message, int status) {
  constexpr std::string_view kHead = "vitune: error: ";
  const std::string line = formatted("{}{}\n", kHead, shown_message(message, kHead.size()));
  std::fputs(line.c_str(), stderr);
  return status;
}

}  // namespace

}  // namespace vitune

#ifdef VITUNE_ONE_LIBRARY  // cli/start.cpp calls it
extern "C" __attribute__((visibility("default"))) int vitune_command(int argc, char** argv) {
#else
int main(int argc, char** argv) {
#endif
  using namespace vitune;
  std::set_terminate(end_of_program);
  std::set_new_handler(note_refused_memory);
  hold_places_of_closed_streams();
  try {
    try {
      return run_command({argv + std::min(argc, 1), argv + argc});
    } catch (const Error& error) {
      return report(error.what(), exit_status(error.code()));
    } catch (const std::system_error& error) {
      return report(explained(error).c_str(), 1);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      return report(error.what(), 1);
    }
  } catch (const std::bad_alloc&) {  // of the command, or of its last words
    return report_lack_of_memory();
  }
}
