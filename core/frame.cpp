// core/frame.cpp -- Encoding, incremental parsing and blocking transfer of frames.
// SPDX-License-Identifier: Apache-2.0
#include "core/frame.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace vitune {
namespace {

constexpr std::string_view kMagic = "VTF1";
constexpr std::size_t kTypeAt = 4, kIdAt = 8, kLengthAt = 16, kCrcAt = 20, kHeaderSize = 24;
constexpr std::size_t kReadSize = 64 << 10;

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? 0xEDB88320u : 0u);
    table[i] = value;
  }
  return table;
}

std::uint32_t crc32(std::uint32_t state, std::string_view bytes) {
  static constexpr auto table = make_crc_table();
  for (const char c : bytes) {
    state = (state >> 8) ^ table[(state ^ static_cast<std::uint8_t>(c)) & 0xFF];
  }
  return state;
}

// Over the header's fields between magic and CRC, then the payload.
std::uint32_t frame_crc(std::string_view header, std::string_view payload) {
  const std::uint32_t fields = crc32(0xFFFFFFFFu, header.substr(kTypeAt, kCrcAt - kTypeAt));
  return ~crc32(fields, payload);
}

void put(std::string& out, std::uint64_t value, int size) {
  for (int i = 0; i < size; ++i) out += static_cast<char>(value >> (8 * i));
}

std::uint64_t get(std::string_view bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) {
    value |= std::uint64_t{static_cast<std::uint8_t>(bytes[at + i])} << (8 * i);
  }
  return value;
}

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::kFailure, "worker connection: " + what);
}

[[noreturn]] void fail_errno(const char* call) {
  fail(std::string(call) + " failed: " + std::strerror(errno));
}

}  // namespace

std::string encode_frame(const Frame& frame) {
  if (frame.payload.size() > kMaxPayload) {
    fail("a payload of " + std::to_string(frame.payload.size()) + " bytes exceeds the limit of " +
         std::to_string(kMaxPayload));
  }
  std::string bytes;
  bytes.reserve(kHeaderSize + frame.payload.size());
  bytes += kMagic;
  put(bytes, frame.type, 4);
  put(bytes, frame.id, 8);
  put(bytes, frame.payload.size(), 4);
  put(bytes, frame_crc(bytes, frame.payload), 4);
  bytes += frame.payload;
  return bytes;
}

void FrameParser::check_header() {
  const std::string_view header = std::string_view(buffer_).substr(begin_, kHeaderSize);
  const std::size_t seen = std::min(header.size(), kMagic.size());
  if (header.substr(0, seen) != kMagic.substr(0, seen)) problem_ = "the bytes are not a frame";
  if (header.size() == kHeaderSize && get(header, kLengthAt, 4) > kMaxPayload) {
    problem_ = "a frame claims more than 64 MiB";
  }
}

void FrameParser::feed(std::string_view bytes) {
  if (problem_ != nullptr) return;
  if (begin_ == buffer_.size() || begin_ > kReadSize) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  // The header is looked at before its payload is kept.
  if (pending() < kHeaderSize) {
    const std::size_t head = std::min(bytes.size(), kHeaderSize - pending());
    buffer_ += bytes.substr(0, head);
    bytes.remove_prefix(head);
    check_header();
  }
  if (problem_ == nullptr) buffer_ += bytes;
}

std::optional<Frame> FrameParser::next() {
  if (problem_ == nullptr) check_header();
  if (problem_ != nullptr) fail(problem_);
  if (pending() < kHeaderSize) return std::nullopt;
  const std::string_view header = std::string_view(buffer_).substr(begin_, kHeaderSize);
  const auto length = static_cast<std::size_t>(get(header, kLengthAt, 4));
  if (pending() - kHeaderSize < length) return std::nullopt;

  const std::string_view payload = std::string_view(buffer_).substr(begin_ + kHeaderSize, length);
  if (get(header, kCrcAt, 4) != frame_crc(header, payload)) {
    problem_ = "a frame's checksum is wrong";
    fail(problem_);
  }
  Frame frame;
  frame.type = static_cast<std::uint32_t>(get(header, kTypeAt, 4));
  frame.id = get(header, kIdAt, 8);
  frame.payload = payload;
  begin_ += kHeaderSize + length;
  return frame;
}

void write_frame(int fd, const Frame& frame) {
  const std::string bytes = encode_frame(frame);
  for (std::size_t sent = 0; sent < bytes.size();) {
    // A parent that is gone must give an error here, not a SIGPIPE.
    const ssize_t count = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno != EINTR) fail_errno("sending");
    if (count > 0) sent += static_cast<std::size_t>(count);
  }
}

std::optional<Frame> read_frame(int fd, FrameParser& parser) {
  std::array<char, kReadSize> buffer;
  for (;;) {
    if (auto frame = parser.next()) return frame;
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno != EINTR) fail_errno("receiving");
    if (count == 0 && parser.pending() > 0) fail("it was closed in the middle of a frame");
    if (count == 0) return std::nullopt;
    if (count > 0) parser.feed({buffer.data(), static_cast<std::size_t>(count)});
  }
}

}  // namespace vitune
