// cli/report/palette.h -- The colours of the report, by what they stand for.
//
// gnuplot is given a colour that means "number n of this list"; in the page it becomes a CSS
// variable with one value for light and one for dark schemes. The hues are those of Okabe and Ito
// (2008), which colour-blind readers can tell apart, darkened or lightened for contrast; shapes
// differ as well. No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vitune {

enum class Paint {
  kInk,    // texts
  kMuted,  // texts of the second rank
  kAxis,
  kGrid,
  kSurface,  // what charts stand on
  kOurs,
  kLoss,   // ours where it is slower
  kPeer0,  // peers, in the order of peer_paint()
  kPeer1,
  kPeer2,
  kPeer3,
  kPeer4,
  kPeer5,
  kPlain,  // what there was before fused kernels
  kFloor,
  kHeat0,  // the best of a map, the brightest against the surface
  kHeat1,
  kHeat2,
  kHeat3,
  kHeat4,
  kHeat5,
  kHeat6,
  kFail,
  kCount
};

// "ink", "ours", "peer0": gnuplot's variable and, with "--" before it, the CSS variable.
std::string paint_name(Paint paint);

// `name = "#0101nn"` for every paint: gnuplot's variables.
std::string paint_script();

// "--ink:#1b1f24;--muted:..." of the light or the dark scheme.
std::string paint_css(bool dark);

// The paint of number `n` of paint_script(); nothing but kInk for a number that is none.
Paint paint_of(int n);

}  // namespace vitune
