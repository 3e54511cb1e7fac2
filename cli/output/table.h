// cli/output/table.h -- Tables of results: aligned text, Markdown or CSV, and text that is safe to
// show.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vitune {

enum class Align { kLeft, kRight };

// How a text looks where colours are wanted.
enum class Tone { kPlain, kHeader, kGood, kWarning, kBad };
// `text` between the escapes of its tone.
std::string colored(std::string_view text, Tone tone);

// `text` with every control character (C0, DEL, C1) and malformed UTF-8 byte written as \xNN, so
// that nothing read from a file, a device or a compiler can drive the terminal. Newlines are kept
// only if `keep_newlines`.
std::string terminal_safe(std::string_view text, bool keep_newlines = false);

// The text of a cell for people, and its value in CSV.
struct Cell {
  Cell(std::string text) : shown(std::move(text)), values({shown}) {}
  Cell(const char* text) : Cell(std::string(text)) {}
  // `csv`: one value per title that its column has in CSV.
  Cell(std::string text, std::vector<std::string> csv)
      : shown(std::move(text)), values(std::move(csv)) {}

  std::string shown;
  std::vector<std::string> values;
  Tone tone = Tone::kPlain;
};

// Rows of cells below one header. Cells are made terminal-safe as they are printed.
class Table {
 public:
  static constexpr std::size_t kAnyWidth = static_cast<std::size_t>(-1);

  // Adds a column; call before the first row. Programs read CSV: `csv_titles` are what it has of
  // the column ("cold_us", "cold_low_us"); empty: `title`.
  Table& column(std::string title, Align align = Align::kLeft,
                std::vector<std::string> csv_titles = {});
  // The column added last is left out where a text would be wider than asked for; of several the
  // last one first.
  Table& if_room();
  // The first column, just added, is of long texts: where the table would be wider than asked for
  // and they take much of it, each stands on a line of its own above its rows, once for all that
  // follow each other.
  Table& heading();
  // Adds a row; a short one is filled with empty cells. Throws std::logic_error if it is too long,
  // or if a cell has not one value per CSV title.
  void row(std::vector<Cell> cells);
  bool empty() const { return rows_.empty(); }

  // Columns padded to their widest cell, two spaces between them, no space at the end of a line.
  // Where that is wider than `width`, columns of words that are not left out are wrapped: nothing
  // of a cell that is printed is lost, and from 80 on no line is wider unless there are too many
  // columns of figures. With `color` the titles and the cells that have a tone stand between its
  // escapes.
  std::string text(std::size_t width = kAnyWidth, bool color = false) const;
  // Titles that text(width) leaves out.
  std::vector<std::string> left_out(std::size_t width) const;
  // A GitHub table; "|" inside cells is escaped.
  std::string markdown() const;
  // RFC 4180 with \n line ends: cells with a comma, quote or line break are quoted. A cell that a
  // spreadsheet would take for a formula (=, @, or +/- before a non-number) gets a leading
  // apostrophe.
  std::string csv() const;

 private:
  struct Column {
    std::string title;
    Align align;
    std::vector<std::string> csv_titles;
    bool if_room = false;
    std::size_t width = 0;  // of the widest cell, title included
    std::size_t word = 0;   // of the longest word, or the title
  };
  // How text() prints at a width.
  struct Layout {
    std::vector<std::size_t> widths;  // of the columns; 0: left out, or the heading
    bool heads = false;               // the first column stands above its rows
  };
  static constexpr std::size_t kGap = 2;    // spaces between columns
  static constexpr std::size_t kLeast = 1;  // characters of a column

  static std::size_t total(const std::vector<std::size_t>& widths);
  static void narrow(std::vector<std::size_t>& widths, std::size_t room,
                     const std::vector<std::size_t>& least);
  static void add_heading(std::string& out, const Cell& cell, std::size_t width, bool color);
  bool is_wrapped(std::size_t column) const;
  Layout layout(std::size_t width) const;
  void add_lines(std::string& out, const std::vector<Cell>& row, const Layout& chosen,
                 bool color) const;

  bool has_heading_ = false;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace vitune
