// cli/images/preprocess.cpp -- Reads the metadata's JSON; resizes, crops, normalises.
// SPDX-License-Identifier: Apache-2.0
#include "cli/images/preprocess.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr std::size_t kMostText = 4096;
constexpr std::int64_t kMostResizedPixels = std::int64_t{1} << 26;

using Json = nlohmann::json;

class Reader {
 public:
  Reader(const std::string& text, const std::string& place) : place_(place) {
    if (text.size() <= kMostText) {
      json_ = Json::parse(text, nullptr, false);
    }
    if (!json_.is_object()) refuse("is no JSON object of at most 4 KiB");
  }

  template <std::size_t kCount>
  std::array<double, kCount> numbers(const char* key, double least, double most) const {
    const auto found = json_.find(key);
    if (found == json_.end() || !found->is_array() || found->size() != kCount) {
      refuse(formatted("has no '{}' of {} numbers", key, kCount));
    }
    std::array<double, kCount> values{};
    for (std::size_t i = 0; i < kCount; ++i) values[i] = number((*found)[i], key, least, most);
    return values;
  }
  double number(const char* key, double otherwise, double least, double most) const {
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) return otherwise;
    return number(*found, key, least, most);
  }
  ResizeFilter filter() const {
    const auto found = json_.find("filter");
    if (found == json_.end() || found->is_null() || *found == "bicubic") {
      return ResizeFilter::kBicubic;
    }
    if (*found != "bilinear") refuse("has a 'filter' other than bilinear and bicubic");
    return ResizeFilter::kBilinear;
  }

 private:
  double number(const Json& value, const char* key, double least, double most) const {
    if (!value.is_number()) refuse(formatted("has a '{}' that is no number", key));
    const double result = value.get<double>();
    if (!(result >= least && result <= most)) {
      refuse(formatted("has a '{}' of {}, which is not from {} to {}", key, result, least, most));
    }
    return result;
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::kUsage, formatted("{}: its 'vitune.preprocess' {}", place_, why));
  }

  const std::string& place_;
  Json json_;
};

// The shorter side becomes the crop's over `crop`, the other one keeps the proportion.
Image scaled(const Image& image, const Preprocess& how) {
  const auto side = [&](int of) { return static_cast<int>(std::floor(of / how.crop)); };
  if (how.height != how.width) return resized(image, side(how.width), side(how.height), how.filter);
  const int shorter = side(how.height);
  const auto other = [&](int longer, int least) {
    const std::int64_t length = static_cast<std::int64_t>(shorter) * longer / least;
    if (length * shorter > kMostResizedPixels) {
      throw Error(ErrorCode::kUsage,
                  formatted("an image of {} x {} pixels is too narrow for a model of {} x {}",
                            image.width, image.height, how.width, how.height));
    }
    return static_cast<int>(length);
  };
  return image.width <= image.height
             ? resized(image, shorter, other(image.height, image.width), how.filter)
             : resized(image, other(image.width, image.height), shorter, how.filter);
}

}  // namespace

Preprocess read_preprocess(const std::string& text, const std::string& place) {
  if (text.empty()) {
    throw Error(ErrorCode::kUsage,
                formatted("{} does not say how images are prepared (vitune.preprocess): give the "
                          "model's inputs as an NPY file",
                          place));
  }
  const Reader reader(text, place);
  Preprocess how;
  const auto size = reader.numbers<2>("size", 1, kMostImageSide);
  how.height = static_cast<int>(size[0]);
  how.width = static_cast<int>(size[1]);
  if (std::int64_t{how.height} * how.width > kMostResizedPixels) {
    throw Error(ErrorCode::kUsage, formatted("{}: its images are too large to prepare", place));
  }
  how.crop = reader.number("crop", how.crop, 0.05, 1);
  how.filter = reader.filter();
  const auto mean = reader.numbers<3>("mean", -1e3, 1e3);
  const auto deviation = reader.numbers<3>("std", 1e-6, 1e6);
  std::copy(mean.begin(), mean.end(), how.mean.begin());
  std::copy(deviation.begin(), deviation.end(), how.deviation.begin());
  return how;
}

std::vector<float> preprocessed(const Image& image, const Preprocess& how) {
  const Image fitted = cropped(scaled(image, how), how.width, how.height);
  const std::size_t pixels = fitted.rgb.size() / 3;
  std::vector<float> values(fitted.rgb.size());
  for (std::size_t i = 0; i < pixels; ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      values[c * pixels + i] =
          (static_cast<float>(fitted.rgb[3 * i + c]) / 255.f - how.mean[c]) / how.deviation[c];
    }
  }
  return values;
}

}  // namespace vitune
