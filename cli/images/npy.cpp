// cli/images/npy.cpp -- Version 1 of the format, as numpy.lib.format describes it.
// SPDX-License-Identifier: Apache-2.0
#include "cli/images/npy.h"

#include <array>
#include <charconv>
#include <utility>

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kHeaderBytes = 128;  // of files that are written here

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view why) {
  throw Error(ErrorCode::kUsage, formatted("{}: {}", path.string(), why));
}

// The text behind 'key': in a header, up to the next ',' outside of brackets or '}'.
std::string_view value_of(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(formatted("'{}':", key));
  if (at == header.npos) return {};
  const std::size_t begin = header.find_first_not_of(' ', at + key.size() + 3);
  if (begin == header.npos) return {};
  const std::size_t end =
      header[begin] == '(' ? header.find(')', begin) : header.find_first_of(",}", begin);
  return end == header.npos ? std::string_view() : header.substr(begin, end - begin);
}

std::vector<std::int64_t> shape_of(const std::filesystem::path& path, std::string_view text) {
  std::vector<std::int64_t> shape;
  while (true) {
    const std::size_t digit = text.find_first_of("0123456789");
    if (digit == text.npos) return shape;
    std::int64_t number = 0;
    const auto [end, error] =
        std::from_chars(text.data() + digit, text.data() + text.size(), number);
    if (error != std::errc() || shape.size() == 8) refuse(path, "its shape is none");
    shape.push_back(number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
}

}  // namespace

NpyReader::NpyReader(const std::filesystem::path& path)
    : path_(path), file_(path, std::ios::binary) {
  std::array<char, 10> start{};
  if (!file_.read(start.data(), start.size()) ||
      std::string_view(start.data(), kMagic.size()) != kMagic || start[6] != 1) {
    refuse(path, "it is no NPY file of version 1: write it with numpy.save()");
  }
  const auto byte = [&](int i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(start[i]));
  };
  std::string header(byte(8) + 256 * byte(9), '\0');
  if (!file_.read(header.data(), static_cast<std::streamsize>(header.size()))) {
    refuse(path, "its header is cut short");
  }
  if (value_of(header, "descr") != "'<f4'" || value_of(header, "fortran_order") != "False") {
    refuse(path, "its numbers are not float32 row after row: save array.astype('float32')");
  }
  shape_ = shape_of(path, value_of(header, "shape"));
  if (shape_.empty()) refuse(path, "it holds a single number, no rows");
  std::int64_t bytes = 4;
  for (std::size_t i = 0; i < shape_.size(); ++i) {
    const auto product = checked_mul(bytes, shape_[i]);
    if (!product) refuse(path, "its shape is too large");
    bytes = *product;
    if (i > 0) row_values_ *= shape_[i];
  }
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error ||
      static_cast<std::int64_t>(size) - static_cast<std::int64_t>(10 + header.size()) < bytes) {
    refuse(path, "it is shorter than its shape says");
  }
}

std::vector<float> NpyReader::read(std::int64_t rows) {
  std::vector<float> values(static_cast<std::size_t>(rows * row_values_));
  if (!file_.read(reinterpret_cast<char*>(values.data()),
                  static_cast<std::streamsize>(values.size() * sizeof(float)))) {
    refuse(path_, "it was cut short meanwhile");
  }
  return values;
}

NpyWriter::NpyWriter(const std::filesystem::path& path, std::vector<std::int64_t> row_shape)
    : path_(path), file_(path, std::ios::binary | std::ios::trunc), shape_(std::move(row_shape)) {
  shape_.insert(shape_.begin(), 0);
  file_ << header();
  require();
}

std::string NpyWriter::header() const {
  std::string text = formatted("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}",
                               joined(shape_, ", "));
  text.resize(kHeaderBytes - 11, ' ');
  const auto length = static_cast<char>(text.size() + 1);
  return std::string(kMagic) + '\x01' + '\0' + length + '\0' + text + '\n';
}

void NpyWriter::require() const {
  if (!file_) {
    throw Error(ErrorCode::kFailure,
                formatted("{} cannot be written: is there room, and may this user write there?",
                          path_.string()));
  }
}

void NpyWriter::add(const std::vector<float>& rows) {
  std::int64_t row = 1;
  for (std::size_t i = 1; i < shape_.size(); ++i) row *= shape_[i];
  file_.write(reinterpret_cast<const char*>(rows.data()),
              static_cast<std::streamsize>(rows.size() * sizeof(float)));
  require();
  shape_[0] += static_cast<std::int64_t>(rows.size()) / row;
}

void NpyWriter::finish() {
  file_.seekp(0);
  file_ << header();
  file_.flush();
  require();
}

}  // namespace vitune
