// generator/window_attention/source.cpp -- Window attention and a config as the source of a kernel.
// SPDX-License-Identifier: Apache-2.0
#include "core/checked.h"
#include "core/format.h"
#include "generator/window_attention/kernel_spec.h"

namespace vitune {
namespace {

// As templates/attention/config.cuh numbers them.
int bias_code(const WindowAttentionProblem& p) {
  if (!p.bias) return 0;
  if (p.bias->type == ElementType::kFp32) return 1;
  return p.bias->type == ElementType::kFp16 ? 2 : 3;
}

// Keys of an aligned load: rows of the bias follow each other without gaps.
int bias_vector(const WindowAttentionProblem& p) {
  if (!p.bias) return 0;
  return p.keys() % 4 == 0 ? 4 : p.keys() % 2 == 0 ? 2 : 1;
}

}  // namespace

WindowTiling window_tiling(const WindowAttentionProblem& p, const Config& config) {
  WindowTiling t;
  t.heads_per_cta = config.at("kHeadsPerCta");
  t.row_warps = config.at("kRowWarps");
  t.row_tiles = config.at("kRowTiles");
  t.block_n = config.at("kBlockN");
  t.buffers = config.at("kBuffers");
  t.tiles = ceil_div(p.keys(), 16 * t.row_tiles);
  t.steps = ceil_div(p.keys(), t.block_n);
  t.query_rows = 16 * t.row_tiles * t.tiles;
  t.key_rows = (t.steps - 1) * t.block_n + round_up(p.keys() - (t.steps - 1) * t.block_n, 8);
  t.pitch = 16 * (p.d / 8 | 1);
  return t;
}

std::vector<KernelNeeds> window_attention_kernels(const WindowAttentionProblem& p,
                                                  const Config& config) {
  const WindowTiling t = window_tiling(p, config);
  return {{"vitune_window_attention", static_cast<int>(t.threads()), t.shared_bytes()}};
}

std::string window_attention_source(const WindowAttentionProblem& p, const Config& config) {
  const WindowTiling t = window_tiling(p, config);
  std::string text = "namespace vitune {\nstruct Config {\n";
  const auto number = [&](std::string_view name, std::int64_t value) {
    text += formatted("  static constexpr int {} = {};\n", name, value);
  };
  const auto flag = [&](std::string_view name, bool value) {
    text += formatted("  static constexpr bool {} = {};\n", name, value ? "true" : "false");
  };
  number("kElement", p.type == ElementType::kBf16 ? 1 : 0);
  number("kHeadDim", p.d);
  number("kBias", bias_code(p));
  number("kBiasVector", bias_vector(p));
  number("kWindowRows", p.window_rows);
  number("kWindowColumns", p.window_columns);
  number("kKeys", p.keys());
  flag("kShifted", p.is_shifted());
  flag("kPadded", p.is_padded());
  flag("kPadsFirst", p.pads_first);
  flag("kGrid", p.grid);
  for (const char* const name : {"kHeadsPerCta", "kRowWarps", "kRowTiles", "kBlockN", "kBuffers",
                                 "kMinCtas", "kPersistent", "kBiasInRegisters"}) {
    number(name, config.at(name));
  }
  number("kCtaThreads", t.threads());
  number("kSharedBytes", t.shared_bytes());
  return text + formatted(
                    "}};\n}}  // namespace vitune\n\n"
                    "#include \"window_attention/windows_sm80.cuh\"\n\n"
                    "extern \"C\" __global__ void __launch_bounds__({}, vitune::Config::kMinCtas)\n"
                    "vitune_window_attention(const __grid_constant__ "
                    "vitune::WindowAttentionParams params) {{\n"
                    "  vitune::window_attention<vitune::Config>(params);\n}}\n",
                    t.threads());
}

}  // namespace vitune
