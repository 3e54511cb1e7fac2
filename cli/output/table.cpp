// cli/output/table.cpp -- Column widths, escapes, and the three forms of a table.
// SPDX-License-Identifier: Apache-2.0
#include "cli/output/table.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <stdexcept>

namespace vitune {
namespace {

// Length in bytes of the well-formed UTF-8 character at the start of `text`, or 0 if there is none.
// C1 controls (U+0080..U+009F) count as malformed: terminals act on them.
std::size_t printable_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead >= 0x20 && lead < 0x7f) return 1;
  const std::size_t length = lead >= 0xc2 && lead < 0xe0   ? 2
                             : lead >= 0xe0 && lead < 0xf0 ? 3
                             : lead >= 0xf0 && lead < 0xf5 ? 4
                                                           : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  const bool c1_control = lead == 0xc2 && second < 0xa0;
  const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool surrogate = lead == 0xed && second >= 0xa0;
  const bool too_large = lead == 0xf4 && second >= 0x90;
  return c1_control || overlong || surrogate || too_large ? 0 : length;
}

// Characters, not bytes: continuation bytes take no column.
std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

// "-1.5", "+2e3", "-0.3 %", "-1.2x": what begins like a formula and is none.
bool is_signed_number(std::string_view cell) {
  if (cell.empty() || (cell[0] != '-' && cell[0] != '+')) return false;
  cell.remove_prefix(1);
  for (const std::string_view unit : {" %", "x"}) {
    if (!cell.ends_with(unit)) continue;
    cell.remove_suffix(unit.size());
    break;
  }
  const char* const end = cell.data() + cell.size();
  double value = 0;
  const auto [stop, error] = std::from_chars(cell.data(), end, value);
  return error == std::errc{} && stop == end && value >= 0;
}

std::string csv_cell(const std::string& cell) {
  std::string text = cell;
  if (!cell.empty() && !is_signed_number(cell) &&
      std::string_view("=@+-").find(cell[0]) != std::string_view::npos && cell != "-") {
    text.insert(text.begin(), '\'');
  }
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace

std::string terminal_safe(std::string_view text, bool keep_newlines) {
  std::string safe;
  safe.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = printable_length(text.substr(i));
    if (length > 0) {
      safe.append(text.substr(i, length));
      i += length;
    } else if (keep_newlines && text[i] == '\n') {
      safe += '\n';
      ++i;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(text[i]));
      safe += escaped;
      ++i;
    }
  }
  return safe;
}

Table& Table::column(std::string title, Align align) {
  if (!rows_.empty()) throw std::logic_error("a table's columns come before its rows");
  titles_.push_back(std::move(title));
  aligns_.push_back(align);
  return *this;
}

void Table::row(std::vector<std::string> cells) {
  if (cells.size() > titles_.size())
    throw std::logic_error("a table row is longer than its header");
  cells.resize(titles_.size());
  for (std::string& cell : cells) cell = terminal_safe(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < titles_.size(); ++column) {
    std::size_t width = display_width(titles_[column]);
    for (const auto& row : rows_) width = std::max(width, display_width(row[column]));
    widths.push_back(width);
  }
  std::string out;
  const auto print = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t column = 0; column < cells.size(); ++column) {
      const std::string padding(widths[column] - display_width(cells[column]), ' ');
      if (column > 0) line += "  ";
      line += aligns_[column] == Align::kRight ? padding + cells[column] : cells[column] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  print(titles_);
  for (const auto& row : rows_) print(row);
  return out;
}

std::string Table::markdown() const {
  std::string out;
  const auto print = [&](const std::vector<std::string>& cells) {
    out += "|";
    for (const std::string& cell : cells) {
      out += " ";
      for (const char c : cell) {
        if (c == '|' || c == '\\') out += '\\';
        out += c;
      }
      out += " |";
    }
    out += "\n";
  };
  print(titles_);
  out += "|";
  for (const Align align : aligns_) out += align == Align::kRight ? "--:|" : "--|";
  out += "\n";
  for (const auto& row : rows_) print(row);
  return out;
}

std::string Table::csv() const {
  std::string out;
  const auto print = [&](const std::vector<std::string>& cells) {
    for (std::size_t column = 0; column < cells.size(); ++column) {
      if (column > 0) out += ",";
      out += csv_cell(cells[column]);
    }
    out += "\n";
  };
  print(titles_);
  for (const auto& row : rows_) print(row);
  return out;
}

}  // namespace vitune
