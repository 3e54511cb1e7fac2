// core/frame.h -- Length-prefixed, checksummed frames over a socket between a parent and its
// worker.
//
// Layout: magic "VTF1", type u32, id u64, length u32, CRC-32 (IEEE) u32, payload; all little
// endian. The CRC covers type, id, length and payload. A payload is at most 64 MiB. Anything else
// is a protocol error: the peer is done for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace vitune {

struct Frame {
  std::uint32_t type = 0;
  std::uint64_t id = 0;
  std::string payload;
};

inline constexpr std::size_t kMaxPayload = std::size_t{64} << 20;

// The bytes of a frame; throws Error(kFailure) for a payload above kMaxPayload.
std::string encode_frame(const Frame& frame);

// Collects bytes as they arrive and hands out whole frames. Not thread safe.
class FrameParser {
 public:
  // Takes in what arrived. A header that is not ours is noticed here: from then on nothing is kept,
  // so that no length a peer claims makes this process grow.
  void feed(std::string_view bytes);
  // The next whole frame, or nothing if more bytes are needed. Throws Error(kFailure) for a stream
  // that is not ours; the parser is then useless.
  std::optional<Frame> next();
  // Bytes fed and not yet handed out.
  std::size_t pending() const { return buffer_.size() - begin_; }

 private:
  // Notes in problem_ what is wrong with the header of the next frame as far as it has arrived.
  void check_header();

  std::string buffer_;
  std::size_t begin_ = 0;          // where the next frame starts in buffer_
  const char* problem_ = nullptr;  // why the stream was given up
};

// Blocking helpers for the worker's side of the socket; both throw Error(kFailure) when it fails.
// read_frame gives nothing at end of file, and throws if that falls inside a frame.
void write_frame(int fd, const Frame& frame);
std::optional<Frame> read_frame(int fd, FrameParser& parser);

}  // namespace vitune
