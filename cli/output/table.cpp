// cli/output/table.cpp -- Column widths, escapes, and the three forms of a table.
// SPDX-License-Identifier: Apache-2.0
#include "cli/output/table.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <stdexcept>

#include "core/format.h"

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

std::string colored(std::string_view text, Tone tone) {
  const char* const code = tone == Tone::kHeader    ? "1"
                           : tone == Tone::kGood    ? "32"
                           : tone == Tone::kWarning ? "33"
                           : tone == Tone::kBad     ? "31"
                                                    : nullptr;
  return code == nullptr ? std::string(text) : formatted("\x1b[{}m{}\x1b[0m", code, text);
}

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

Table& Table::column(std::string title, Align align, std::vector<std::string> csv_titles) {
  if (!rows_.empty()) throw std::logic_error("a table's columns come before its rows");
  if (csv_titles.empty()) csv_titles = {title};
  const std::size_t width = display_width(title);
  columns_.push_back({std::move(title), align, std::move(csv_titles), false, width});
  return *this;
}

Table& Table::if_room() {
  columns_.back().if_room = true;
  return *this;
}

void Table::row(std::vector<Cell> cells) {
  if (cells.size() > columns_.size())
    throw std::logic_error("a table row is longer than its header");
  while (cells.size() < columns_.size()) {
    cells.emplace_back("", std::vector<std::string>(columns_[cells.size()].csv_titles.size()));
  }
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].values.size() != columns_[i].csv_titles.size())
      throw std::logic_error("a table cell has not the values that its column has in CSV");
    cells[i].shown = terminal_safe(cells[i].shown);
    for (std::string& value : cells[i].values) value = terminal_safe(value);
    columns_[i].width = std::max(columns_[i].width, display_width(cells[i].shown));
  }
  rows_.push_back(std::move(cells));
}

std::vector<bool> Table::fitting(std::size_t width) const {
  std::vector<bool> printed(columns_.size(), true);
  std::size_t total = 0;
  for (const Column& column : columns_) total += column.width + 2;
  for (std::size_t i = columns_.size(); i-- > 0 && width != kAnyWidth && total > width + 2;) {
    if (!columns_[i].if_room) continue;
    printed[i] = false;
    total -= columns_[i].width + 2;
  }
  return printed;
}

std::vector<std::string> Table::left_out(std::size_t width) const {
  const std::vector<bool> printed = fitting(width);
  std::vector<std::string> titles;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (!printed[i]) titles.push_back(columns_[i].title);
  }
  return titles;
}

std::string Table::text(std::size_t width, bool color) const {
  const std::vector<bool> printed = fitting(width);
  std::string out;
  const auto print = [&](const auto& cell_in) {
    std::string line;
    std::size_t spaces = 0;  // that are owed to the next cell: none at the end of a line
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (!printed[i]) continue;
      const auto& [cell, tone] = cell_in(i);
      const std::size_t padding = columns_[i].width - display_width(cell);
      const bool right = columns_[i].align == Align::kRight;
      if (right) spaces += padding;
      if (!cell.empty()) {
        line += std::string(spaces, ' ') + (color ? colored(cell, tone) : std::string(cell));
        spaces = 0;
      }
      spaces += 2 + (right ? 0 : padding);
    }
    out += line + "\n";
  };
  print([&](std::size_t i) {
    return std::pair<std::string_view, Tone>(columns_[i].title, Tone::kHeader);
  });
  for (const auto& row : rows_)
    print([&](std::size_t i) {
      return std::pair<std::string_view, Tone>(row[i].shown, row[i].tone);
    });
  return out;
}

std::string Table::markdown() const {
  std::string out = "|", rule = "|";
  const auto print = [&](const std::string& cell) {
    out += " ";
    for (const char c : cell) {
      if (c == '|' || c == '\\') out += '\\';
      out += c;
    }
    out += " |";
  };
  for (const Column& column : columns_) {
    print(column.title);
    rule += column.align == Align::kRight ? "--:|" : "--|";
  }
  out += "\n" + rule + "\n";
  for (const auto& row : rows_) {
    out += "|";
    for (const Cell& cell : row) print(cell.shown);
    out += "\n";
  }
  return out;
}

std::string Table::csv() const {
  std::string out;
  const auto print = [&](const auto& values_in) {
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      for (const std::string& value : values_in(i)) line += csv_cell(value) + ",";
    }
    if (!line.empty()) line.pop_back();
    out += line + "\n";
  };
  print([&](std::size_t i) -> const std::vector<std::string>& { return columns_[i].csv_titles; });
  for (const auto& row : rows_)
    print([&](std::size_t i) -> const std::vector<std::string>& { return row[i].values; });
  return out;
}

}  // namespace vitune
