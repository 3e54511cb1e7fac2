// cli/output/table.h -- Tables of results: aligned text, Markdown or CSV, and text that is safe to
// show.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vitune {

enum class Align { kLeft, kRight };

// `text` with every control character (C0, DEL, C1) and malformed UTF-8 byte written as \xNN, so
// that nothing read from a file, a device or a compiler can drive the terminal. Newlines are kept
// only if `keep_newlines`.
std::string terminal_safe(std::string_view text, bool keep_newlines = false);

// Rows of cells below one header. Cells are made terminal-safe as they are printed.
class Table {
 public:
  // Adds a column; call before the first row.
  Table& column(std::string title, Align align = Align::kLeft);
  // Adds a row; a short one is filled with empty cells. Throws std::logic_error if it is too long.
  void row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  // Columns padded to their widest cell, two spaces between them, no space at the end of a line.
  std::string text() const;
  // A GitHub table; "|" inside cells is escaped.
  std::string markdown() const;
  // RFC 4180 with \n line ends: cells with a comma, quote or line break are quoted. A cell that a
  // spreadsheet would take for a formula (=, @, or +/- before a non-number) gets a leading
  // apostrophe.
  std::string csv() const;

 private:
  std::vector<std::string> titles_;
  std::vector<Align> aligns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace vitune
