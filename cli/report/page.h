// cli/report/page.h -- The whole report as one HTML document that needs nothing from elsewhere.
//
// No scripts, no fonts, no links to fetch: a content security policy in the page forbids them.
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/report/gnuplot.h"
#include "cli/report/section.h"

namespace vitune {

struct Page {
  std::string title, subtitle;
  std::vector<std::pair<std::string, std::string>> tiles;  // a figure and what it is
  std::vector<Section> sections;
  std::vector<std::string> notes;  // at the end: what was left out
};

// `drawings` are of all panels of the sections, in their order. Throws Error(kFailure) if a drawing
// is none.
std::string page_html(const Page& page, const std::vector<Drawing>& drawings);

// The style sheet of the page.
std::string page_css();

}  // namespace vitune
