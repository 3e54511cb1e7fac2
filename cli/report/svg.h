// cli/report/svg.h -- Makes of gnuplot's SVG a picture for the page or a file of its own.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "cli/report/panel.h"

namespace vitune {

// The drawing of `panel` without scripts, with CSS variables for colours, with every id beginning
// with `prefix`, and with the texts of the panel's tokens, escaped. `classes` are those of the
// <svg>. Throws Error(kFailure) for what is no SVG of gnuplot's.
std::string inline_svg(std::string_view drawn, const Panel& panel, const std::string& prefix,
                       const std::string& classes);

// The same as a file: with a surface behind it and the colours of both schemes.
std::string standalone_svg(std::string_view drawn, const Panel& panel);

}  // namespace vitune
