// generator/compile_log.cpp -- Reads ptxas' report; cuts logs to what is kept.
// SPDX-License-Identifier: Apache-2.0
#include "generator/compile_log.h"

#include <algorithm>
#include <charconv>
#include <vector>

namespace vitune {
namespace {

constexpr std::string_view kEntryStart = "Compiling entry function '";

// The parts of the log that speak of one kernel each, from the kernel's name to the next heading.
std::vector<std::string_view> sections_of(std::string_view log) {
  std::vector<std::string_view> sections;
  for (std::size_t at = log.find(kEntryStart); at != std::string_view::npos;) {
    log.remove_prefix(at + kEntryStart.size());
    at = log.find(kEntryStart);
    sections.push_back(log.substr(0, at));
  }
  return sections;
}

// Calls `visit` with each number in `text` that stands directly before `unit`.
template <typename Visit>
void each_number_before(std::string_view text, std::string_view unit, Visit visit) {
  for (std::size_t at = text.find(unit); at != std::string_view::npos;
       at = text.find(unit, at + unit.size())) {
    std::size_t begin = at;
    while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
    int value = 0;
    const auto result = std::from_chars(text.data() + begin, text.data() + at, value);
    if (result.ec == std::errc() && result.ptr != text.data() + begin) visit(value);
  }
}

// The facts in one kernel's part; nothing if it does not tell the registers.
std::optional<CompileFacts> facts_of(std::string_view section) {
  CompileFacts facts;
  // One line per function; what a called function spills costs the kernel as well.
  const auto add_spill = [&](int bytes) { facts.spill_bytes += bytes; };
  each_number_before(section, " bytes spill stores", add_spill);
  each_number_before(section, " bytes spill loads", add_spill);
  bool known = false;
  each_number_before(section, " registers", [&](int count) {
    facts.registers = std::max(facts.registers, count);
    known = true;
  });
  each_number_before(section, " bytes smem", [&](int bytes) { facts.shared_bytes += bytes; });
  if (!known) return std::nullopt;
  return facts;
}

}  // namespace

std::optional<CompileFacts> parse_compile_log(std::string_view log, std::string_view entry) {
  const std::string name = std::string(entry) + "'";
  bool has_entry = false;
  CompileFacts worst;
  for (const std::string_view section : sections_of(log)) {
    const auto facts = facts_of(section);
    if (!facts) return std::nullopt;
    has_entry |= section.substr(0, name.size()) == name;
    worst.registers = std::max(worst.registers, facts->registers);
    worst.spill_bytes = std::max(worst.spill_bytes, facts->spill_bytes);
    worst.shared_bytes = std::max(worst.shared_bytes, facts->shared_bytes);
  }
  if (!has_entry) return std::nullopt;
  return worst;
}

std::string bounded_log(std::string_view log) {
  while (!log.empty() && (log.back() == '\n' || log.back() == '\0')) log.remove_suffix(1);
  if (log.size() <= kMaxCompileLog) return std::string(log);
  constexpr std::size_t kNote = 64;  // room for the last line
  std::size_t kept = log.rfind('\n', kMaxCompileLog - kNote);
  // One endless line: cut inside it, but not inside a UTF-8 sequence.
  if (kept == std::string_view::npos || kept < kMaxCompileLog / 2) {
    kept = kMaxCompileLog - kNote;
    while (kept > 0 && (static_cast<unsigned char>(log[kept]) & 0xC0) == 0x80) --kept;
  }
  return std::string(log.substr(0, kept)) + "\n... (" + std::to_string(log.size() - kept) +
         " bytes more)";
}

std::string decisive_line(std::string_view log) {
  const auto line_at = [&](std::size_t at) {
    // No line break before it: npos + 1 is the beginning.
    const std::size_t begin = log.substr(0, at).find_last_of("\r\n") + 1;
    return std::string(log.substr(begin, log.find_first_of("\r\n", at) - begin));
  };
  for (const std::string_view mark : {"error:", "ptxas fatal", "ptxas error"}) {
    const std::size_t found = log.find(mark);
    if (found != std::string_view::npos) return line_at(found);
  }
  const std::size_t word = log.find_first_not_of("\r\n ");
  return word == std::string_view::npos ? "no message" : line_at(word);
}

}  // namespace vitune
