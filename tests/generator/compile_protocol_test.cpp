// tests/generator/compile_protocol_test.cpp -- Messages between pool and worker, whole and damaged.
// SPDX-License-Identifier: Apache-2.0
#include "generator/compile_protocol.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/generator/elf_image.h"

namespace vitune {
namespace {

using std::chrono::milliseconds;
using test::elf_image;

TEST(CompileProtocol, MessagesArriveAsTheyWereSent) {
  CompileJob sent;
  sent.main = "int x; // \xc3\xa4 \xff";
  sent.source = sha256("x");
  sent.arch = "sm_90a";
  sent.entry = "k";
  sent.line_info = true;
  sent.deadline = milliseconds(1234);
  const auto received = decode_job(encode(sent));
  ASSERT_TRUE(received);
  EXPECT_EQ(received->main, sent.main);
  EXPECT_EQ(received->source, sent.source);
  EXPECT_EQ(received->arch, sent.arch);
  EXPECT_EQ(received->entry, sent.entry);
  EXPECT_EQ(received->line_info, sent.line_info);
  EXPECT_EQ(received->deadline, sent.deadline);
}

TEST(CompileProtocol, OtherPayloadsAreRefusedWithoutACrash) {
  CompileResult result;
  result.status = CompileStatus::kOk;
  result.cubin = elf_image();
  const std::string good = encode(result);
  ASSERT_TRUE(decode_result(good));
  EXPECT_FALSE(decode_result(""));
  EXPECT_FALSE(decode_result(good + "x"));
  EXPECT_FALSE(decode_compile_hello(good));
  EXPECT_FALSE(decode_job(good));
  EXPECT_FALSE(decode_result(std::string(8 << 20, '\x81'))) << "arrays within arrays";
  EXPECT_FALSE(decode_result(std::string(8 << 20, '\xa1'))) << "maps within maps";
  EXPECT_FALSE(decode_result("\xbf" + std::string(1 << 10, '\x5f'))) << "endless strings";
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(decode_result(good.substr(0, size))) << size;
  }
  CompileResult no_cubin = result;
  no_cubin.cubin.clear();
  EXPECT_FALSE(decode_result(encode(no_cubin)));
  std::mt19937_64 random(5);
  for (int i = 0; i < 20000; ++i) {
    std::string mutant = good;
    for (int change = 0; change < 3; ++change) {
      mutant[random() % mutant.size()] = static_cast<char>(random());
    }
    const auto decoded = decode_result(mutant);
    if (decoded && decoded->status == CompileStatus::kOk) {
      EXPECT_TRUE(cubin_is_well_formed(decoded->cubin));
    }
  }
}

}  // namespace
}  // namespace vitune
