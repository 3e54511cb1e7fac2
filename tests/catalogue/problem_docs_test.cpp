// tests/catalogue/problem_docs_test.cpp -- The problems that docs/problems.md shows are real ones.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "catalogue/problem_set.h"
#include "generator/attention/problem.h"

namespace vitune {
namespace {

std::string manual() {
  std::ifstream file(std::filesystem::path(VITUNE_SOURCE_DIR) / "docs" / "problems.md");
  return {std::istreambuf_iterator<char>(file), {}};
}

// The texts between backticks in a line of the manual.
std::vector<std::string> code_spans() {
  const std::string text = manual();
  std::vector<std::string> spans;
  for (std::size_t begin = 0; (begin = text.find('`', begin)) != std::string::npos;) {
    const std::size_t end = text.find_first_of("`\n", begin + 1);
    if (end == std::string::npos) break;
    if (text[end] == '`') spans.push_back(text.substr(begin + 1, end - begin - 1));
    begin = end + 1;
  }
  return spans;
}

bool begins_a_problem(std::string_view span) {
  return span.starts_with("attention bf16 ") || span.starts_with("bf16 b=") ||
         span.starts_with("fp16 b=");
}

// "bias=fp32:1x12x197x197" is an example; "bias=" and "type:dims[@strides]" are not.
bool is_operand(std::string_view span) {
  return (span.starts_with("bias=") || span.starts_with("mask=")) &&
         span.find('x') != std::string_view::npos;
}

TEST(ProblemDocs, EveryProblemShownIsAccepted) {
  int count = 0;
  for (const std::string& span : code_spans()) {
    if (!begins_a_problem(span)) continue;
    ++count;
    EXPECT_NO_THROW(AttentionProblem::parse(span)) << span;
  }
  EXPECT_GE(count, 12);
}

TEST(ProblemDocs, EveryGroupNormShownIsAccepted) {
  int count = 0;
  for (const std::string& span : code_spans()) {
    if (!span.starts_with("group_norm ")) continue;
    ++count;
    EXPECT_EQ(parse_problem(span)->text(), span);
  }
  EXPECT_GE(count, 3);
}

TEST(ProblemDocs, EveryLinearLayerShownIsAccepted) {
  int count = 0;
  for (const std::string& span : code_spans()) {
    if (!span.starts_with("linear ")) continue;
    ++count;
    EXPECT_EQ(parse_problem(span)->text(), span);
  }
  EXPECT_GE(count, 4);
}

TEST(ProblemDocs, EveryWeightGradientShownIsAccepted) {
  int count = 0;
  for (const std::string& span : code_spans()) {
    if (!span.starts_with("linear_weight_grad ")) continue;
    ++count;
    EXPECT_EQ(parse_problem(span)->text(), span);
  }
  EXPECT_GE(count, 2);
}

TEST(ProblemDocs, EveryGradientOfANormShownIsAccepted) {
  int count = 0;
  for (const std::string& span : code_spans()) {
    if (!span.starts_with("norm_backward ")) continue;
    ++count;
    EXPECT_EQ(parse_problem(span)->text(), span);
  }
  EXPECT_GE(count, 3);
}

TEST(ProblemDocs, EveryGradientOfAttentionShownIsAccepted) {
  int count = 0;
  for (const std::string& span : code_spans()) {
    if (!span.starts_with("attention_backward ")) continue;
    ++count;
    EXPECT_EQ(parse_problem(span)->text(), span);
  }
  EXPECT_GE(count, 4);
}

TEST(ProblemDocs, EveryWindowAttentionShownIsAccepted) {
  int count = 0;
  for (const std::string& span : code_spans()) {
    if (!span.starts_with("window_attention ")) continue;
    ++count;
    EXPECT_EQ(parse_problem(span)->text(), span);
  }
  EXPECT_GE(count, 5);
}

TEST(ProblemDocs, EveryGradientOfWindowsShownIsAccepted) {
  int count = 0;
  for (const std::string& span : code_spans()) {
    if (!span.starts_with("window_attention_backward ")) continue;
    ++count;
    EXPECT_EQ(parse_problem(span)->text(), span);
  }
  EXPECT_GE(count, 4);
}

TEST(ProblemDocs, EveryPackedAttentionShownIsAccepted) {
  int count = 0;
  for (const std::string& span : code_spans()) {
    if (!span.starts_with("packed_attention ")) continue;
    ++count;
    EXPECT_EQ(parse_problem(span)->text(), span);
  }
  EXPECT_GE(count, 4);
}

TEST(ProblemDocs, EveryMapShownIsAccepted) {
  int count = 0;
  for (const std::string& span : code_spans()) {
    if (!span.starts_with("map ")) continue;
    ++count;
    EXPECT_EQ(parse_problem(span)->text(), span);
  }
  EXPECT_GE(count, 8);
}

TEST(ProblemDocs, EveryOperandShownIsAccepted) {
  int count = 0;
  for (const std::string& operand : code_spans()) {
    if (!is_operand(operand)) continue;
    ++count;
    // The scores of each example are known by its dimensions.
    std::string scores = "bf16 b=64 h=12 n=197 d=64 ";
    if (operand.find("300") != std::string::npos) scores = "bf16 b=2 h=16 nq=9 nk=300 d=72 ";
    if (operand.find("49x49") != std::string::npos) scores = "bf16 b=128 h=3 n=49 d=32 ";
    if (operand.find("196x196") != std::string::npos) scores = "bf16 b=100 h=16 n=196 d=80 ";
    EXPECT_NO_THROW(AttentionProblem::parse(scores + operand)) << operand;
  }
  EXPECT_EQ(count, 7);
}

TEST(ProblemDocs, EveryPresetIsListed) {
  const std::string text = manual();
  for (const std::string& name : preset_names()) {
    EXPECT_THAT(text, testing::HasSubstr("| `" + name + "` | ")) << name;
  }
}

}  // namespace
}  // namespace vitune
