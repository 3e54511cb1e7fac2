// cli/report/page.cpp -- Sections as HTML.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/page.h"

#include "cli/report/svg.h"
#include "core/format.h"

namespace vitune {
namespace {

std::string paragraphs(const std::vector<std::string>& sentences, const char* css_class) {
  std::string html;
  for (const std::string& sentence : sentences) {
    html += formatted("<p class=\"{}\">{}</p>\n", css_class, html_text(sentence));
  }
  return html;
}

std::string panel_html(const Panel& panel, const Drawing& drawing) {
  const bool both = !drawing.narrow.empty();
  const bool broad = panel.wide.width > 600;
  std::string html = formatted("<figure class=\"panel{}\">", broad ? " broad" : "");
  if (!panel.heading.empty()) {
    html += formatted("<figcaption>{}</figcaption>\n", html_text(panel.heading));
  }
  html += inline_svg(drawing.wide, panel, panel.name + "-", both ? "chart wide" : "chart");
  if (both) html += inline_svg(drawing.narrow, panel, panel.name + "-n-", "chart narrow");
  return html + "</figure>\n";
}

std::string numbers_html(const std::vector<Sheet>& numbers) {
  if (numbers.empty()) return {};
  std::string html = "<details><summary>The numbers</summary>\n";
  for (const Sheet& sheet : numbers) html += sheet_html(sheet);
  return html + "</details>\n";
}

std::string section_html(const Section& section, const Drawing* drawings) {
  std::string html =
      formatted("<section id=\"{0}\" aria-labelledby=\"{0}-h\">\n<h2 id=\"{0}-h\">{1}</h2>\n",
                section.id, html_text(section.heading));
  if (!section.caption.empty()) {
    html += formatted("<p class=\"caption\">{}</p>\n", html_text(section.caption));
  }
  html += paragraphs(section.asides, "note") + paragraphs(section.missing, "missing");
  if (!section.panels.empty()) html += legend_html(section.legend);
  if (!section.panels.empty()) html += "<div class=\"panels\">\n";
  for (std::size_t i = 0; i < section.panels.size(); ++i) {
    html += panel_html(section.panels[i], drawings[i]);
  }
  if (!section.panels.empty()) html += "</div>\n";
  for (const Sheet& sheet : section.sheets) html += sheet_html(sheet);
  return html + numbers_html(section.numbers) + "</section>\n";
}

std::string head_html(const Page& page) {
  return formatted(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; img-src data:\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n"
      "<title>{}</title>\n<style>\n{}</style>\n</head>\n",
      html_text(page.title), page_css());
}

}  // namespace

std::string page_html(const Page& page, const std::vector<Drawing>& drawings) {
  std::string html = head_html(page) + "<body>\n<header>\n";
  html += formatted("<h1>{}</h1>\n<p class=\"subtitle\">{}</p>\n", html_text(page.title),
                    html_text(page.subtitle));
  html += "<dl class=\"tiles\">";
  for (const auto& [figure, what] : page.tiles) {
    html += formatted("<div><dt>{}</dt><dd>{}</dd></div>", html_text(what), html_text(figure));
  }
  html += "</dl>\n<nav aria-label=\"Sections\">";
  for (const Section& section : page.sections) {
    html += formatted("<a href=\"#{}\">{}</a> ", section.id, html_text(section.heading));
  }
  html += "</nav>\n</header>\n<main>\n";
  std::size_t drawn = 0;
  for (const Section& section : page.sections) {
    html += section_html(section, drawings.data() + drawn);
    drawn += section.panels.size();
  }
  html += "</main>\n<footer>\n" + paragraphs(page.notes, "note");
  html +=
      "<p class=\"note\">Written by vitune report; pictures by gnuplot. Values appear under the "
      "pointer and in the tables.</p>\n";
  return html + "</footer>\n</body>\n</html>\n";
}

}  // namespace vitune
