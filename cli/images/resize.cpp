// cli/images/resize.cpp -- Separable resampling in fixed point, after Pillow's method.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "cli/images/image.h"

namespace vitune {
namespace {

constexpr int kChannels = 3;
constexpr int kWeightBits = 32 - 8 - 2;

double bilinear(double x) {
  x = std::abs(x);
  return x < 1 ? 1 - x : 0;
}

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

// The pixels that one result is the sum of.
struct Taps {
  int first = 0;
  std::vector<int> weights;
};

std::vector<Taps> taps_of(int from, int to, ResizeFilter filter) {
  const double scale = static_cast<double>(from) / to, stretch = std::max(scale, 1.0);
  const double support = (filter == ResizeFilter::kBilinear ? 1.0 : 2.0) * stretch;
  std::vector<Taps> all(static_cast<std::size_t>(to));
  for (int i = 0; i < to; ++i) {
    Taps& taps = all[static_cast<std::size_t>(i)];
    const double center = (i + 0.5) * scale;
    taps.first = std::max(static_cast<int>(center - support + 0.5), 0);
    const int count = std::min(static_cast<int>(center + support + 0.5), from) - taps.first;
    std::vector<double> exact;
    double sum = 0;
    for (int k = 0; k < count; ++k) {
      const double x = (k + taps.first - center + 0.5) * (1.0 / stretch);
      exact.push_back(filter == ResizeFilter::kBilinear ? bilinear(x) : bicubic(x));
      sum += exact.back();
    }
    for (const double weight : exact) {
      const double scaled = (sum != 0 ? weight / sum : weight) * (1 << kWeightBits);
      taps.weights.push_back(static_cast<int>(scaled < 0 ? scaled - 0.5 : scaled + 0.5));
    }
  }
  return all;
}

// Sums along pixels that are `step` bytes apart.
std::uint8_t weighted(const std::uint8_t* from, std::size_t step, const std::vector<int>& weights) {
  int sum = 1 << (kWeightBits - 1);
  for (std::size_t k = 0; k < weights.size(); ++k) sum += from[k * step] * weights[k];
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

std::vector<std::uint8_t> with_columns(const Image& image, int width, ResizeFilter filter) {
  const std::vector<Taps> taps = taps_of(image.width, width, filter);
  std::vector<std::uint8_t> result;
  result.reserve(static_cast<std::size_t>(width) * static_cast<std::size_t>(image.height) *
                 kChannels);
  for (int y = 0; y < image.height; ++y) {
    const std::uint8_t* const row =
        image.rgb.data() + static_cast<std::size_t>(y) * static_cast<std::size_t>(image.width) * 3;
    for (const Taps& each : taps) {
      for (int c = 0; c < kChannels; ++c) {
        result.push_back(weighted(row + each.first * kChannels + c, kChannels, each.weights));
      }
    }
  }
  return result;
}

std::vector<std::uint8_t> with_rows(const Image& image, int height, ResizeFilter filter) {
  const std::size_t row = static_cast<std::size_t>(image.width) * kChannels;
  std::vector<std::uint8_t> result;
  result.reserve(row * static_cast<std::size_t>(height));
  for (const Taps& each : taps_of(image.height, height, filter)) {
    const std::uint8_t* const first = image.rgb.data() + static_cast<std::size_t>(each.first) * row;
    for (std::size_t i = 0; i < row; ++i) result.push_back(weighted(first + i, row, each.weights));
  }
  return result;
}

}  // namespace

Image resized(const Image& image, int width, int height, ResizeFilter filter) {
  Image result = image;
  if (width != image.width) {
    result.rgb = with_columns(result, width, filter);
    result.width = width;
  }
  if (height != image.height) {
    result.rgb = with_rows(result, height, filter);
    result.height = height;
  }
  return result;
}

Image cropped(const Image& image, int width, int height) {
  Image result{width, height, {}};
  result.rgb.resize(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * kChannels);
  // As torchvision has it: half of what is left, rounded to even.
  const auto start = [](int from, int to) {
    return static_cast<int>(std::nearbyint((from - to) / 2.0));
  };
  const int left = start(image.width, width), top = start(image.height, height);
  for (int y = std::max(0, -top); y < std::min(height, image.height - top); ++y) {
    const int x0 = std::max(0, -left), x1 = std::min(width, image.width - left);
    if (x1 <= x0) continue;
    const auto at = [](int row, int column, int columns) {
      return (static_cast<std::ptrdiff_t>(row) * columns + column) * kChannels;
    };
    std::copy(image.rgb.begin() + at(y + top, x0 + left, image.width),
              image.rgb.begin() + at(y + top, x1 + left, image.width),
              result.rgb.begin() + at(y, x0, width));
  }
  return result;
}

}  // namespace vitune
