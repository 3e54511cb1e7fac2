// tests/runtime/library_test.cpp -- What libvitune shows, what it needs to be loaded, and what
// closing it does.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/temporary_directory.h"

namespace vitune {
namespace {

// The output of a command; nothing if it cannot be run.
std::string output_of(const std::string& command) {
  std::string text;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  std::array<char, 4096> block;
  for (std::size_t n; (n = fread(block.data(), 1, block.size(), pipe)) > 0;) {
    text.append(block.data(), n);
  }
  return pclose(pipe) == 0 ? text : "";
}

bool has_binutils() { return !output_of("nm --version 2>/dev/null").empty(); }

std::set<std::string> declared_functions() {
  std::ifstream header(VITUNE_SOURCE_DIR "/include/vitune/vitune.h");
  std::ostringstream content;
  content << header.rdbuf();
  const std::string text = content.str();
  // The word before the first parenthesis after each mark, "vitune_version(" of
  // "VITUNE_API int32_t vitune_version(void)"; not of the mark's own definitions.
  std::set<std::string> names;
  const std::string mark = "VITUNE_API ";
  for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; ++at) {
    if (text.substr(0, at).ends_with("#define ")) continue;
    const std::size_t end = text.find('(', at);
    const std::size_t start = text.find_last_of(" *\n", end) + 1;
    names.insert(text.substr(start, end - start));
  }
  return names;
}

TEST(SharedLibrary, ShowsTheFunctionsOfItsHeaderAndNothingElse) {
  if (!has_binutils()) GTEST_SKIP() << "nm is not installed";
  std::istringstream lines(output_of("nm -D --defined-only " VITUNE_SHARED_LIBRARY));
  std::set<std::string> shown;
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.substr(line.rfind(' ') + 1);
    shown.insert(name.substr(0, name.find('@')));
  }
  EXPECT_GE(declared_functions().size(), 13u);
  EXPECT_EQ(shown, declared_functions());
}

TEST(SharedLibrary, NeedsNoCudaToBeLoaded) {
  if (!has_binutils()) GTEST_SKIP() << "readelf is not installed";
  const std::string needs = output_of("readelf -d " VITUNE_SHARED_LIBRARY);
  EXPECT_THAT(needs, testing::HasSubstr("Library soname: [libvitune.so.0]"));
  EXPECT_THAT(needs, testing::HasSubstr("NEEDED"));
  for (const char* library : {"libcuda", "libnvrtc", "libcudart", "libboost", "libspdlog"}) {
    EXPECT_THAT(needs, testing::Not(testing::HasSubstr(library)));
  }
  EXPECT_THAT(needs, testing::Not(testing::HasSubstr("TEXTREL")));
  EXPECT_THAT(output_of("readelf -lW " VITUNE_SHARED_LIBRARY),
              testing::Not(testing::ContainsRegex("GNU_STACK.*RWE")));
}

// Its thread's code must not go away below it.
TEST(SharedLibrary, ClosedBesideAContextThatRefreshesItStaysAndTheContextGoesOn) {
  const test::TemporaryDirectory directory;
  const std::string said =
      output_of(VITUNE_CLOSE_LIBRARY " " VITUNE_SHARED_LIBRARY " " VITUNE_MOCK_LIBCUDA " '" +
                (directory / "user.db").string() + "'");
  EXPECT_THAT(said, testing::HasSubstr("serving default kernels only"));
}

}  // namespace
}  // namespace vitune
