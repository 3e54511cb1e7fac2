// tests/generator/source_tokens_test.cpp -- Which changes of a text change its tokens.
// SPDX-License-Identifier: Apache-2.0
#include "generator/source_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "generator/compile_options.h"
#include "generator/operator.h"
#include "tests/devices.h"
#include "tests/generator/compile_support.h"

namespace vitune {
namespace {

using ::testing::ElementsAre;

constexpr const char* kVersion = "nvrtc 13.0 0123456789ab";

std::vector<std::string> split(const std::string& tokens) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < tokens.size();) {
    const std::size_t end = tokens.find('\0', at);
    found.push_back(tokens.substr(at, end - at));
    at = end + 1;
  }
  return found;
}

using Random = std::mt19937_64;

// Some layout that is not empty: blanks, comments and, where a line may end, line breaks.
std::string layout(Random& random, bool line_may_end) {
  static const std::vector<std::string> in_line = {
      " ", "\t", "   ", " /* a \"b */", " \\\n ", " /*\n#if 0\n*/"};
  static const std::vector<std::string> with_ends = {"\n", "\n\n\t", " // it's \"one\n",
                                                     " // joined \\\n #else\n"};
  std::string text;
  do {
    const bool ends = line_may_end && random() % 2 == 0;
    const auto& choices = ends ? with_ends : in_line;
    text += choices[random() % choices.size()];
  } while (random() % 3 == 0);
  return text;
}

bool is_bracket(const std::string& token) {
  return token.size() == 1 && std::string("(){}[];,").find(token) != std::string::npos;
}

// A text with these tokens, laid out by chance.
std::string laid_out(const std::vector<std::string>& tokens, Random& random) {
  std::string text;
  bool in_directive = false;
  const bool blanks_count = tokens.front() == "blanks";
  for (std::size_t i = blanks_count; i < tokens.size(); ++i) {
    const std::string& token = tokens[i];
    if (token == "\n#") {
      in_directive = true;
      text += "\n" + layout(random, true) + "\n#";
    } else if (token == "\n") {
      in_directive = false;
      text += "\n";
    } else if (in_directive || blanks_count) {
      text += token == " " ? layout(random, !in_directive) : token;
    } else {
      const bool may_touch = i > 0 && (is_bracket(token) || is_bracket(tokens[i - 1]));
      if (!may_touch || random() % 2 == 0) text += layout(random, true);
      text += token;
    }
  }
  return text;
}

TEST(SourceTokens, ArePutDownOneByOne) {
  EXPECT_THAT(split(tokens_of("int f(int a) { return a+ +1.5e-3f; } // end")),
              ElementsAre("int", "f", "(", "int", "a", ")", "{", "return", "a", "+", "+", "1.5e-3f",
                          ";", "}"));
  EXPECT_THAT(split(tokens_of("#define F(x) x /* of\nF */ + 1'000\nF")),
              ElementsAre("\n#", "define", " ", "F", "(", "x", ")", " ", "x", " ", "+", " ",
                          "1'000", "\n", "F"));
  EXPECT_THAT(split(tokens_of("u8R\"x(a \" )y\" // )x\"_s '\\'' L\"\\\"//\"w")),
              ElementsAre("u8R\"x(a \" )y\" // )x\"_s", "'\\''", "L\"\\\"//\"w"));
  EXPECT_THAT(split(tokens_of("A<B<C>>::d->*e")),
              ElementsAre("A", "<", "B", "<", "C", ">>::", "d", "->*", "e"));
}

TEST(SourceTokens, CommentsBlanksAndLineBreaksAreNone) {
  const struct {
    const char* one;
    const char* other;
  } cases[] = {
      {"int a;", "int\n\ta ; // of it"},
      {"int a;", "/* an */int/**/a;"},
      {"f(a, b)", "f( a,\n   b )"},
      {"#if A\nint b;\n#endif\n", "  #  if   A // why\n\n\nint b;\n#endif"},
      {"#define F(x) x + 1\n", "#define  F(x)\\\n x  \\\n  +  1\n"},
      {"a // b \\\n c\nd", "a d"},
      {"a /* \" */ b", "a b"},
      {"a\n/* b */ #define c\n", "a\n#define c\n"},
      {"#define a /* b\n c */ d\n", "#define a d\n"},
      {"", " // nothing\n"},
      {"#define S(x) #x\nS(a + b)", "#define S(x)  #x // a string\nS(a   +\nb)"},
  };
  for (const auto& [one, other] : cases) EXPECT_EQ(tokens_of(one), tokens_of(other)) << other;
}

TEST(SourceTokens, DifferWhereACompilerReadsAnotherText) {
  const struct {
    const char* one;
    const char* other;
  } cases[] = {
      {"a + +b", "a ++b"},
      {"a - -1", "a --1"},
      {"ab", "a b"},
      {"1.5", "1 .5"},
      {"+.5", "+. 5"},
      {"a<::b", "a<: :b"},
      {"a = b", "a == b"},
      {"\"a  b\"", "\"a b\""},
      {"\"a\"_s", "\"a\" _s"},
      {"R\"(a)\"", "R \"(a)\""},
      {"R\"(a\n b)\"", "R\"(a\nb)\""},
      {"\"/* a */\"", "\"\""},
      {"'a'", "' a'"},
      {"#define F(x) y\n", "#define F (x) y\n"},
      {"#define F x\ny\n", "#define F x y\n"},
      {"#define F x\\\ny\n", "#define F x y\n"},
      {"#define F #x\n", "#define F # x\n"},
      {"a\n#if b\n", "a #if b\n"},
      {"a // b\nc", "a // b c"},
      {"a // b \\\nc\nd", "a // b\nc\nd"},
      {"a\\\nb c", "a b c"},
      {"%:define F (x)\n", "%:define F(x)\n"},
      {"f(\"a)\n b", "f(\"a)\nb"},
      {"a <<< b", "a << < b"},
      {"a,b", "a b"},
      // Here the compiler's comment ends at the joined "*" and "/".
      {"/* a *\\\n/ #x \n/* */", "/* a *\\\n/ #y \n/* */"},
      {"/* a *\\ \t\n/ b /* */", "/* a *\\ \t\n/ c /* */"},
      // Some compilers join a line whose backslash blanks follow.
      {"// a \\ \nb c\nd", "// a \\ \nb\nc d"},
      {"// a \\\r\nb c\nd", "// a \\\r\nb\nc d"},
      // The part that is given up begins where the last token ends.
      {"f(a \\b", "f(a\\b"},
      {"f(a\n\\b", "f(a \\b"},
      {"#define F \\b", "#define F\\b"},
      {"#define \"a", "#define  \"a"},
      {"#define S(x) #x\nS(a+b)", "#define S(x) #x\nS(a + b)"},
  };
  for (const auto& [one, other] : cases) EXPECT_NE(tokens_of(one), tokens_of(other)) << other;
}

TEST(SourceTokens, OfEveryTemplateSurviveAnyLayoutAndSeeAnyOtherToken) {
  Random random(20261128);
  for (const EmbeddedFile& file : embedded_templates()) {
    const std::string tokens = tokens_of(file.text);
    const std::vector<std::string> list = split(tokens);
    ASSERT_GT(list.size(), 3u) << file.path;
    for (int round = 0; round < 3; ++round) {
      const std::string text = laid_out(list, random);
      ASSERT_EQ(tokens_of(text), tokens) << file.path << ", laid out as\n" << text;
      auto changed = list;
      const std::size_t at = random() % list.size();
      if (list[at] == " " || list[at][0] == '\n') continue;
      changed[at] = round == 0 ? "another" : round == 1 ? changed[at] + " x" : "";
      EXPECT_NE(tokens_of(laid_out(changed, random)), tokens)
          << file.path << ", token " << at << ": " << list[at];
    }
  }
}

TEST(SourceTokens, OfBytesByChanceAreFoundWithoutACrash) {
  Random random(7);
  const std::string_view some = "ab1.'\"\\\n #%/*()<>R\t";
  for (int round = 0; round < 20000; ++round) {
    std::string text(random() % 40, ' ');
    for (char& c : text) c = some[random() % some.size()];
    const std::string tokens = tokens_of(text);
    EXPECT_TRUE(tokens.empty() || tokens.back() == '\0') << text;
    EXPECT_EQ(tokens_of(text), tokens);
  }
}

// These words see lines or files, which are no tokens.
TEST(SourceTokens, SayAllThatATemplateAsksFor) {
  const std::regex sees_layout(
      "__LINE__|__FILE__|__BASE_FILE__|__COUNTER__|__builtin_LINE|__builtin_FILE|source_location|"
      "__DATE__|__TIME__|__TIMESTAMP__");
  for (const EmbeddedFile& file : embedded_templates()) {
    const std::string text(file.text);
    EXPECT_FALSE(std::regex_search(text, sees_layout)) << file.path;
  }
}

// A macro that makes a string of its argument sees the blanks of its own file only.
TEST(SourceTokens, OfMacrosThatMakeStringsAreUsedInTheirOwnFile) {
  int found = 0;
  for (const EmbeddedFile& file : embedded_templates()) {
    const std::vector<std::string> tokens = split(tokens_of(file.text));
    if (tokens.front() != "blanks") continue;
    for (std::size_t i = 3; i < tokens.size(); ++i) {
      if (tokens[i - 3] != "\n#" || tokens[i - 2] != "define") continue;
      for (const EmbeddedFile& other : embedded_templates()) {
        const std::vector<std::string> words = split(tokens_of(other.text));
        const bool uses = std::ranges::find(words, tokens[i]) != words.end();
        EXPECT_TRUE(other.path == file.path || !uses) << other.path << " uses " << tokens[i];
      }
      ++found;
    }
  }
  EXPECT_GT(found, 0);
}

TEST(TokenKey, CountsTokensAndNoLayout) {
  const CompileRequest base = test::request_for("#include \"attention/params.cuh\"\nint a;\n");
  const Digest key = kernel_key(base, kVersion);
  CompileRequest explained = base;
  explained.source.main = "// A kernel.\n#include \"attention/params.cuh\"\n\nint  a ;";
  const std::string longer = "// Of a call.\n" + std::string(base.source.headers[0].text) + "\n";
  explained.source.headers[0].text = longer;
  EXPECT_EQ(kernel_key(explained, kVersion), key);
  EXPECT_NE(text_kernel_key(explained, kVersion), text_kernel_key(base, kVersion));
  explained.line_info = true;
  CompileRequest lines = base;
  lines.line_info = true;
  EXPECT_NE(kernel_key(explained, kVersion), kernel_key(lines, kVersion));

  CompileRequest other = base;
  const std::string renamed = longer + "struct Another;\n";
  other.source.headers[0].text = renamed;
  EXPECT_NE(kernel_key(other, kVersion), key);
  other = base;
  other.source.headers[0].path = "attention/other.cuh";
  EXPECT_NE(kernel_key(other, kVersion), key);
}

class LaidOutKernels : public test::RealCompilerTest {};

// The compiler's word for it: one kernel of each operator, every file of it laid out by chance.
TEST_F(LaidOutKernels, AreTheSameMachineCode) {
  Random random(3);
  const DeviceInfo device = testing_support::h200_device();
  for (const char* text :
       {"attention bf16 b=2 h=3 nq=197 nk=197 d=64 layout=packed",
        "linear bf16 m=512 n=256 k=256 bias", "norm bf16 m=64 d=768 weight bias",
        "group_norm bf16 n=1 c=512 l=16 g=8 nhwc weight bias mish",
        "window_attention bf16 b=32 image=28x28 window=7x7 h=6 d=32 bias=bf16:1x6x49x49"}) {
    const ProblemPtr problem = parse_problem(text);
    const Config config = default_config(*problem, device);
    CompileRequest request = problem->op().request(*problem, config, device.arch());
    if (!request.library.empty()) continue;
    const CompileResult before = compiler_->compile(request);
    ASSERT_EQ(before.status, CompileStatus::kOk) << text << ": " << before.log;
    std::vector<std::string> texts;
    texts.reserve(request.source.headers.size());
    for (EmbeddedFile& header : request.source.headers) {
      texts.push_back(laid_out(split(tokens_of(header.text)), random));
      header.text = texts.back();
    }
    const Digest key = kernel_key(request, kVersion);
    EXPECT_EQ(key, kernel_key(problem->op().request(*problem, config, device.arch()), kVersion));
    const CompileResult after = compiler_->compile(request);
    ASSERT_EQ(after.status, CompileStatus::kOk) << text << ": " << after.log;
    EXPECT_TRUE(after.cubin == before.cubin) << text;
  }
}

}  // namespace
}  // namespace vitune
