// core/frame.h -- Length-prefixed, checksummed frames over a socket between a parent and its worker.
//
// Layout: magic "VTF1", type u32, id u64, length u32, CRC-32 (IEEE) of the payload u32, payload; all
// little endian. A payload is at most 64 MiB. Anything else is a protocol error: the peer is done for.
#pragma once

#include <chrono>
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

std::string encode_frame(const Frame& frame);

// Collects bytes as they arrive and hands out whole frames. Not thread safe.
class FrameParser {
 public:
  void feed(std::string_view bytes);
  // The next whole frame, or nothing if more bytes are needed. Throws Error(kFailure) for a stream
  // that is not ours; the parser is then useless.
  std::optional<Frame> next();

 private:
  std::string buffer_;
};

// Blocking helpers for the worker's side. read_frame gives nothing at end of file.
void write_frame(int fd, const Frame& frame);
std::optional<Frame> read_frame(int fd, FrameParser& parser);

}  // namespace vitune
