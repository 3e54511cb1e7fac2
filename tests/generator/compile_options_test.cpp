// tests/generator/compile_options_test.cpp -- The option table, the kernel key and the compiler's
// log.
// SPDX-License-Identifier: Apache-2.0
#include "generator/compile_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "core/error.h"
#include "generator/compile_log.h"
#include "tests/generator/compile_support.h"

namespace vitune {
namespace {

using test::kSmallKernel;
using test::request_for;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CompileOptions, ComeFromAFixedTableByVersion) {
  const CompileRequest request = request_for(kSmallKernel, "sm_90a");
  EXPECT_THAT(
      compile_options(request, {13, 0}),
      ElementsAre("--gpu-architecture=sm_90a", "--std=c++20", "--fmad=true", "-default-device",
                  "--no-source-include", "--ptxas-options=-v", "--no-cache"));
  EXPECT_THAT(compile_options(request, {12, 8}), Not(Contains("--no-cache")));
  EXPECT_THAT(compile_options(request, {12, 9}), Contains("--no-cache"));
  EXPECT_THAT(compile_options(request, {11, 8}), Contains("--std=c++17"));
  EXPECT_THAT(compile_options(request, {13, 0}), Not(Contains("-lineinfo")));
  CompileRequest with_lines = request;
  with_lines.line_info = true;
  EXPECT_THAT(compile_options(with_lines, {13, 0}), Contains("-lineinfo"));
}

TEST(CompileOptions, AnythingButAnArchitectureIsRefused) {
  for (const char* arch : {"", "sm_", "sm_9", "sm_90 ", "sm_90aa", "sm_9000", "compute_90", "SM_90",
                           "sm_90 --pre-include=/etc/passwd", "sm_90\n-I/tmp", "sm_9x"}) {
    EXPECT_THROW(compile_options(request_for(kSmallKernel, arch), {13, 0}), Error) << arch;
  }
  for (const char* arch : {"sm_80", "sm_100", "sm_90a", "sm_103f"}) {
    EXPECT_NO_THROW(compile_options(request_for(kSmallKernel, arch), {13, 0})) << arch;
  }
}

TEST(CompileOptions, TheVersionIsReadBackFromItsText) {
  const struct {
    const char* text;
    NvrtcVersion version;
  } cases[] = {{"nvrtc 13.0 0123456789ab", {13, 0}},
               {"nvrtc 12.9 x", {12, 9}},
               {"nvrtc 13", {}},
               {"nvrtc x.y", {}},
               {"", {}},
               {"nvrtc 13.", {}},
               {"nvrtc 99999999999.1", {}}};
  for (const auto& [text, version] : cases) EXPECT_EQ(parse_nvrtc_version(text), version) << text;
}

TEST(KernelKey, DependsOnEverythingThatMakesTheCubin) {
  const std::string version = "nvrtc 13.0 0123456789ab";
  const CompileRequest base = request_for("#include \"attention/params.cuh\"\n");
  std::vector<std::pair<const char*, Digest>> keys = {{"base", kernel_key(base, version)}};
  const auto add = [&](const char* what, auto change) {
    CompileRequest request = base;
    change(request);
    keys.emplace_back(what, kernel_key(request, version));
  };
  const std::string other_header = std::string(base.source.headers.front().text) + "struct A;\n";
  add("main", [](CompileRequest& r) { r.source.main += "struct A;\n"; });
  add("header", [&](CompileRequest& r) { r.source.headers.front().text = other_header; });
  add("header name", [](CompileRequest& r) { r.source.headers.front().path = "other.cuh"; });
  add("arch", [](CompileRequest& r) { r.arch = "sm_90"; });
  add("entry", [](CompileRequest& r) { r.entry = "l"; });
  add("line info", [](CompileRequest& r) { r.line_info = true; });
  keys.emplace_back("build", kernel_key(base, "nvrtc 13.0 0123456789ac"));
  keys.emplace_back("version", kernel_key(base, "nvrtc 13.1 0123456789ab"));

  std::set<Digest> distinct;
  for (const auto& [what, key] : keys) EXPECT_TRUE(distinct.insert(key).second) << what;
  EXPECT_EQ(kernel_key(base, version), keys.front().second);
}

constexpr const char* kTwoKernels =
    "ptxas info    : 8 bytes gmem\n"
    "ptxas info    : Compiling entry function 'other' for 'sm_90'\n"
    "ptxas info    : Function properties for other\n"
    "ptxas         .     0 bytes stack frame, 100 bytes spill stores, 200 bytes spill loads\n"
    "ptxas info    : Used 99 registers, used 0 barriers\n"
    "ptxas info    : Compiling entry function 'k' for 'sm_90'\n"
    "ptxas info    : Function properties for k\n"
    "ptxas         .     512 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n"
    "ptxas info    : Used 32 registers, used 1 barriers, 512 bytes cumulative stack size, 400 "
    "bytes "
    "smem\n"
    "ptxas info    : Function properties for _Z1gPfi\n"
    "ptxas         .     0 bytes stack frame, 4 bytes spill stores, 1 bytes spill loads\n";

TEST(CompileLog, FactsAreThoseOfAKernelAndWhatItCalls) {
  const std::string text = kTwoKernels;
  const std::string only_k = text.substr(text.find("ptxas info    : Compiling entry function 'k'"));
  EXPECT_EQ(parse_compile_log(only_k, "k"), (CompileFacts{32, 25, 400, 0}));
}

TEST(CompileLog, OfSeveralKernelsTheWorstCounts) {
  // 'k' is asked for; 'other', another launch of the same call, spills more and has less memory.
  EXPECT_EQ(parse_compile_log(kTwoKernels, "k"), (CompileFacts{99, 300, 400, 0}));
  EXPECT_EQ(parse_compile_log(kTwoKernels, "other"), (CompileFacts{99, 300, 400, 0}));
  EXPECT_EQ(parse_compile_log(kTwoKernels, "kk"), std::nullopt);
  EXPECT_EQ(parse_compile_log(kTwoKernels, "othe"), std::nullopt);
  const std::string silent =
      std::string(kTwoKernels) + "ptxas info    : Compiling entry function 'last' for 'sm_90'\n";
  EXPECT_EQ(parse_compile_log(silent, "k"), std::nullopt);
  EXPECT_EQ(parse_compile_log("", "k"), std::nullopt);
}

TEST(CompileLog, NonsenseGivesNoFactsAndNoCrash) {
  const std::string text = kTwoKernels;
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::string mutant = text;
    for (int change = 0; change < 4; ++change) {
      mutant[random() % mutant.size()] = static_cast<char>(random());
    }
    mutant.resize(random() % (mutant.size() + 1));
    parse_compile_log(mutant, "k");
  }
  EXPECT_EQ(
      parse_compile_log("Compiling entry function 'k'\nUsed 99999999999999999999 registers", "k"),
      std::nullopt);
}

TEST(CompileLog, LongLogsAreCutBetweenLinesAndSayHowMuchIsMissing) {
  std::string lines;
  while (lines.size() < 100000)
    lines += "kernel.cu(1): error: this is line " + std::to_string(lines.size()) + "\n";
  const std::string cut = bounded_log(lines);
  EXPECT_LE(cut.size(), kMaxCompileLog);
  EXPECT_GT(cut.size(), kMaxCompileLog / 2);
  EXPECT_THAT(cut, HasSubstr(" bytes more)"));
  EXPECT_TRUE(lines.starts_with(cut.substr(0, cut.rfind('\n') + 1)));
  EXPECT_EQ(bounded_log("short\n\n"), "short");
  std::string umlauts;
  while (umlauts.size() < 10000) umlauts += "\xc3\xa4";
  const std::string whole = bounded_log(umlauts);
  EXPECT_EQ(whole.find("\n...") % 2, 0u) << "cut inside a character";
}

TEST(CompileLog, TheLineThatSaysWhyIsTheFirstErrorElseTheFirstWithAWord) {
  EXPECT_EQ(decisive_line("NVRTC: NVRTC_ERROR_COMPILATION\nptxas info: x\r\n"
                          "ptxas fatal   : (C7602) Insufficient registers (128)\nmore"),
            "ptxas fatal   : (C7602) Insufficient registers (128)");
  EXPECT_EQ(decisive_line("k.cu(1): warning: a\nk.cu(2): error: b\nptxas error : c"),
            "k.cu(2): error: b");
  EXPECT_EQ(decisive_line("error: at once"), "error: at once");
  EXPECT_EQ(decisive_line("\n\n  took too long\nmore"), "  took too long");
  EXPECT_EQ(decisive_line(" \r\n"), "no message");
  EXPECT_EQ(decisive_line(""), "no message");
}

}  // namespace
}  // namespace vitune
