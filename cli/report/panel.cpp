// cli/report/panel.cpp -- Tokens, data blocks, and legends.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/panel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/report/html.h"
#include "core/format.h"

namespace vitune {
namespace {

// The shape inside a box of 16 by 12.
std::string mark_svg(Mark mark) {
  switch (mark) {
    case Mark::kCircle:
      return "<circle cx=\"8\" cy=\"6\" r=\"4\"/>";
    case Mark::kRing:
      return "<circle cx=\"8\" cy=\"6\" r=\"3.5\" fill=\"none\" stroke-width=\"1.5\"/>";
    case Mark::kSquare:
      return "<rect x=\"4.5\" y=\"2.5\" width=\"7\" height=\"7\"/>";
    case Mark::kTriangle:
      return "<path d=\"M8 1.5 12.5 9.5H3.5z\"/>";
    case Mark::kDiamond:
      return "<path d=\"M8 1 13 6 8 11 3 6z\"/>";
    case Mark::kCross:
      return "<path d=\"M4.5 2.5l7 7m0-7l-7 7\" fill=\"none\" stroke-width=\"2\"/>";
    case Mark::kLine:
      return "<path d=\"M0 6h16\" stroke-width=\"2.5\"/>";
    case Mark::kDashes:
      return "<path d=\"M0 6h16\" stroke-width=\"2\" stroke-dasharray=\"4 2\"/>";
    case Mark::kBox:
      return "<rect x=\"1\" y=\"0\" width=\"14\" height=\"12\"/>";
    case Mark::kHatch:
      break;
  }
  return "<path d=\"M1 11 11 1M6 11 15 2M1 6 6 1\" fill=\"none\" stroke-width=\"1.5\"/>";
}

}  // namespace

std::string Panel::token(std::string_view text) {
  constexpr std::size_t kLongest = 40;
  texts.emplace_back(text);
  std::string token = formatted("@{}", texts.size() - 1);
  token.resize(std::max(token.size(),
                        std::min(text.size(), kLongest) - std::min<std::size_t>(text.size(), 1)),
               '_');
  return "\"" + token + "@\"";
}

void Panel::block(const std::string& block_name, const std::vector<std::string>& rows) {
  line(formatted("${} << EOD\n{}\nEOD", block_name, fmt::join(rows, "\n")));
}

std::string hover_clause(const std::string& block, double size, int point_type) {
  return formatted(
      "${} using 1:2:3 with labels hypertext point pt {} ps {} lc rgb \"#FF010100\" notitle", block,
      point_type, size);
}

std::string legend_html(const std::vector<LegendEntry>& entries) {
  if (entries.empty()) return {};
  std::string html = "<ul class=\"legend\">";
  for (const LegendEntry& entry : entries) {
    html += formatted(
        "<li><svg viewBox=\"0 0 16 12\" width=\"16\" height=\"12\" aria-hidden=\"true\" "
        "fill=\"var(--{0})\" stroke=\"var(--{0})\">{1}</svg>{2}</li>",
        paint_name(entry.paint), mark_svg(entry.mark), html_text(entry.label));
  }
  return html + "</ul>\n";
}

int point_type(Mark mark) {
  switch (mark) {
    case Mark::kRing:
      return 6;
    case Mark::kSquare:
      return 5;
    case Mark::kTriangle:
      return 9;
    case Mark::kDiamond:
      return 13;
    case Mark::kCross:
      return 2;
    default:
      return 7;
  }
}

}  // namespace vitune
