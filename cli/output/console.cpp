// cli/output/console.cpp -- stdout with checked writes, stderr through spdlog.
// SPDX-License-Identifier: Apache-2.0
#define FMT_HEADER_ONLY  // as in core/format.cpp: spdlog writes through fmt

#include "cli/output/console.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/output/lines.h"
#include "core/format.h"

namespace vitune {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

// Progress that nobody can read (a full disk, a reader that is gone) is no reason to stop.
void write_to_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

// Lines of the terminal behind stdout; no limit where it does not say, or is none.
std::size_t terminal_lines() {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
  return known ? size.ws_row : static_cast<std::size_t>(-1);
}

}  // namespace

std::size_t terminal_columns(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return 80;
  return size.ws_col;
}

std::size_t help_columns() {
  if (isatty(STDOUT_FILENO) != 1) return 100;
  return std::clamp<std::size_t>(terminal_columns(STDOUT_FILENO), 40, 100);
}

std::string shown_message(std::string_view text, std::size_t head) {
  std::string safe = terminal_safe(text, true);
  if (isatty(STDERR_FILENO) != 1) return safe;
  const std::string filled =
      fill_text(std::string(head, ' ') + safe, terminal_columns(STDERR_FILENO), 2);
  return filled.substr(head, filled.size() - head - 1);
}

Console::Console(const ConsoleOptions& options)
    : options_(options), terminal_(!options.dumb && isatty(STDERR_FILENO) == 1) {
  auto sink = std::make_shared<spdlog::sinks::ansicolor_stderr_sink_st>(
      options.color ? spdlog::color_mode::always : spdlog::color_mode::never);
  logger_ = std::make_unique<spdlog::logger>("vitune", std::move(sink));
  logger_->set_level(spdlog_level(options.level));
  logger_->flush_on(spdlog::level::trace);
}

Console::~Console() = default;
Console::Console(Console&&) noexcept = default;

std::size_t Console::columns() const {
  if (isatty(STDOUT_FILENO) != 1 || verbose()) return Table::kAnyWidth;
  return terminal_columns(STDOUT_FILENO);
}

std::string Console::fitted(std::string_view text, std::size_t indent) const {
  return columns() == Table::kAnyWidth ? std::string(text) : fill_text(text, columns(), indent);
}

void Console::print(std::string_view text) {
  if (write_error_ != 0) return;
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    write_error_ = errno == 0 ? EIO : errno;
}

void Console::print_line(const nlohmann::ordered_json& document) {
  end_progress();  // stdout may be the same terminal
  print(document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  errno = 0;
  if (write_error_ == 0 && std::fflush(stdout) != 0) write_error_ = errno == 0 ? EIO : errno;
}

void Console::show(const Table& table, const nlohmann::ordered_json& document,
                   std::string_view if_empty) {
  if (format() == Format::kJson) {
    // Bytes that are not UTF-8 (a compiler's log, a device's name) are replaced instead of refused.
    print(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    return;
  }
  if (table.empty() && format() == Format::kText) {
    if (!if_empty.empty()) log(LogLevel::kInfo, if_empty);
    return;
  }
  if (format() == Format::kCsv) return print(table.csv());
  if (format() == Format::kMarkdown) return print(table.markdown());
  const std::string text = table.text(columns(), options_.color_results);
  print(text);
  const auto left_out = table.left_out(columns());
  const auto lines = static_cast<std::size_t>(std::ranges::count(text, '\n'));
  if (left_out.empty() && lines <= terminal_lines()) return;
  std::fflush(stdout);  // before what is said of it
  if (!left_out.empty())
    log(LogLevel::kInfo, formatted("-v shows all: no room for {}", joined(left_out, ", ")));
  if (lines > terminal_lines())
    log(LogLevel::kInfo,
        formatted("{} lines: '| less -S' behind the command pages through them, a row a line",
                  lines));
}

void Console::log(LogLevel level, std::string_view message) {
  if (level < options_.level) return;
  end_progress();
  constexpr std::string_view kError = "vitune: error: ", kWarning = "vitune: warning: ";
  const std::size_t head = level == LogLevel::kError     ? kError.size()
                           : level == LogLevel::kWarning ? kWarning.size()
                                                         : 0;
  logger_->set_pattern(head > 0 ? "vitune: %^%l%$: %v" : "%v");
  logger_->log(spdlog_level(level), "{}", shown_message(message, head));
}

LogSink Console::sink() {
  return [this](LogLevel level, std::string_view message) { log(level, message); };
}

void Console::progress(std::string_view line) {
  if (quiet()) return;
  const std::string safe = terminal_safe(line);
  if (terminal_) {
    write_to_stderr(
        formatted("\r{}\x1b[K", first_columns(safe, terminal_columns(STDERR_FILENO) - 1)));
    line_open_ = true;
  } else {
    write_to_stderr(safe + "\n");
  }
}

void Console::end_progress() {
  if (!line_open_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  line_open_ = false;
}

int Console::finish() {
  end_progress();
  if (write_error_ == 0) {
    errno = 0;
    if (std::fflush(stdout) != 0) write_error_ = errno == 0 ? EIO : errno;
  }
  if (write_error_ == 0) return 0;
  if (write_error_ == EBADF) {
    log(LogLevel::kError,
        "the results could not be written: standard output is closed, or not open for writing; "
        "send it to a terminal, a file or a pipe");
  } else if (write_error_ != EPIPE) {
    log(LogLevel::kError, formatted("the results could not be written to standard output: {}",
                                    std::strerror(write_error_)));
  }
  return 1;
}

}  // namespace vitune
