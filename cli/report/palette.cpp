// cli/report/palette.cpp -- Values of the colours in both schemes.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/palette.h"

#include <array>

#include "core/format.h"

namespace vitune {
namespace {

struct Colour {
  const char* name;
  const char* light;
  const char* dark;
};

constexpr std::size_t kPaints = static_cast<std::size_t>(Paint::kCount);

// Lines and marks have a contrast of 3 : 1 against the surface of their scheme, texts 4.5 : 1.
constexpr std::array<Colour, kPaints> kColours = {{
    {"ink", "#1b1f24", "#e6e9ee"},     {"muted", "#57606a", "#a3adb8"},
    {"axis", "#8c959f", "#6e7781"},    {"grid", "#e4e8ec", "#2c333b"},
    {"surface", "#ffffff", "#161b22"}, {"ours", "#0067a8", "#58b6f0"},
    {"loss", "#c94f00", "#ff8f45"},    {"peer0", "#b85a00", "#f0a040"},
    {"peer1", "#007f60", "#2fc79b"},   {"peer2", "#a8518a", "#e08cc0"},
    {"peer3", "#8a7300", "#e8d84a"},   {"peer4", "#5b4fc4", "#a79cff"},
    {"peer5", "#2f7f93", "#7fd3e6"},   {"plain", "#6e7781", "#9aa4af"},
    {"floor", "#57606a", "#a3adb8"},   {"heat0", "#08306b", "#f7fbff"},
    {"heat1", "#08519c", "#c6dbef"},   {"heat2", "#2171b5", "#9ecae1"},
    {"heat3", "#4292c6", "#6baed6"},   {"heat4", "#6baed6", "#4292c6"},
    {"heat5", "#9ecae1", "#2171b5"},   {"heat6", "#c6dbef", "#08519c"},
    {"fail", "#8c959f", "#7d8790"},
}};

}  // namespace

std::string paint_name(Paint paint) { return kColours[static_cast<std::size_t>(paint)].name; }

std::string paint_script() {
  std::string script;
  for (std::size_t n = 0; n < kPaints; ++n) {
    script += formatted("{} = \"#0101{:02x}\"\n", kColours[n].name, n);
  }
  return script;
}

std::string paint_css(bool dark) {
  std::string css;
  for (const Colour& colour : kColours) {
    css += formatted("--{}:{};", colour.name, dark ? colour.dark : colour.light);
  }
  return css;
}

Paint paint_of(int n) {
  return n >= 0 && n < static_cast<int>(kPaints) ? static_cast<Paint>(n) : Paint::kInk;
}

}  // namespace vitune
