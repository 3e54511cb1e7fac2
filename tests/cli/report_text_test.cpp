// tests/cli/report_text_test.cpp -- What a file holds cannot leave its place in a page or a
// picture.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <set>

#include "cli/report/axes.h"
#include "cli/report/html.h"
#include "cli/report/panel.h"
#include "cli/report/svg.h"
#include "core/error.h"

namespace vitune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHostile = "</title><script>alert('1')</script>& \"x\" \x1b[31m `id` @1@";

// As gnuplot writes it, as far as it matters here.
std::string drawn(const std::string& content) {
  return "<?xml version=\"1.0\"?>\n<svg \n viewBox=\"0 0 420 300\"\n "
         "xmlns=\"http://www.w3.org/2000/svg\">\n<title>Gnuplot</title>\n<desc>Produced</desc>\n" +
         content + "\n</svg>\n";
}

TEST(ReportHtml, EscapesWhatMeansSomethingInHtml) {
  EXPECT_EQ(html_text("a<b & 'c' > \"d\""), "a&lt;b &amp; &#39;c&#39; &gt; &quot;d&quot;");
  EXPECT_EQ(html_text("bell\x07 and \xff"), "bell\\x07 and \\xff");
  EXPECT_EQ(html_text("two\nlines, São Paulo"), "two\nlines, São Paulo");
}

TEST(ReportHtml, WritesFiguresWithTheDigitsAsked) {
  const std::vector<std::tuple<double, int, std::string>> cases = {{0, 3, "0"},
                                                                   {0.01234, 3, "0.0123"},
                                                                   {1.5, 2, "1.5"},
                                                                   {21.64, 3, "21.6"},
                                                                   {930, 3, "930"},
                                                                   {1070.3, 3, "1,070"},
                                                                   {63755.4, 3, "63,755"},
                                                                   {1234567, 1, "1,234,567"},
                                                                   {-1234.5, 3, "-1,234"}};
  for (const auto& [value, digits, text] : cases) EXPECT_EQ(figure_text(value, digits), text);
}

TEST(ReportHtml, SetsColumnsOfFiguresToTheRight) {
  const Sheet sheet{"<t>",
                    {"name", "us", "why"},
                    {{"1 a", "2.5", "1 sentence, a long one"}, {"b", "-", "another"}},
                    ""};
  const std::string html = sheet_html(sheet);
  EXPECT_THAT(html, AllOf(HasSubstr("<h3>&lt;t&gt;</h3>"), HasSubstr(">2.5</td>")));
  EXPECT_THAT(html, HasSubstr("<th scope=\"col\" class=\"n\">us</th>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"n\">-</td>"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">1 a</th>"));
}

TEST(ReportPanel, HandsTextsOfFilesToGnuplotAsTokensOnly) {
  Panel panel;
  const std::string first = panel.token("x"), second = panel.token(kHostile);
  EXPECT_EQ(first, "\"@0@\"");
  EXPECT_EQ(second, "\"@1" + std::string(37, '_') + "@\"");  // as long as the text, 40 at most
  EXPECT_EQ(panel.token("eight ch"), "\"@2_____@\"");
  panel.block("d", {"1 2 " + first});
  EXPECT_EQ(panel.script, "$d << EOD\n1 2 \"@0@\"\nEOD\n");
}

TEST(ReportSvg, PutsTextsInEscaped) {
  Panel panel;
  panel.token(kHostile);
  panel.token("not this");
  panel.summary = "a \"summary\"";
  const std::string svg =
      inline_svg(drawn("<g onmousemove=\"gnuplot_svg.showHypertext(evt,'@0__@')\" "
                       "onmouseout=\"gnuplot_svg.hideHypertext()\"><title> </title>"
                       "<use xlink:href='#gpPt6'/></g><text><tspan>@0@ @9@ me@home</tspan></text>"),
                 panel, "p-", "chart");
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("onmouse"))));
  EXPECT_THAT(svg, HasSubstr("<title>&lt;/title&gt;&lt;script&gt;alert(&#39;1&#39;)"));
  EXPECT_THAT(svg, HasSubstr("\\x1b[31m `id` @1@</title>"));  // its own token stays a text
  EXPECT_THAT(svg, HasSubstr("@1@  me@home</text>"));         // an unknown token is nothing
  EXPECT_THAT(svg, HasSubstr("href='#p-gpPt6'"));
  EXPECT_THAT(svg, HasSubstr("aria-label=\"a &quot;summary&quot;\""));
}

TEST(ReportSvg, MakesVariablesOfColours) {
  const std::string svg = inline_svg(
      drawn("<path stroke='rgb(  1,   1,   5)'/><path style='fill:none; "
            "stroke:rgb(1,1,6)'/><rect fill=\"rgb(12,1,6)\"/><text fill=\"black\">a</text>"),
      {}, "", "chart");
  EXPECT_THAT(svg, HasSubstr("stroke='var(--ours)'"));
  EXPECT_THAT(svg, HasSubstr("stroke:var(--loss)"));
  EXPECT_THAT(svg, HasSubstr("fill=\"rgb(12,1,6)\""));
  EXPECT_THAT(svg, HasSubstr("fill=\"var(--ink)\""));
}

TEST(ReportSvg, DropsGnuplotsWordsAndEmptyGroups) {
  const std::string svg = inline_svg(drawn("<g fill=\"none\">\n</g><g id=\"gnuplot_plot_1\" "
                                           "><title>series</title><path d='M0,0'/></g>"),
                                     {}, "", "chart");
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("Gnuplot")), Not(HasSubstr("Produced")),
                         Not(HasSubstr("series")), Not(HasSubstr("fill=\"none\""))));
  EXPECT_THAT(svg, HasSubstr("<path d='M0,0'/>"));
}

TEST(ReportSvg, RefusesHalfAPicture) {
  const std::string whole = drawn("<path d='M0,0'/>");
  EXPECT_NO_THROW(inline_svg(whole, {}, "", ""));
  for (const std::string& broken : {std::string(), whole.substr(0, whole.size() / 2),
                                    whole.substr(0, whole.size() - 8), std::string("nothing")}) {
    EXPECT_THROW(inline_svg(broken, {}, "", ""), Error) << broken;
  }
}

TEST(ReportSvg, AFileHasBothSchemes) {
  const std::string svg = standalone_svg(drawn("<path/>"), {});
  EXPECT_THAT(svg, AllOf(HasSubstr("prefers-color-scheme:dark"), HasSubstr("xmlns=\"http://www.w3"),
                         HasSubstr("fill=\"var(--surface)\"")));
}

TEST(ReportPalette, EveryPaintHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int n = 0; n < static_cast<int>(Paint::kCount); ++n) {
    EXPECT_TRUE(names.insert(paint_name(paint_of(n))).second) << n;
    EXPECT_EQ(static_cast<int>(paint_of(n)), n);
  }
  EXPECT_EQ(paint_of(-1), Paint::kInk);
  EXPECT_EQ(paint_of(1000), Paint::kInk);
}

TEST(ReportAxes, TicksLieWithinTheRange) {
  EXPECT_EQ(log_ticks("x", 0.9, 12), "set xtics (\"1\" 1, \"2\" 2, \"5\" 5, \"10\" 10)\n");
  EXPECT_EQ(
      log_ticks("y", 90, 30000),
      "set ytics (\"100\" 100, \"\" 200 1, \"\" 500 1, \"1,000\" 1000, \"\" 2000 1, \"\" 5000 "
      "1, \"10,000\" 10000, \"\" 20000 1)\n");
}

}  // namespace
}  // namespace vitune
