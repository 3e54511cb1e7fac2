// tests/generator/source_test.cpp -- Include closures, their digests and what may not be included.
// SPDX-License-Identifier: Apache-2.0
#include "generator/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"

namespace vitune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// a -> b -> d, a -> c -> d, d -> a (a cycle); stranger stands alone.
std::vector<EmbeddedFile> small_tree() {
  return {{"attention/a.cuh", "#pragma once\n#include \"primitives/b.cuh\"\n#include \"c.cuh\"\n"},
          {"c.cuh", "  #  include \"primitives/d.cuh\"  // included for D\n"},
          {"primitives/b.cuh", "#pragma once\n#include \"primitives/d.cuh\"\nint b;\n"},
          {"primitives/d.cuh", "#pragma once\n#include \"attention/a.cuh\"\nint d;\n"},
          {"stranger.cuh", "int stranger;\n"}};
}

constexpr const char* kMain = "#include \"attention/a.cuh\"\nint main_text;\n";

std::vector<std::string_view> paths_of(const Source& source) {
  std::vector<std::string_view> paths;
  for (const EmbeddedFile& file : source.headers) paths.push_back(file.path);
  return paths;
}

std::string refusal_of(const std::string& main) {
  const auto files = small_tree();
  try {
    assemble(main, files);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailure);
    return error.what();
  }
  return "accepted";
}

TEST(Source, TheClosureHoldsEachIncludedFileOnceSortedByPath) {
  const auto files = small_tree();
  const Source source = assemble(kMain, files);
  EXPECT_THAT(paths_of(source),
              ElementsAre("attention/a.cuh", "c.cuh", "primitives/b.cuh", "primitives/d.cuh"));
  EXPECT_EQ(source.main, kMain);
}

TEST(Source, TheDigestChangesWithAnyByteOfTheClosureAndWithNothingElse) {
  const auto files = small_tree();
  const Digest before = assemble(kMain, files).digest();
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (std::size_t at = 0; at < files[i].text.size(); ++at) {
      // A letter of an `int` line stays plain text; changed directives are other tests' matter.
      if (files[i].text.substr(at, 3) != "int") continue;
      std::string text(files[i].text);
      text[at] = 'u';
      auto changed = files;
      changed[i].text = text;
      const bool same = assemble(kMain, changed).digest() == before;
      EXPECT_EQ(same, files[i].path == "stranger.cuh") << files[i].path << " byte " << at;
    }
    auto longer = files;
    const std::string text = std::string(files[i].text) + " ";
    longer[i].text = text;
    const bool same = assemble(kMain, longer).digest() == before;
    EXPECT_EQ(same, files[i].path == "stranger.cuh") << files[i].path << " with a blank more";
  }
  EXPECT_NE(assemble(std::string(kMain) + " ", files).digest(), before);
}

TEST(Source, MovingAByteFromOneFileToTheNextChangesTheDigest) {
  const Source one{"m", {{"a", "xy"}, {"b", "z"}}};
  const Source other{"m", {{"a", "x"}, {"b", "yz"}}};
  EXPECT_NE(one.digest(), other.digest());
}

TEST(Source, EveryEmbeddedTemplateHasAWholeClosureAndADigestThatSeesItsBytes) {
  ASSERT_FALSE(embedded_templates().empty());
  for (const EmbeddedFile& file : embedded_templates()) {
    const std::string main = "#include \"" + std::string(file.path) + "\"\n";
    const Source source = assemble(main);
    for (std::size_t i = 0; i < source.headers.size(); ++i) {
      Source changed = source;
      std::string text(changed.headers[i].text);
      text.front() = static_cast<char>(text.front() ^ 1);
      changed.headers[i].text = text;
      EXPECT_NE(changed.digest(), source.digest()) << source.headers[i].path;
    }
  }
}

// CMake's list of an embedded file decides which files a kernel is made of; the scan is the judge.
TEST(Source, WhatIsListedWithAnEmbeddedFileIsWhatTheScanFindsInIt) {
  std::size_t listed = 0;
  for (const EmbeddedFile& file : embedded_templates()) {
    const std::string main = "#include \"" + std::string(file.path) + "\"\n";
    const Source scanned = assemble(main, embedded_templates());
    const Source by_list = assemble(main);
    EXPECT_EQ(paths_of(by_list), paths_of(scanned)) << file.path;
    EXPECT_EQ(by_list.digest(), scanned.digest()) << file.path;
    listed += file.includes.size();
  }
  EXPECT_GT(listed, embedded_templates().size());
}

TEST(Source, AnUnknownTemplateIsNamedInTheError) {
  try {
    embedded_template("attention/nothing.cuh");
    FAIL() << "found";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("attention/nothing.cuh"));
  }
  EXPECT_EQ(embedded_template("attention/params.cuh").substr(0, 2), "//");
}

TEST(Source, NothingOutsideTheEmbeddedFilesCanBeNamed) {
  const std::string texts[] = {
      "#include \"/etc/passwd\"",
      "#include \"../c.cuh\"",
      "#include \"./c.cuh\"",
      "#include \"b.cuh\"",
      "#include <c.cuh>",
      "#include <cuda_fp16.h>",
      "#define F \"c.cuh\"\n#include F",
      "#include_next \"c.cuh\"",
      "#import \"c.cuh\"",
      "import \"c.cuh\";",
      "#embed \"/etc/passwd\"",
      "%:include \"/etc/passwd\"",
      "?\?=include \"/etc/passwd\"",
      "/* */ #include \"/etc/passwd\"",
      "#/* */include \"/etc/passwd\"",
      "#/*\n*/include \"/etc/passwd\"",
      "/* // */ #include \"/etc/passwd\"",
      "/*\n// */ #include \"/etc/passwd\"",
      "#inc\\\nlude \"/etc/passwd\"",
      "#inc\\ \nlude \"/etc/passwd\"",
      "#inc?\?/\nlude \"/etc/passwd\"",
      "#include \"c.cuh\" \"/etc/passwd\"",
      "#include \"c.cuh\\\" \"",
      "#if __has_include(\"/etc/passwd\")\n#endif",
      "// a comment\r#include \"/etc/passwd\"",
      std::string("int a;\0#include \"/etc/passwd\"", 29),
  };
  for (const std::string& text : texts) EXPECT_NE(refusal_of(text + "\n"), "accepted") << text;
}

TEST(Source, AnIncludeInsideAHeaderIsRefusedToo) {
  const std::vector<EmbeddedFile> files = {{"a.cuh", "#include \"/etc/passwd\"\n"}};
  EXPECT_THROW(assemble("#include \"a.cuh\"\n", files), Error);
}

TEST(Source, TheErrorSaysWhichFileAndLine) {
  EXPECT_THAT(refusal_of("int a;\n#include <x>\n"), HasSubstr("kernel.cu:2"));
  EXPECT_THAT(refusal_of("#include \"/etc/passwd\"\n"), HasSubstr("/etc/passwd"));
}

TEST(Source, ProseAndMacrosAreNotMistakenForIncludes) {
  for (const char* text : {"// to include <x> is refused\n", "int included; // import nothing\n",
                           "#define TWO_LINES \\\n  2\n", "  // #include \"/etc/passwd\"\n",
                           "int x = 1 / 2; /* comment */\n", "#include \"c.cuh\""}) {
    EXPECT_EQ(refusal_of(text), "accepted") << text;
  }
}

}  // namespace
}  // namespace vitune
