// tests/core/digest_test.cpp -- SHA-256 against NIST's vectors, and fields that cannot be confused.
// SPDX-License-Identifier: Apache-2.0
#include "core/digest.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>

namespace vitune {
namespace {

Digest raw(std::string_view text, std::size_t piece) {
  Sha256 hash;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    const std::string_view part = text.substr(0, piece);
    hash.append(std::as_bytes(std::span(part.data(), part.size())));
  }
  return hash.finish();
}

TEST(DigestTest, AgreesWithTheVectorsOfFips180) {
  const std::pair<std::string, const char*> kVectors[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {std::string(1'000'000, 'a'),
       "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  for (const auto& [text, expected] : kVectors) {
    EXPECT_EQ(sha256(text).hex(), expected);
    EXPECT_EQ(raw(text, 4099).hex(), expected);
  }
}

TEST(DigestTest, NoTwoSequencesOfFieldsGiveTheSameDigest) {
  const std::string eight_bytes("\x08\0\0\0\0\0\0\0", 8);
  const Digest digests[] = {
      Sha256().finish(),
      Sha256().add("").finish(),
      Sha256().add("").add("").finish(),
      Sha256().add("ab").add("c").finish(),
      Sha256().add("a").add("bc").finish(),
      Sha256().add("abc").finish(),
      Sha256().add("abc").add("").finish(),
      Sha256().add("").add("abc").finish(),
      Sha256().add(std::int64_t{8}).finish(),
      Sha256().add(eight_bytes).finish(),
      Sha256().add(std::bit_cast<double>(std::int64_t{8})).finish(),
      Sha256().add(8.0).finish(),
      Sha256().add(-0.0).finish(),
      Sha256().add(0.0).finish(),
      Sha256().add(std::int64_t{0}).finish(),
      Sha256().add(std::int64_t{-1}).finish(),
      raw("abc", 1),
  };
  EXPECT_EQ(std::set<Digest>(std::begin(digests), std::end(digests)).size(), std::size(digests));
}

TEST(DigestTest, IntegersOfAnyWidthAreTheSameField) {
  const Digest expected = Sha256().add(std::int64_t{7}).finish();
  EXPECT_EQ(Sha256().add(7).finish(), expected);
  EXPECT_EQ(Sha256().add(7u).finish(), expected);
  EXPECT_EQ(Sha256().add(7LL).finish(), expected);
  EXPECT_EQ(Sha256().add(short{7}).finish(), expected);
}

TEST(DigestTest, TheEncodingOfFieldsIsStable) {
  // Digests are stored: a change here invalidates every database.
  const Digest digest = Sha256().add("name").add(std::int64_t{-2}).add(1.5).finish();
  std::string stream("s\x04\0\0\0\0\0\0\0name", 13);
  stream += std::string("i\xfe\xff\xff\xff\xff\xff\xff\xff", 9);
  stream += std::string("d\0\0\0\0\0\0\xf8\x3f", 9);
  EXPECT_EQ(digest, sha256(stream));
}

TEST(DigestTest, FinishStartsAfresh) {
  Sha256 hash;
  hash.add("first").finish();
  EXPECT_EQ(hash.add("second").finish(), Sha256().add("second").finish());
}

TEST(DigestTest, HexIsReadBackInEitherCase) {
  const Digest digest = sha256("abc");
  std::string upper = digest.hex();
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  EXPECT_EQ(Digest::from_hex(digest.hex()), digest);
  EXPECT_EQ(Digest::from_hex(upper), digest);
}

TEST(DigestTest, MalformedHexIsRefused) {
  const std::string good = sha256("abc").hex();
  std::string bad[] = {"", good.substr(1), good + "0", good, good, good, good};
  bad[3][0] = 'g';
  bad[4][63] = ' ';
  bad[5][10] = '\0';
  bad[6][7] = static_cast<char>(0xB5);
  for (const std::string& text : bad) EXPECT_FALSE(Digest::from_hex(text)) << text;
}

}  // namespace
}  // namespace vitune
