// tests/model/model_file_test.cpp -- The container: what is read of it, and what is refused.
// SPDX-License-Identifier: Apache-2.0
#include "model/model_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "core/error.h"
#include "core/format.h"
#include "tests/model/counted_new.h"
#include "tests/model/model_fuzzer.h"

namespace vitune {
namespace {

using nlohmann::ordered_json;
using test::bytes_of;
using test::ModelFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The message with which a file is refused; empty if it is read.
std::string refusal(const std::string& bytes) {
  const ModelFolder folder;
  const auto path = folder.write(bytes);
  try {
    test::read_all(path, 3);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), StartsWith(path.string() + ": "));
    return error.what();
  }
  return "";
}

TEST(ModelFileTest, ASoundFileIsReadWithItsTensorsInTheirOrder) {
  const ModelFolder folder;
  const ModelContainer file = load_model_file(folder.write(test::small_file()));
  ASSERT_EQ(file.tensors.size(), 11u);
  EXPECT_EQ(file.tensors.front().name, "embed.weight");
  EXPECT_EQ(file.tensors.front().type, "bf16");
  EXPECT_EQ(file.tensors.front().shape, (std::vector<std::int64_t>{64, 3, 4, 4}));
  EXPECT_EQ(file.tensors.back().end, file.bytes - 8 - file.header_bytes);
  EXPECT_EQ(file.text("license"), "apache-2.0");
  EXPECT_EQ(file.text("absent"), "");
  EXPECT_EQ(refusal(test::small_file()), "");
}

TEST(ModelFileTest, EachClaimOfAHeaderIsHeldAgainstTheFile) {
  const std::string entry = R"({"dtype":"BF16","shape":[4],"data_offsets":[0,8]})";
  const auto with = [&](const std::string& entries) {
    return bytes_of(R"({"__metadata__":{"vitune.format":"1"},)" + entries + "}", 8);
  };
  const struct {
    std::string bytes;
    const char* why;
  } cases[] = {
      {"", "has 0 bytes"},
      {"1234567", "has 7 bytes"},
      {test::length_of_header(0xffffffffffffffff), "claims a header of 18446744073709551615 bytes"},
      {test::length_of_header(std::uint64_t{1} << 63) + "{}", "16 MiB are the most"},
      {test::length_of_header((16 << 20) + 1) + "{}", "16 MiB are the most"},
      {test::length_of_header(3) + "{}", "it is cut short, or no safetensors file"},
      {bytes_of("", 0), "no valid JSON"},
      {bytes_of("[]", 0), "no JSON object"},
      {bytes_of("{\"a\":", 0), "no valid JSON"},
      {bytes_of("{\"\xff\":1}", 0), "no valid JSON"},
      {bytes_of(std::string(5000, '['), 0), "nested deeper than"},

      {bytes_of("{}", 8), "its tensors have 0 bytes, and 8 are there"},
      {bytes_of("{}", 0), "no graph of a model"},
      {with("\"w\":" + entry + ",\"w\":" + entry), "has the name 'w' twice"},
      {with("\"\":" + entry), "name is empty"},
      {with("\"a\\u0007\":" + entry), "control characters"},
      {with("\"a\\u202eb\":" + entry), "control characters"},
      {with("\"a\\u2066b\":" + entry), "control characters"},
      {with("\"" + std::string(201, 'w') + "\":" + entry), "longer than 200 bytes"},
      {with("\"w\":7"), "not a type, a shape and two offsets"},
      {with("\"w\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}"), "has type 'F64'"},
      {with("\"w\":{\"dtype\":3,\"shape\":[4],\"data_offsets\":[0,8]}"), "has no dtype"},
      {with("\"w\":{\"dtype\":\"BF16\",\"shape\":4,\"data_offsets\":[0,8]}"), "has no shape"},
      {with("\"w\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8,8]}"), "two offsets"},
      {with("\"w\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8],\"x\":1}"),
       "not a type, a shape and two offsets"},
      {with("\"w\":{\"dtype\":\"BF16\",\"shape\":[0],\"data_offsets\":[0,0]}"), "is empty"},
      {with("\"w\":{\"dtype\":\"BF16\",\"shape\":[-4],\"data_offsets\":[0,8]}"),
       "no integer from 0"},
      {with("\"w\":{\"dtype\":\"BF16\",\"shape\":[4.0],\"data_offsets\":[0,8]}"), "no integer"},
      {with("\"w\":{\"dtype\":\"BF16\",\"shape\":[1e300],\"data_offsets\":[0,8]}"), "no integer"},
      {with("\"w\":{\"dtype\":\"BF16\",\"shape\":[18446744073709551615],\"data_offsets\":[0,8]}"),
       "no integer from 0 to 2^62"},
      {with("\"w\":{\"dtype\":\"BF16\",\"shape\":[4294967296,4294967296],"
            "\"data_offsets\":[0,8]}"),
       "other bytes than its shape"},
      {with("\"w\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[8,0]}"),
       "other bytes than its shape"},
      {with("\"w\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[8,16]}"),
       "does not begin where the one before it ends"},
      {with("\"v\":" + entry + ",\"w\":" + entry), "does not begin where the one before it ends"},
      {with("\"w\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]}"),
       "its tensors have 6 bytes, and 8 are there"},
      {bytes_of(R"({"__metadata__":7})", 0), "__metadata__ is no object"},
      {bytes_of(R"({"__metadata__":{"vitune.format":1}})", 0), "no texts under printable names"},
      {bytes_of(R"({"__metadata__":{"vitune.format":"2"}})", 0), "take a newer vitune"},
      {bytes_of(R"({"__metadata__":{"vitune.format":"1","vitune.graph":"{"}})", 0),
       "its graph is no valid JSON"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(refusal(c.bytes), HasSubstr(c.why)) << c.bytes.substr(0, 200);
    EXPECT_NE(refusal(c.bytes), "") << c.bytes.substr(0, 200);
  }
}

// A header of `count` tensors of a byte each, beside its metadata.
std::string of_tensors(std::size_t count) {
  ordered_json header = {{"__metadata__", {{"vitune.format", "1"}, {"vitune.graph", "{}"}}}};
  std::string entries = header.dump();
  entries.pop_back();
  for (std::size_t i = 0; i < count; ++i) {
    entries +=
        formatted(R"(,"w{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", i, i, i + 1);
  }
  return bytes_of(entries + "}", count);
}

TEST(ModelFileTest, AsManyTensorsAsTheLimitAreThereBesideTheMetadata) {
  const ModelFolder folder;
  EXPECT_EQ(load_model_file(folder.write(of_tensors(kMaxModelTensors))).tensors.size(),
            kMaxModelTensors);
  EXPECT_THAT(refusal(of_tensors(kMaxModelTensors + 1)), HasSubstr("more than 20000 tensors"));
}

TEST(ModelFileTest, TextsOfMetadataAreBounded) {
  const auto with = [](const char* key, std::size_t size) {
    auto header = test::small_header(test::small_graph());
    header["__metadata__"][key] = std::string(size, ' ');
    return refusal(bytes_of(header.dump(), test::data_of(header)));
  };
  EXPECT_EQ(with("source", 1 << 20), "");
  EXPECT_THAT(with("source", (1 << 20) + 1), HasSubstr("'source' have 1048577 bytes; 1048576"));
  EXPECT_THAT(with("vitune.graph", (4 << 20) + 1), HasSubstr("4194304 are the most"));
}

TEST(ModelFileTest, WhatIsReadLaterIsOfTheFileThatWasOpened) {
  const ModelFolder folder;
  const ModelContainer file = load_model_file(folder.write(test::small_file()));
  std::filesystem::remove(file.path);
  folder.write(bytes_of(std::string(static_cast<std::size_t>(file.header_bytes), ' '),
                        test::small_file().size() - 8 - file.header_bytes + 4));
  EXPECT_EQ(check_model_digest(file), DigestCheck::kAbsent);
  std::string bytes(4, '\0');
  read_model_bytes(file, file.tensors.back().end - 4, bytes.data(), bytes.size());
  EXPECT_EQ(bytes, "\x3c\x3c\x3c\x3c");
}

TEST(ModelFileTest, WhatIsNoRegularFileIsNotOpened) {
  const ModelFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& path : {pipe, folder.path(), folder.path() / "none", folder.path() / "none/x"}) {
    EXPECT_THROW(load_model_file(path), Error) << path;
  }
}

TEST(ModelFileTest, AFileFullOfHolesIsRefusedWithoutReadingThem) {
  const ModelFolder folder;
  const auto path = folder.write(test::length_of_header((16 << 20) + 8) + "{");
  ASSERT_EQ(::truncate(path.c_str(), off_t{1} << 40), 0);
  test::begin_to_count_new();
  EXPECT_THROW(load_model_file(path), Error);
  EXPECT_LT(test::end_to_count_new().most_at_once, 64u << 10);
}

TEST(ModelFileTest, TheDigestTellsEachByteThatChanged) {
  const ModelFolder folder;
  auto header = test::small_header(test::small_graph());
  header["__metadata__"]["vitune.digest"] = "";
  const std::string empty = header.dump() + std::string(64, ' ');
  const std::size_t data = test::data_of(header);
  const std::string digest = sha256(bytes_of(empty, data)).hex();
  header["__metadata__"]["vitune.digest"] = digest;
  const std::string bytes = bytes_of(header.dump(), data);
  const auto check = [&](const std::string& content) {
    return check_model_digest(load_model_file(folder.write(content)));
  };
  EXPECT_EQ(check(bytes), DigestCheck::kSame);
  std::string other = bytes;
  other.back() ^= 1;
  EXPECT_EQ(check(other), DigestCheck::kDiffers);
  EXPECT_EQ(check(test::small_file()), DigestCheck::kAbsent);
}

TEST(ModelFileTest, AFileThatChangesItsSizeMeanwhileIsAnError) {
  const ModelFolder folder;
  auto header = test::small_header(test::small_graph());
  header["__metadata__"]["vitune.digest"] = std::string(64, '0');
  const auto path = folder.write(bytes_of(header.dump(), test::data_of(header)));
  const ModelContainer file = load_model_file(path);
  ASSERT_EQ(::truncate(path.c_str(), file.bytes - 1), 0);
  EXPECT_THROW(check_model_digest(file), Error);
}

TEST(ModelFileTest, TwentyThousandMutantsAreReadOrRefusedInBoundedMemory) {
  const ModelFolder folder;
  const std::string sound = test::small_file();
  test::ModelFuzzer fuzzer({sound}, 60);
  test::ModelFuzzReport report;
  while (report.runs < 20'000 && !report.finding) {
    test::begin_to_count_new();
    fuzzer.run(folder, report);
    const test::AllocationCount count = test::end_to_count_new();
    // No piece is as large as the file but its mutant and what the test itself writes and reads;
    // all together are what JSON of that length can be.
    ASSERT_LE(count.largest, 2 * sound.size() + 4096) << "run " << report.runs;
    ASSERT_LE(count.most_at_once, 40 * sound.size()) << "run " << report.runs;
  }
  EXPECT_EQ(report.finding, std::nullopt);
  EXPECT_GT(report.accepted, 100u);  // the bytes of weights may be any
  EXPECT_LT(report.accepted, 15'000u);
}

}  // namespace
}  // namespace vitune
