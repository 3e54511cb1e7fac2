// tests/core/frame_test.cpp -- Frames survive any cut, and no other stream passes for one.
// SPDX-License-Identifier: Apache-2.0
#include "core/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <random>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/unique_fd.h"

namespace vitune {
namespace {

using testing::HasSubstr;

constexpr std::size_t kHeaderSize = 24;

void expect_equal(const Frame& a, const Frame& b) {
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.payload, b.payload);
}

Frame random_frame(std::mt19937_64& random, std::size_t limit) {
  Frame frame{static_cast<std::uint32_t>(random()), random(), std::string(random() % limit, '\0')};
  for (char& c : frame.payload) c = static_cast<char>(random());
  return frame;
}

struct SocketPair {
  SocketPair() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    left.reset(ends[0]);
    right.reset(ends[1]);
  }
  UniqueFd left, right;
};

TEST(FrameTest, TheLayoutIsFixed) {
  const std::string bytes = encode_frame({0x04030201, 0x0807060504030201, "123456789"});
  ASSERT_EQ(bytes.size(), kHeaderSize + 9);
  EXPECT_EQ(bytes.substr(0, 20), std::string("VTF1\x01\x02\x03\x04\x01\x02\x03\x04\x05\x06\x07\x08"
                                             "\x09\0\0\0",
                                             20));
  // CRC-32 of bytes 4..19 and the payload, computed by zlib.
  EXPECT_EQ(bytes.substr(20, 4), std::string("\x2a\xef\xde\xe7", 4));
  EXPECT_EQ(bytes.substr(24), "123456789");
}

TEST(FrameTest, FramesSurviveAnyCut) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 300; ++round) {
    std::vector<Frame> frames;
    std::string stream;
    for (std::uint64_t n = 1 + random() % 8; n > 0; --n) {
      frames.push_back(random_frame(random, round % 2 == 0 ? 40 : 100'000));
      stream += encode_frame(frames.back());
    }
    FrameParser parser;
    std::size_t seen = 0;
    const std::size_t largest = round % 2 == 0 ? 7 : 200'000;
    for (std::string_view rest = stream; !rest.empty();) {
      const std::size_t piece = std::min(1 + random() % largest, rest.size());
      parser.feed(rest.substr(0, piece));
      rest.remove_prefix(piece);
      while (auto frame = parser.next()) {
        ASSERT_LT(seen, frames.size());
        expect_equal(*frame, frames[seen++]);
      }
    }
    EXPECT_EQ(seen, frames.size());
    EXPECT_EQ(parser.pending(), 0u);
  }
}

TEST(FrameTest, EveryTruncationWaitsForMore) {
  const std::string bytes = encode_frame({1, 2, "payload"});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    FrameParser parser;
    parser.feed(std::string_view(bytes).substr(0, size));
    EXPECT_FALSE(parser.next()) << size;
    parser.feed(std::string_view(bytes).substr(size));
    EXPECT_TRUE(parser.next()) << size;
  }
}

TEST(FrameTest, EveryFlippedBitIsNoticed) {
  const std::string bytes = encode_frame({1, 2, "payload"});
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    FrameParser parser;
    // A flipped length may ask for more first: give it what a peer that goes on would send.
    parser.feed(flipped);
    bool noticed = false;
    try {
      for (int more = 0; more < 3000 && !parser.next(); ++more)
        parser.feed(std::string(32768, 'x'));
    } catch (const Error& error) {
      noticed = true;
      EXPECT_EQ(error.code(), ErrorCode::kFailure);
    }
    EXPECT_TRUE(noticed) << "bit " << bit;
  }
}

TEST(FrameTest, AHugeLengthIsRefusedBeforeAnythingIsKept) {
  std::string header = encode_frame({1, 2, ""});
  for (const std::uint32_t length : {std::uint32_t{kMaxPayload + 1}, 0x80000000u, 0xFFFFFFFFu}) {
    for (int i = 0; i < 4; ++i)
      header[16 + static_cast<std::size_t>(i)] = static_cast<char>(length >> (8 * i));
    FrameParser parser;
    parser.feed(header + std::string(1 << 20, 'x'));
    for (int i = 0; i < 100; ++i) parser.feed(std::string(1 << 20, 'x'));
    EXPECT_LE(parser.pending(), kHeaderSize);
    EXPECT_THROW(parser.next(), Error);
  }
}

TEST(FrameTest, AnotherStreamIsNoticedAtItsFirstByte) {
  FrameParser parser;
  parser.feed("H");
  EXPECT_THROW(parser.next(), Error);
  parser.feed(encode_frame({1, 2, "late"}));
  EXPECT_THROW(parser.next(), Error) << "a stream given up stays given up";
}

TEST(FrameTest, RandomGarbageNeverPassesForAFrame) {
  constexpr int kRounds = 100'000;
  std::mt19937_64 random(3);
  for (int round = 0; round < kRounds; ++round) {
    std::string garbage(1 + random() % 64, '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    if (round % 4 == 0) garbage.replace(0, std::min<std::size_t>(4, garbage.size()), "VTF1");
    FrameParser parser;
    parser.feed(garbage);
    try {
      EXPECT_FALSE(parser.next());
    } catch (const Error&) {
    }
  }
}

TEST(FrameTest, APayloadAboveTheLimitIsNotEncoded) {
  Frame frame{1, 2, std::string(kMaxPayload + 1, 'x')};
  EXPECT_THROW(encode_frame(frame), Error);
  frame.payload.pop_back();
  FrameParser parser;
  parser.feed(encode_frame(frame));
  EXPECT_EQ(parser.next()->payload.size(), kMaxPayload);
}

TEST(FrameSocketTest, FramesCrossASocketBothWays) {
  SocketPair sockets;
  std::mt19937_64 random(4);
  std::vector<Frame> frames;
  for (int i = 0; i < 20; ++i) frames.push_back(random_frame(random, 1 << 20));
  std::thread echo([&] {
    FrameParser parser;
    while (auto frame = read_frame(sockets.right.get(), parser)) {
      write_frame(sockets.right.get(), *frame);
    }
    sockets.right.reset();
  });
  FrameParser parser;
  for (const Frame& frame : frames) {
    write_frame(sockets.left.get(), frame);
    expect_equal(*read_frame(sockets.left.get(), parser), frame);
  }
  shutdown(sockets.left.get(), SHUT_WR);
  EXPECT_FALSE(read_frame(sockets.left.get(), parser));
  echo.join();
}

TEST(FrameSocketTest, AConnectionThatEndsInsideAFrameIsAnError) {
  SocketPair sockets;
  const std::string bytes = encode_frame({1, 2, "payload"});
  ASSERT_EQ(write(sockets.left.get(), bytes.data(), bytes.size() - 1),
            static_cast<ssize_t>(bytes.size() - 1));
  sockets.left.reset();
  FrameParser parser;
  EXPECT_THROW(read_frame(sockets.right.get(), parser), Error);
}

TEST(FrameSocketTest, WritingToAPeerThatIsGoneIsAnErrorAndNoSignal) {
  SocketPair sockets;
  sockets.left.reset();
  try {
    write_frame(sockets.right.get(), {1, 2, "payload"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("sending failed"));
  }
}

}  // namespace
}  // namespace vitune
