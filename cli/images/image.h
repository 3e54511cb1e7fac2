// cli/images/image.h -- Image: pixels of 8 bits, three colours, and how they are read and resized.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace vitune {

inline constexpr int kMostImageSide = 32'768;                          // pixels
inline constexpr std::size_t kMostImageFile = std::size_t{256} << 20;  // bytes

struct Image {
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  // height x width x 3
};

// Reads a JPEG (by libjpeg-turbo's library, which is opened when the first one comes) or a PPM file
// (P6, up to 255). Throws Error(kUsage) for a file that is neither or is damaged, and where the
// library is missing, with the name of its package.
Image read_image(const std::filesystem::path& path);

enum class ResizeFilter { kBilinear, kBicubic };

// Resizes as Pillow does: separable, columns before rows, over as many pixels as shrinking needs,
// with weights of 22 bits and a rounding to 8 bits between. Bit for bit where the proportions are
// kept; Pillow 13 goes through rows first for some other sizes.
Image resized(const Image& image, int width, int height, ResizeFilter filter);

// The part in the middle; where it is larger than the image, what is around is black.
Image cropped(const Image& image, int width, int height);

}  // namespace vitune
