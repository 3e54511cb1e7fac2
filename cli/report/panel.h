// cli/report/panel.h -- One picture to be: its size, its words and the gnuplot commands that draw
// it.
//
// gnuplot sees numbers and names of ours only. Each text of a file is handed to it as a token,
// "@7_____@", for which the text is put in, escaped, once the picture is drawn: so nothing that a
// file holds is ever a command. A value; one thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/report/palette.h"

namespace vitune {

// A picture's size and the margins around its axes, in pixels.
struct View {
  int width = 0, height = 0;
  int left = 0, right = 0, bottom = 0, top = 0;
  bool operator==(const View&) const = default;
};

struct Panel {
  std::string name;     // of the figure's file, [a-z0-9-]
  std::string heading;  // shown above it
  std::string summary;  // for those who do not see it
  View wide, narrow;    // the same where one picture serves every screen
  std::string script;   // gnuplot commands; `narrow` and `figure` are 1 or 0, PW and
                        // PH are the axes' size in pixels

  int series = 0;                  // that have a name in the picture of the figure's file
  std::vector<std::string> texts;  // of the tokens

  // The token of a text, quoted for a script. It is as long as the text (40 at most), so that
  // gnuplot leaves the room that the text needs.
  std::string token(std::string_view text);
  // Appends a line to the script.
  void line(const std::string& command) { script += command + "\n"; }
  // Appends the data block $name: one row per line.
  void block(const std::string& name, const std::vector<std::string>& rows);
};

// Plots `block` (x, y, token) as marks that are not seen but say their text under the pointer;
// `size` in the units of gnuplot's point sizes.
std::string hover_clause(const std::string& block, double size, int point_type = 7);

// How a series looks in the legend of the page.
enum class Mark {
  kCircle,
  kRing,
  kSquare,
  kTriangle,
  kDiamond,
  kCross,
  kLine,
  kDashes,
  kBox,
  kHatch
};

struct LegendEntry {
  Mark mark;
  Paint paint;
  std::string label;
};

// An HTML list of the series.
std::string legend_html(const std::vector<LegendEntry>& entries);

// gnuplot's point type of a mark.
int point_type(Mark mark);

}  // namespace vitune
