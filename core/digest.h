// core/digest.h -- SHA-256 digests: the identity of sources, binaries and database rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace vitune {

struct Digest {
  std::array<std::uint8_t, 32> bytes{};

  // 64 lower-case hexadecimal digits.
  std::string hex() const;
  // The digest that `hex` (64 hexadecimal digits) prints, or nothing if it is malformed.
  static std::optional<Digest> from_hex(std::string_view hex);

  auto operator<=>(const Digest&) const = default;
};

// Incremental SHA-256 (FIPS 180-4). Fields are added length-prefixed, so that no two different
// sequences of fields give the same stream. Not thread safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  Sha256& add(std::string_view field);
  Sha256& add(std::int64_t field);
  Sha256& add(double field);
  // Any other integer or bool, as the std::int64_t of the same value.
  template <std::integral T>
  Sha256& add(T field) {
    return add(static_cast<std::int64_t>(field));
  }
  // Raw bytes without a length prefix.
  Sha256& append(std::span<const std::byte> bytes);
  // The digest of what was added; the object then starts afresh.
  Digest finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Plain SHA-256 of the bytes of `text`.
Digest sha256(std::string_view text);

}  // namespace vitune
