// core/digest.cpp -- SHA-256 by OpenSSL's libcrypto, and the field encoding on top of it.
//
// By its SHA256_ functions, not by EVP: the first use of EVP in a process lets a provider set
// itself up, which takes 0.8 ms (with an OSSL_LIB_CTX of one's own, without any configuration file,
// as well), where opening a database and finding the first kernel takes less than 1 ms together.
// These take 15 us the first time, and run on the same instructions of the processor. OpenSSL 3
// wants who uses them to say which API they were written for, see openssl_user_macros(7). Should a
// release drop them, State is what has to change.
// SPDX-License-Identifier: Apache-2.0
#define OPENSSL_API_COMPAT 10100
#include "core/digest.h"

#include <openssl/sha.h>

#include <bit>

#include "core/error.h"

namespace vitune {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

// The value of a hexadecimal digit, or -1.
int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

void require(bool ok, const char* step) {
  if (!ok) {
    throw Error(ErrorCode::kFailure, std::string("SHA-256: libcrypto failed to ") + step +
                                         "; check the installation of OpenSSL");
  }
}

}  // namespace

std::string Digest::hex() const {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const unsigned byte : bytes) {
    text += kHexDigits[byte >> 4];
    text += kHexDigits[byte & 15];
  }
  return text;
}

std::optional<Digest> Digest::from_hex(std::string_view hex) {
  Digest digest;
  if (hex.size() != digest.bytes.size() * 2) return std::nullopt;
  for (std::size_t i = 0; i < digest.bytes.size(); ++i) {
    const int high = hex_value(hex[2 * i]);
    const int low = hex_value(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest.bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return digest;
}

struct Sha256::State {
  SHA256_CTX context;

  void start() { require(SHA256_Init(&context) == 1, "start"); }
  void update(const void* data, std::size_t size) {
    require(SHA256_Update(&context, data, size) == 1, "add data");
  }

  // A kind byte and the length in front of each field keep "ab","c" apart from "a","bc", and the
  // integer 8 from the text that has its bytes. Little endian on every host.
  void header(char kind, std::uint64_t length) {
    std::array<char, 9> bytes{kind};
    for (std::size_t i = 0; i < 8; ++i) bytes[i + 1] = static_cast<char>(length >> (8 * i));
    update(bytes.data(), bytes.size());
  }
};

Sha256::Sha256() : state_(std::make_unique<State>()) { state_->start(); }

Sha256::~Sha256() = default;

Sha256& Sha256::add(std::string_view field) {
  state_->header('s', field.size());
  state_->update(field.data(), field.size());
  return *this;
}

Sha256& Sha256::add(std::int64_t field) {
  state_->header('i', static_cast<std::uint64_t>(field));
  return *this;
}

Sha256& Sha256::add(double field) {
  state_->header('d', std::bit_cast<std::uint64_t>(field));
  return *this;
}

Sha256& Sha256::append(std::span<const std::byte> bytes) {
  state_->update(bytes.data(), bytes.size());
  return *this;
}

Digest Sha256::finish() {
  Digest digest;
  require(SHA256_Final(digest.bytes.data(), &state_->context) == 1, "finish");
  state_->start();
  return digest;
}

Digest sha256(std::string_view text) {
  return Sha256().append(std::as_bytes(std::span(text.data(), text.size()))).finish();
}

}  // namespace vitune
