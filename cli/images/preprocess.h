// cli/images/preprocess.h -- From an image of any size to the numbers that a model takes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cli/images/image.h"

namespace vitune {

// The text of a model file about its images ("vitune.preprocess", docs/model_file.md). No state.
struct Preprocess {
  int height = 224, width = 224;
  double crop = 0.875;  // of the resized image, this share of the shorter side is kept
  ResizeFilter filter = ResizeFilter::kBicubic;
  std::array<float, 3> mean = {0, 0, 0};
  std::array<float, 3> deviation = {1, 1, 1};
};

// Reads the text. Throws Error(kUsage), beginning with `place`, for one that is none: no JSON
// object, a side beyond kMostImageSide, a filter other than bilinear and bicubic ...
Preprocess read_preprocess(const std::string& text, const std::string& place);

// Resized so that the crop fits the shorter side, cropped in the middle, (x / 255 - mean) /
// deviation: 3 x height x width, as timm and torchvision do.
std::vector<float> preprocessed(const Image& image, const Preprocess& how);

}  // namespace vitune
