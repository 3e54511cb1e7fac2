// tuner/worker/cbor.cpp -- A structural check of CBOR, then nlohmann's parser.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/cbor.h"

#include <cstdint>
#include <string>

#include "core/error.h"

namespace vitune {
namespace {

constexpr int kMaxDepth = 8;

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::kFailure, "a message is not sound CBOR: " + why);
}

// Walks over an item without keeping anything.
class CborWalker {
 public:
  explicit CborWalker(std::string_view bytes) : bytes_(bytes) {}

  // The whole input is one item.
  void walk() {
    item(0);
    if (!bytes_.empty()) refuse("bytes follow its end");
  }

 private:
  std::uint8_t byte() {
    if (bytes_.empty()) refuse("it ends early");
    const auto value = static_cast<std::uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    return value;
  }

  // The argument of an initial byte whose low five bits are `info`.
  std::uint64_t argument(int info) {
    if (info < 24) return static_cast<std::uint64_t>(info);
    if (info > 27) refuse("a length is indefinite or reserved");
    std::uint64_t value = 0;
    for (int i = 0; i < 1 << (info - 24); ++i) value = value << 8 | byte();
    return value;
  }

  void skip(std::uint64_t count) {
    if (count > bytes_.size()) refuse("a length reaches beyond its end");
    bytes_.remove_prefix(static_cast<std::size_t>(count));
  }

  void items(std::uint64_t count, int depth) {
    // Each item takes a byte at least.
    if (count > bytes_.size()) refuse("a length reaches beyond its end");
    for (std::uint64_t i = 0; i < count; ++i) item(depth);
  }

  void item(int depth) {
    if (depth > kMaxDepth) refuse("it is nested too deep");
    const std::uint8_t initial = byte();
    const int major = initial >> 5, info = initial & 31;
    const std::uint64_t value = argument(info);
    if (major == 2 || major == 3) return skip(value);
    if (major == 4) return items(value, depth + 1);
    if (major == 5) {
      if (value > bytes_.size() / 2) refuse("a length reaches beyond its end");
      return items(2 * value, depth + 1);
    }
    if (major == 6) refuse("it holds a tag");
    if (major == 7 && (info < 20 || info == 23 || info == 24)) refuse("it holds an unknown value");
  }

  std::string_view bytes_;
};

}  // namespace

nlohmann::json parse_cbor(std::string_view bytes) {
  CborWalker(bytes).walk();
  try {
    return nlohmann::json::from_cbor(bytes);
  } catch (const nlohmann::json::exception& error) {
    refuse(error.what());
  }
}

}  // namespace vitune
