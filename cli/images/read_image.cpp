// cli/images/read_image.cpp -- JPEG by libjpeg-turbo, opened with dlopen; PPM by itself.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <fstream>
#include <memory>
#include <system_error>

#include "cli/images/image.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

using Bytes = std::vector<unsigned char>;

constexpr std::int64_t kMostPixels = 200'000'000;

[[noreturn]] void refuse_image(const std::filesystem::path& path, std::string_view why) {
  throw Error(ErrorCode::kUsage, formatted("{}: {}", path.string(), why));
}

Bytes read_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) refuse_image(path, "there is no such file");
  const auto size = std::filesystem::file_size(path, error);
  if (error) refuse_image(path, error.message());
  if (size > kMostImageFile) refuse_image(path, "more than 256 MiB are no image for a model");
  Bytes bytes(static_cast<std::size_t>(size));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file) refuse_image(path, "it cannot be read");
  return bytes;
}

void require_sides(const std::filesystem::path& path, long width, long height) {
  if (width < 1 || height < 1 || width > kMostImageSide || height > kMostImageSide) {
    refuse_image(path, formatted("{} x {} pixels are not from 1 to {} each way", width, height,
                                 kMostImageSide));
  }
  if (static_cast<std::int64_t>(width) * height > kMostPixels) {
    refuse_image(path, formatted("{} x {} pixels are more than {} million", width, height,
                                 kMostPixels / 1'000'000));
  }
}

// The functions of the TurboJPEG interface (turbojpeg.h, version 2), whose numbers are stable.
class JpegLibrary {
 public:
  static const JpegLibrary& open(const std::filesystem::path& wanted_for) {
    static const JpegLibrary library;
    if (library.handle_ == nullptr) {
      refuse_image(
          wanted_for,
          "JPEG files need libturbojpeg.so.0, which is not here: install it (Debian and Ubuntu: "
          "libturbojpeg0 or libturbojpeg; Fedora: turbojpeg), or give PPM or NPY files");
    }
    return library;
  }

  Image decode(const std::filesystem::path& path, const Bytes& bytes) const {
    const std::unique_ptr<void, int (*)(void*)> decoder(start_(), destroy_);
    if (decoder == nullptr) throw std::bad_alloc();
    Image image;
    int subsampling = 0, colours = 0;
    if (header_(decoder.get(), bytes.data(), bytes.size(), &image.width, &image.height,
                &subsampling, &colours) != 0 ||
        image.width < 1 || image.height < 1) {
      refuse_image(path, formatted("its JPEG header is damaged: {}", error_(decoder.get())));
    }
    require_sides(path, image.width, image.height);
    image.rgb.resize(static_cast<std::size_t>(image.width) *
                     static_cast<std::size_t>(image.height) * 3);
    constexpr int kRgb = 0, kAccurate = 4096, kStopOnWarning = 8192;
    if (decompress_(decoder.get(), bytes.data(), bytes.size(), image.rgb.data(), image.width, 0,
                    image.height, kRgb, kAccurate | kStopOnWarning) != 0) {
      refuse_image(path, formatted("its JPEG data are damaged: {}", error_(decoder.get())));
    }
    return image;
  }

 private:
  JpegLibrary() {
    void* const handle = ::dlopen("libturbojpeg.so.0", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return;
    const bool is_whole =
        find(handle, "tjInitDecompress", start_) && find(handle, "tjDestroy", destroy_) &&
        find(handle, "tjGetErrorStr2", error_) && find(handle, "tjDecompressHeader3", header_) &&
        find(handle, "tjDecompress2", decompress_);
    if (is_whole) handle_ = handle;
  }
  template <typename Function>
  static bool find(void* handle, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(::dlsym(handle, name));
    return function != nullptr;
  }

  void* handle_ = nullptr;  // stays open: libraries may have threads of their own
  void* (*start_)() = nullptr;
  int (*destroy_)(void*) = nullptr;
  char* (*error_)(void*) = nullptr;
  int (*header_)(void*, const unsigned char*, unsigned long, int*, int*, int*, int*) = nullptr;
  int (*decompress_)(void*, const unsigned char*, unsigned long, unsigned char*, int, int, int, int,
                     int) = nullptr;
};

// The numbers of a PPM's header, between blanks and comments.
class PpmHeader {
 public:
  PpmHeader(const std::filesystem::path& path, const Bytes& bytes) : path_(path), bytes_(bytes) {}

  long number() {
    while (at_ < bytes_.size() && (is_blank() || bytes_[at_] == '#')) {
      if (bytes_[at_++] != '#') continue;
      while (at_ < bytes_.size() && bytes_[at_] != '\n') ++at_;
    }
    long value = 0;
    const std::size_t first = at_;
    for (; at_ < bytes_.size() && bytes_[at_] >= '0' && bytes_[at_] <= '9'; ++at_) {
      value = value * 10 + (bytes_[at_] - '0');
      if (value > 1'000'000) refuse_image(path_, "a number of its PPM header is too large");
    }
    if (at_ == first) refuse_image(path_, "its PPM header lacks a number");
    return value;
  }
  // Behind the header and one blank.
  std::size_t end() {
    if (at_ >= bytes_.size() || !is_blank()) refuse_image(path_, "its PPM header does not end");
    return at_ + 1;
  }

 private:
  bool is_blank() const {
    const unsigned char c = bytes_[at_];
    return c == ' ' || (c >= '\t' && c <= '\r');
  }
  const std::filesystem::path& path_;
  const Bytes& bytes_;
  std::size_t at_ = 2;
};

Image decode_ppm(const std::filesystem::path& path, const Bytes& bytes) {
  PpmHeader header(path, bytes);
  const long width = header.number(), height = header.number(), most = header.number();
  require_sides(path, width, height);
  if (most != 255) refuse_image(path, formatted("its largest value is {}: only 255 is read", most));
  const std::size_t begin = header.end();
  Image image{static_cast<int>(width), static_cast<int>(height), {}};
  const std::size_t size = static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3;
  if (bytes.size() - begin < size) refuse_image(path, "it is cut short");
  const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(begin);
  image.rgb.assign(first, first + static_cast<std::ptrdiff_t>(size));
  return image;
}

}  // namespace

Image read_image(const std::filesystem::path& path) {
  const Bytes bytes = read_file(path);
  if (bytes.size() > 2 && bytes[0] == 0xff && bytes[1] == 0xd8) {
    return JpegLibrary::open(path).decode(path, bytes);
  }
  if (bytes.size() > 2 && bytes[0] == 'P' && bytes[1] == '6') return decode_ppm(path, bytes);
  refuse_image(path, "it is neither a JPEG nor a PPM (P6) file: convert it first");
}

}  // namespace vitune
