// cli/report/html.h -- Text that is safe in HTML and SVG, and tables of figures.
//
// Whatever a file holds passes through html_text() on its way to the page. No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vitune {

// `text` as content of an element or of a quoted attribute: & < > " ' become entities, control
// characters and malformed UTF-8 are written as \xNN. Newlines stay, since tooltips use them.
std::string html_text(std::string_view text);

// A table of a page: the numbers behind a picture, or a comparison.
struct Sheet {
  std::string title;                           // of the table; may be empty
  std::vector<std::string> titles;             // of the columns
  std::vector<std::vector<std::string>> rows;  // each as long as `titles`
  std::string note;                            // a sentence below it; may be empty
};

// A <table> in a box that scrolls within itself. Columns of figures are set to the right, in
// figures of one width; the first cell of a row is its header.
std::string sheet_html(const Sheet& sheet);

// "1,234.5" with `digits` significant digits at least as many as the integer part needs.
std::string figure_text(double value, int digits = 3);

// "21.3 us", "9.84 ms", "1.30 s".
std::string latency_text(double us);

}  // namespace vitune
