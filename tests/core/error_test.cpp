// tests/core/error_test.cpp -- Exit statuses are what the command's documentation says.
// SPDX-License-Identifier: Apache-2.0
#include "core/error.h"

#include <gtest/gtest.h>

namespace vitune {
namespace {

TEST(ErrorTest, EveryCodeHasItsDocumentedExitStatus) {
  const std::pair<ErrorCode, int> kCases[] = {
      {ErrorCode::kFailure, 1},       {ErrorCode::kUsage, 2},        {ErrorCode::kUnsupported, 2},
      {ErrorCode::kNoDevice, 3},      {ErrorCode::kVerification, 4}, {ErrorCode::kDatabase, 5},
      {ErrorCode::kInterrupted, 130}, {ErrorCode::kNoCompiler, 1},
  };
  for (const auto& [code, status] : kCases) EXPECT_EQ(exit_status(code), status);
}

TEST(ErrorTest, AnErrorKeepsItsCodeAndText) {
  const Error error(ErrorCode::kDatabase, "locked");
  EXPECT_EQ(error.code(), ErrorCode::kDatabase);
  EXPECT_STREQ(error.what(), "locked");
}

}  // namespace
}  // namespace vitune
