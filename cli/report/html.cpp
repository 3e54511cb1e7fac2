// cli/report/html.cpp -- Escapes, and tables as HTML.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/html.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "cli/output/table.h"
#include "core/format.h"

namespace vitune {
namespace {

bool is_figure(const std::string& cell) {
  const std::size_t first = cell.find_first_not_of("-+<>~ ");
  return first != std::string::npos && std::isdigit(static_cast<unsigned char>(cell[first])) != 0;
}

// Whether a column is of figures: one at least, and nothing longer than a remark beside them.
bool is_figure_column(const Sheet& sheet, std::size_t column) {
  constexpr std::size_t kRemark = 14;
  bool any = false;
  for (const auto& row : sheet.rows) {
    const bool figure = is_figure(row[column]);
    if (!figure && row[column].size() > kRemark) return false;
    any = any || figure;
  }
  return any && column > 0;
}

std::string cells_html(const std::vector<std::string>& cells, const std::vector<bool>& figures,
                       bool header) {
  std::string html = "<tr>";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const char* begin = header ? "th scope=\"col\"" : i == 0 ? "th scope=\"row\"" : "td";
    html += formatted("<{}{}>{}</{}>", begin, figures[i] ? " class=\"n\"" : "", html_text(cells[i]),
                      header || i == 0 ? "th" : "td");
  }
  return html + "</tr>\n";
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string safe;
  for (const char c : terminal_safe(text, true)) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string sheet_html(const Sheet& sheet) {
  std::string html;
  if (!sheet.title.empty()) html += formatted("<h3>{}</h3>\n", html_text(sheet.title));
  html += formatted("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">",
                    html_text(sheet.title.empty() ? "table" : sheet.title));
  html += "<table>";
  std::vector<bool> figures;
  for (std::size_t i = 0; i < sheet.titles.size(); ++i) {
    figures.push_back(is_figure_column(sheet, i));
  }
  html += "<thead>" + cells_html(sheet.titles, figures, true) + "</thead>\n<tbody>\n";
  for (const auto& row : sheet.rows) html += cells_html(row, figures, false);
  html += "</tbody></table></div>\n";
  if (!sheet.note.empty()) html += formatted("<p class=\"note\">{}</p>\n", html_text(sheet.note));
  return html;
}

std::string figure_text(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return value == 0 ? "0" : "-";
  const int whole = static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1;
  std::string text = formatted("{:.{}f}", value, std::clamp(digits - whole, 0, 9));
  const std::size_t point = std::min(text.find('.'), text.size());
  const std::size_t first = text[0] == '-' ? 1 : 0;
  for (std::size_t i = point; i > first + 3;) text.insert(i -= 3, 1, ',');
  return text;
}

std::string latency_text(double us) {
  if (us < 1000) return figure_text(us) + " us";
  return us < 1e6 ? figure_text(us / 1e3) + " ms" : figure_text(us / 1e6) + " s";
}

}  // namespace vitune
