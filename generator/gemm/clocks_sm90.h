// generator/gemm/clocks_sm90.h -- How long kernels on wgmma take, roughly: for the choice among
// configs without any measurement.
//
// The constants were read off the trials of 103 linear layers on an H200, and checked on an H100
// (docs/lab/2026-11-29-defaults-from-evidence.md).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "templates/linear/geometry_sm90.cuh"

namespace vitune {

// Clocks of one step of the depth in a CTA, while `ctas` of the grid are at work on `sms` SMs.
double step_clocks(const GemmSm90& tile, double ctas, double sms);

// Clocks of `rounds` tiles, one after the other, of so many clocks of products each. The epilogue
// of a result takes `work` times as long as that of a plain one.
double tile_clocks(const GemmSm90& tile, double rounds, double products, double work);

}  // namespace vitune
