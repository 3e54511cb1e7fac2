// cli/output/console.h -- Where the command writes: results to stdout, everything else to stderr.
//
// One thread. Results come as a table and as JSON and the user's choice decides which is printed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "cli/output/table.h"
#include "core/log.h"

namespace spdlog {
class logger;
}

namespace vitune {

enum class Format { kText, kJson, kCsv, kMarkdown };

// Columns of the terminal behind `descriptor`; 80 where it does not say, or is none.
std::size_t terminal_columns(int descriptor);

// For help: those of the terminal behind stdout, 40 to 100; 100 where it is none.
std::size_t help_columns();

// A message made terminal-safe; where stderr is a terminal with lines broken between words. `head`
// columns of the first line are taken by what is written before it.
std::string shown_message(std::string_view text, std::size_t head);

struct ConsoleOptions {
  Format format = Format::kText;
  bool color = false;                // of what goes to stderr
  bool color_results = false;        // of what goes to stdout as text
  bool dumb = false;                 // the terminal understands no escapes
  LogLevel level = LogLevel::kInfo;  // the least important message that is shown
};

class Console {
 public:
  explicit Console(const ConsoleOptions& options);
  ~Console();
  Console(Console&&) noexcept;
  Console& operator=(Console&&) = delete;

  Format format() const { return options_.format; }
  bool quiet() const { return options_.level > LogLevel::kInfo; }
  bool verbose() const { return options_.level == LogLevel::kDebug; }
  // The text as it is printed: bare, or between the escapes of its tone.
  std::string toned(std::string_view text, Tone tone) const {
    return options_.color_results ? colored(text, tone) : std::string(text);
  }
  bool progress_is_rewritten() const { return terminal_; }

  // `text` with its lines broken between words where stdout is a terminal that they are too wide
  // for, unless -v; what is carried over begins `indent` columns in.
  std::string fitted(std::string_view text, std::size_t indent) const;
  // Writes to stdout as it is.
  void print(std::string_view text);
  // Prints `document` on one line, at once: its reader need not wait for the next.
  void print_line(const nlohmann::ordered_json& document);
  // Prints the table, or `document` with --json; an empty table prints `if_empty` to stderr instead
  // of a lone header. On a terminal that is too narrow, unless -v, words are wrapped and columns
  // left out, which are named; a table longer than the terminal ends with how to page through it.
  void show(const Table& table, const nlohmann::ordered_json& document, std::string_view if_empty);
  // A message on stderr, made terminal-safe and on a terminal broken between words, if its level is
  // shown.
  void log(LogLevel level, std::string_view message);
  // log() as a sink to hand down; valid as long as this object.
  LogSink sink();
  // On a terminal rewrites the last line of stderr; else prints a line of its own.
  void progress(std::string_view line);
  // Removes the progress line from the terminal.
  void end_progress();
  // Flushes stdout. 0, or 1 after saying so if something could not be written (silently if the
  // reader has closed the pipe).
  int finish();

 private:
  // Width for printing: Table::kAnyWidth where it has no limit.
  std::size_t columns() const;

  ConsoleOptions options_;
  bool terminal_ = false;   // stderr is one that understands escapes
  bool line_open_ = false;  // a progress line is on the terminal
  int write_error_ = 0;     // errno of the first failed write to stdout
  std::unique_ptr<spdlog::logger> logger_;
};

}  // namespace vitune
