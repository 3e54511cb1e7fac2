// generator/window_attention/problem.cpp -- What of window attention is valid, and what it moves.
// SPDX-License-Identifier: Apache-2.0
#include "generator/window_attention/problem.h"

#include <cmath>

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr std::int64_t kMostExtent = std::int64_t{1} << 24;  // of an image's rows and columns
constexpr std::int64_t kMostPixels = std::int64_t{1} << 30;  // of an image
constexpr std::int64_t kMostPairs = std::int64_t{1} << 30;
constexpr std::int64_t kMostChannels = std::int64_t{1} << 26;  // strides in bytes fit 32 bits
constexpr std::int64_t kMostKeys = 576, kMostHeadSize = 128;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 47;  // exclusive, per tensor

[[noreturn]] void refuse(ErrorCode code, const std::string& what) { throw Error(code, what); }

void check_range(std::string_view name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least) {
    refuse(ErrorCode::kUsage, formatted("{}={}: {} is the least", name, value, least));
  }
  if (value > most) {
    refuse(ErrorCode::kUnsupported, formatted("{}={}: {} is the most", name, value, most));
  }
}

void check_windows(const WindowAttentionProblem& p) {
  check_range("image", p.rows, 1, kMostExtent);
  check_range("image", p.columns, 1, kMostExtent);
  check_range("window", p.window_rows, 1, kMostKeys);
  check_range("window", p.window_columns, 1, kMostKeys);
  check_range("shift", p.shift_rows, 0, p.rows - 1);
  check_range("shift", p.shift_columns, 0, p.columns - 1);
  if (p.keys() > kMostKeys) {
    refuse(ErrorCode::kUnsupported, formatted("window={}x{}: a window may have {} pixels",
                                              p.window_rows, p.window_columns, kMostKeys));
  }
  if (p.pixels() > kMostPixels) {
    refuse(ErrorCode::kUnsupported,
           formatted("image={}x{}: an image may have 2^30 pixels", p.rows, p.columns));
  }
  if (p.grid && (p.is_padded() || p.is_shifted())) {
    refuse(ErrorCode::kUsage,
           formatted("grid needs an image whose sides are multiples of the window's, and no shift: "
                     "image={}x{} window={}x{}",
                     p.rows, p.columns, p.window_rows, p.window_columns));
  }
}

void check_bias(const WindowAttentionProblem& p) {
  if (!p.bias) return;
  const WindowBias& bias = *p.bias;
  if (bias.type == ElementType::kBool) {
    refuse(ErrorCode::kUsage, "bias cannot be bool: use bf16, fp16 or fp32, -inf where to mask");
  }
  if (bias.windows != 1 && bias.windows != p.windows()) {
    refuse(ErrorCode::kUsage, formatted("the bias has {} windows: 1, or the {} of an image",
                                        bias.windows, p.windows()));
  }
  if (bias.heads != 1 && bias.heads != p.heads) {
    refuse(ErrorCode::kUsage,
           formatted("the bias has {} heads: 1, or all {}", bias.heads, p.heads));
  }
}

void check_sizes(const WindowAttentionProblem& p) {
  const auto windows = checked_mul(p.images, p.windows());
  const auto pairs = windows ? checked_mul(*windows, p.heads) : std::nullopt;
  if (!pairs || *pairs > kMostPairs) {
    refuse(ErrorCode::kUnsupported, "all images may have 2^30 windows, each head's counted");
  }
  if (p.heads * p.d > kMostChannels) {
    refuse(ErrorCode::kUnsupported,
           formatted("h={} d={}: a pixel may have 2^26 elements", p.heads, p.d));
  }
  const auto pixels = checked_mul(p.images, p.pixels());
  const auto row = checked_mul(p.heads, 3 * p.d);
  const auto all = pixels && row ? checked_mul(*pixels, *row) : std::nullopt;
  if (!all || *all >= kMostBytes / element_bytes(p.type)) {
    refuse(ErrorCode::kUnsupported, "q, k and v span 2^47 bytes or more: use fewer images");
  }
  if (p.bias && p.bias->windows * p.bias->heads * p.keys() * p.keys() >= kMostBytes / 4) {
    refuse(ErrorCode::kUnsupported, "the bias spans 2^47 bytes or more");
  }
}

}  // namespace

void WindowAttentionProblem::validate() const {
  if (type != ElementType::kBf16 && type != ElementType::kFp16) {
    refuse(ErrorCode::kUnsupported, "the type of q, k and v must be bf16 or fp16");
  }
  check_range("b", images, 1, kMostPairs);
  check_range("h", heads, 1, kMostPairs);
  check_range("d", d, 8, kMostHeadSize);
  if (d % 8 != 0) {
    refuse(ErrorCode::kUnsupported, formatted("d={}: head sizes are multiples of 8", d));
  }
  check_windows(*this);
  check_bias(*this);
  check_sizes(*this);
  const double least = std::ldexp(1.0, -40), most = std::ldexp(1.0, 40);
  if (!(scale >= least && scale <= most)) {
    refuse(ErrorCode::kUsage,
           formatted("scale={}: use a number from 2^-40 to 2^40 (default 1/sqrt(d))", scale));
  }
}

WindowAttentionProblem WindowAttentionProblem::canonical() const {
  WindowAttentionProblem p = *this;
  if (!is_padded()) p.padding = false;
  if (!is_padded() || !is_shifted()) p.pads_first = false;
  // One window, or each pixel its own, is the same in both orders.
  const bool alone = rows == window_rows && columns == window_columns;
  if (alone || keys() == 1) p.grid = false;
  const double standard = 1.0 / std::sqrt(static_cast<double>(d));
  if (static_cast<float>(scale) == static_cast<float>(standard)) p.scale = standard;
  return p;
}

std::int64_t WindowAttentionProblem::pixel_stride() const {
  return layout == WindowLayout::kSeparate ? heads * d : 3 * heads * d;
}

std::int64_t WindowAttentionProblem::head_stride() const {
  return layout == WindowLayout::kInterleaved ? 3 * d : d;
}

double WindowAttentionProblem::flops() const {
  return 4.0 * static_cast<double>(d) * static_cast<double>(keys()) * static_cast<double>(keys()) *
         static_cast<double>(pairs());
}

double WindowAttentionProblem::min_bytes() const {
  const double row = static_cast<double>(heads * d) * static_cast<double>(element_bytes(type));
  double bytes = 4.0 * static_cast<double>(images) * static_cast<double>(pixels()) * row;
  if (padding) bytes += 3.0 * row;
  if (bias) {
    bytes += static_cast<double>(bias->windows * bias->heads * keys() * keys()) *
             static_cast<double>(element_bytes(bias->type));
  }
  return bytes;
}

}  // namespace vitune
