// cli/output/table.cpp -- Column widths, escapes, and the three forms of a table.
// SPDX-License-Identifier: Apache-2.0
#include "cli/output/table.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <stdexcept>

#include "cli/output/lines.h"
#include "core/format.h"
#include "core/printable.h"

namespace vitune {
namespace {

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
  columns_.push_back({std::move(title), align, std::move(csv_titles), false, width, width});
  return *this;
}

Table& Table::if_room() {
  columns_.back().if_room = true;
  return *this;
}

Table& Table::heading() {
  if (columns_.size() != 1) throw std::logic_error("a table's first column heads its rows");
  has_heading_ = true;
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
    columns_[i].word = std::max(columns_[i].word, longest_word(cells[i].shown));
  }
  rows_.push_back(std::move(cells));
}

bool Table::is_wrapped(std::size_t column) const {
  return columns_[column].align == Align::kLeft && !columns_[column].if_room;
}

std::size_t Table::total(const std::vector<std::size_t>& widths) {
  std::size_t sum = 0;
  for (const std::size_t width : widths) sum += width > 0 ? width + kGap : 0;
  return sum > 0 ? sum - kGap : 0;
}

// One character at a time off the widest one; no column below its `least`.
void Table::narrow(std::vector<std::size_t>& widths, std::size_t room,
                   const std::vector<std::size_t>& least) {
  for (std::size_t over = total(widths); over > room; --over) {
    std::size_t widest = widths.size();
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const bool gives = widths[i] > least[i];
      if (gives && (widest == widths.size() || widths[i] > widths[widest])) widest = i;
    }
    if (widest == widths.size()) return;
    --widths[widest];
  }
}

Table::Layout Table::layout(std::size_t width) const {
  Layout layout;
  for (const Column& column : columns_) layout.widths.push_back(std::max(column.width, kLeast));
  if (width == kAnyWidth || total(layout.widths) <= width) return layout;
  layout.heads = has_heading_ && columns_.size() > 1 && columns_[0].width > width * 2 / 5;
  if (layout.heads) layout.widths[0] = 0;
  const std::size_t room = width - (layout.heads ? kGap : 0);

  // Words that wrap are still read with ease; only then are columns left out.
  constexpr std::size_t kEasy = 32, kNarrowest = 8;
  std::vector<std::size_t> easy = layout.widths, words = easy, least = easy;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (easy[i] == 0 || !is_wrapped(i)) continue;
    const auto at_most = [&](std::size_t columns) { return std::min(layout.widths[i], columns); };
    const std::size_t title = display_width(columns_[i].title);
    words[i] = columns_[i].word;
    easy[i] = at_most(std::max(words[i], kEasy));
    least[i] = at_most(std::max(title, kNarrowest));
  }
  for (std::size_t i = columns_.size(); i-- > 0 && total(easy) > room;) {
    if (columns_[i].if_room) easy[i] = words[i] = least[i] = layout.widths[i] = 0;
  }
  narrow(layout.widths, room, easy);
  narrow(layout.widths, room, words);
  narrow(layout.widths, room, least);
  return layout;
}

std::vector<std::string> Table::left_out(std::size_t width) const {
  const Layout chosen = layout(width);
  std::vector<std::string> titles;
  for (std::size_t i = chosen.heads ? 1 : 0; i < columns_.size(); ++i) {
    if (chosen.widths[i] == 0) titles.push_back(columns_[i].title);
  }
  return titles;
}

std::string Table::text(std::size_t width, bool color) const {
  const Layout chosen = layout(width);
  std::vector<Cell> titles;
  for (const Column& column : columns_) {
    titles.emplace_back(column.title).tone = Tone::kHeader;
  }
  std::string out;
  if (chosen.heads) add_heading(out, titles[0], width, color);
  add_lines(out, titles, chosen, color);
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    const bool is_new = row == 0 || rows_[row - 1][0].shown != rows_[row][0].shown;
    if (chosen.heads && is_new) add_heading(out, rows_[row][0], width, color);
    add_lines(out, rows_[row], chosen, color);
  }
  return out;
}

// On lines of its own; carried over further in than the rows below it.
void Table::add_heading(std::string& out, const Cell& cell, std::size_t width, bool color) {
  std::string_view rest = cell.shown;
  std::size_t indent = 0;
  do {
    const std::string line = wrapped(rest, std::max<std::size_t>(width, 20) - indent).front();
    rest.remove_prefix(line.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    out += std::string(indent, ' ') + (color ? colored(line, cell.tone) : line) + "\n";
    indent = 2 * kGap;
  } while (!rest.empty());
}

void Table::add_lines(std::string& out, const std::vector<Cell>& row, const Layout& chosen,
                      bool color) const {
  std::vector<std::vector<std::string>> lines(row.size());
  std::size_t height = 1;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (chosen.widths[i] == 0) continue;
    lines[i] = wrapped(row[i].shown, chosen.widths[i]);
    height = std::max(height, lines[i].size());
  }
  for (std::size_t at = 0; at < height; ++at) {
    std::string line;
    // That are owed to the next cell: none at the end of a line.
    std::size_t spaces = chosen.heads ? kGap : 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (chosen.widths[i] == 0) continue;
      const std::string cell = at < lines[i].size() ? lines[i][at] : "";
      const std::size_t padding = chosen.widths[i] - display_width(cell);
      const bool right = columns_[i].align == Align::kRight;
      if (right) spaces += padding;
      if (!cell.empty()) {
        line += std::string(spaces, ' ') + (color ? colored(cell, row[i].tone) : cell);
        spaces = 0;
      }
      spaces += kGap + (right ? 0 : padding);
    }
    out += line + "\n";
  }
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
