// tests/generator/compiler_test.cpp -- NVRTC itself, and what happens without it.
// SPDX-License-Identifier: Apache-2.0
#include "generator/compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#if __has_include(<nvrtc.h>)
#include <nvrtc.h>
#endif

#include <filesystem>
#include <functional>
#include <type_traits>

#include "core/device_info.h"
#include "core/error.h"
#include "generator/compile_log.h"
#include "generator/compile_options.h"
#include "generator/nvrtc_api.h"
#include "tests/generator/compile_support.h"
#include "tests/temporary_directory.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
using test::kSmallKernel;
using test::request_for;
using test::TemporaryDirectory;
using test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string error_of(const std::function<void()>& action, ErrorCode code = ErrorCode::kFailure) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "no error";
}

TEST(Compiler, WithoutALibraryTheErrorSaysWhatWasTriedAndWhatToInstall) {
  const TemporaryDirectory folder;
  write_file(folder / "broken/libnvrtc.so.13", "not a library");
  fs::create_directories(folder / "stranger");
  fs::create_symlink("/lib64/ld-linux-x86-64.so.2", folder / "stranger/libnvrtc.so.12");
  const std::string text = error_of(
      [&] {
        Compiler::open_in({folder / "empty", folder / "broken", folder / "stranger"});
      },
      ErrorCode::kNoCompiler);
  EXPECT_THAT(text, HasSubstr((folder / "empty").string()));
  EXPECT_THAT(text, HasSubstr((folder / "broken/libnvrtc.so.13").string()));
  EXPECT_THAT(text, HasSubstr((folder / "stranger/libnvrtc.so.12").string()));
  EXPECT_THAT(text, AllOf(HasSubstr("libnvrtc12"), HasSubstr("pip install nvidia-cuda-nvrtc"),
                          HasSubstr("CUDA_HOME")));
}

TEST(Compiler, NamesItsVersionAndBuild) {
  VITUNE_REQUIRE_COMPILER(compiler);
  EXPECT_THAT(compiler->version(), MatchesRegex("nvrtc [0-9]+\\.[0-9]+ [0-9a-f]{12}"));
  EXPECT_TRUE(fs::exists(compiler->path())) << compiler->path();
  EXPECT_EQ(test::find_compiler()->version(), compiler->version());
}

TEST(Compiler, CompilesForEverySupportedArchitecture) {
  VITUNE_REQUIRE_COMPILER(compiler);
  if (parse_nvrtc_version(compiler->version()) < NvrtcVersion{13, 0}) {
    GTEST_SKIP() << compiler->version() << " does not know the newest architectures";
  }
  for (const std::string& arch : supported_architectures()) {
    const CompileResult result = compiler->compile(request_for(kSmallKernel, arch));
    ASSERT_EQ(result.status, CompileStatus::kOk) << arch << ": " << result.log;
    EXPECT_TRUE(cubin_is_well_formed(result.cubin)) << arch;
    EXPECT_GT(result.facts.registers, 0) << arch;
    EXPECT_EQ(result.facts.spill_bytes, 0) << arch;
    EXPECT_EQ(result.facts.shared_bytes, 256) << arch;
    EXPECT_GT(result.facts.compile_ms, 0) << arch;
    EXPECT_THAT(result.log, HasSubstr("'" + arch + "'"));
  }
}

TEST(Compiler, TheSameRequestGivesTheSameCubin) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const CompileRequest request = request_for(kSmallKernel);
  EXPECT_EQ(compiler->compile(request).cubin, compiler->compile(request).cubin);
}

// The body of a kernel with a float* p and at most 32 registers.
constexpr const char* kSpillingBody =
    "  float a[64];\n"
    "  _Pragma(\"unroll\") for (int i = 0; i < 64; ++i) a[i] = p[i * 1024 + threadIdx.x];\n"
    "  __syncthreads();\n"
    "  for (int j = 0; j < 9; ++j)\n"
    "    _Pragma(\"unroll\") for (int i = 0; i < 64; ++i) a[i] += a[(i * 7 + 3) % 64] * a[i];\n"
    "  _Pragma(\"unroll\") for (int i = 0; i < 64; ++i) p[i * 1024 + threadIdx.x] = a[i];\n"
    "}\n";

TEST(Compiler, SpillsAreReported) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const CompileResult result = compiler->compile(
      request_for("extern \"C\" __global__ void __launch_bounds__(1024, 2) k(float* p) {\n" +
                  std::string(kSpillingBody)));
  ASSERT_EQ(result.status, CompileStatus::kOk) << result.log;
  EXPECT_GT(result.facts.spill_bytes, 0);
  EXPECT_LE(result.facts.registers, 32);
}

TEST(Compiler, ASpillOfTheSecondKernelIsReported) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const CompileResult result = compiler->compile(
      request_for("extern \"C\" __global__ void k(float* p) { p[threadIdx.x] = 1.f; }\n"
                  "extern \"C\" __global__ void __launch_bounds__(1024, 2) second(float* p) {\n" +
                  std::string(kSpillingBody)));
  ASSERT_EQ(result.status, CompileStatus::kOk) << result.log;
  EXPECT_GT(result.facts.spill_bytes, 0);
}

TEST(Compiler, AnErrorIsToldInTheCompilersWords) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const CompileResult result = compiler->compile(
      request_for("extern \"C\" __global__ void k(int* p) {\n  *p = unheard_of;\n}\n"));
  EXPECT_EQ(result.status, CompileStatus::kError);
  EXPECT_TRUE(result.cubin.empty());
  EXPECT_THAT(result.log, AllOf(HasSubstr("kernel.cu(2)"), HasSubstr("unheard_of")));
}

TEST(Compiler, ManyErrorsGiveABoundedLog) {
  VITUNE_REQUIRE_COMPILER(compiler);
  std::string main = "extern \"C\" __global__ void k(int* p) {\n";
  for (int i = 0; i < 90; ++i) main += "  *p = unheard_of_" + std::to_string(i) + ";\n";
  const CompileResult result = compiler->compile(request_for(main + "}\n"));
  EXPECT_EQ(result.status, CompileStatus::kError);
  EXPECT_LE(result.log.size(), kMaxCompileLog);
  EXPECT_THAT(result.log, HasSubstr("unheard_of_0"));
}

TEST(Compiler, AMissingKernelAndAnUnknownArchitectureAreErrors) {
  VITUNE_REQUIRE_COMPILER(compiler);
  CompileRequest request = request_for(kSmallKernel);
  request.entry = "other";
  const CompileResult missing = compiler->compile(request);
  EXPECT_EQ(missing.status, CompileStatus::kError);
  EXPECT_THAT(missing.log, HasSubstr("no kernel 'other'"));
  const CompileResult unknown = compiler->compile(request_for(kSmallKernel, "sm_999"));
  EXPECT_EQ(unknown.status, CompileStatus::kError);
  EXPECT_THAT(unknown.log, HasSubstr("gpu-architecture"));
  request.entry = "k'; drop";
  EXPECT_THROW(compiler->compile(request), Error);
}

TEST(Compiler, LineInformationIsInTheCubinOnRequest) {
  VITUNE_REQUIRE_COMPILER(compiler);
  CompileRequest request = request_for(kSmallKernel);
  const auto has_lines = [](const std::vector<std::byte>& cubin) {
    const std::string_view text(reinterpret_cast<const char*>(cubin.data()), cubin.size());
    return text.find(".debug_line") != std::string_view::npos;
  };
  EXPECT_FALSE(has_lines(compiler->compile(request).cubin));
  request.line_info = true;
  EXPECT_TRUE(has_lines(compiler->compile(request).cubin));
}

TEST(Compiler, NestedHeadersAreTakenFromMemoryEvenIfFilesOfThatNameLieAround) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const TemporaryDirectory folder;
  const fs::path before = fs::current_path();
  for (const char* name : {"attention/a.cuh", "primitives/b.cuh", "attention/primitives/b.cuh"}) {
    write_file(folder / name, "#error hijacked\n");
  }
  const std::vector<EmbeddedFile> files = {
      {"attention/a.cuh",
       "#pragma once\n#include \"primitives/b.cuh\"\n"
       "constexpr int twice(int x) { return x * B; }\n"},
      {"primitives/b.cuh", "#pragma once\nconstexpr int B = 2;\n"}};
  const Source source = assemble(
      "#include \"attention/a.cuh\"\n"
      "extern \"C\" __global__ void k(int* p) { *p = twice(*p); }\n",
      files);
  fs::current_path(folder.path());
  const CompileResult result = compiler->compile({source, "sm_80", "k", false});
  fs::current_path(before);
  EXPECT_EQ(result.status, CompileStatus::kOk) << result.log;
}

#if __has_include(<nvrtc.h>)

// True if two types are passed alike: both pointers, or integers (or enumerations) of one size.
template <typename A, typename B>
constexpr bool kPassedAlike =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;

template <typename Ours, typename Theirs>
struct SameAbi;
template <typename R, typename... A, typename S, typename... B>
struct SameAbi<R (*)(A...), S (*)(B...)> {
  static constexpr bool kSameCount = sizeof...(A) == sizeof...(B);
  static constexpr bool value() {
    if constexpr (kSameCount) return kPassedAlike<R, S> && (kPassedAlike<A, B> && ...);
    return false;
  }
};

template <auto Member, typename Theirs>
constexpr bool matches(Theirs*) {
  using Ours = std::remove_reference_t<decltype(std::declval<NvrtcApi>().*Member)>;
  return SameAbi<Ours, Theirs*>::value();
}

TEST(NvrtcApi, DeclarationsAgreeWithTheToolkitsHeader) {
  static_assert(matches<&NvrtcApi::version>(static_cast<decltype(&nvrtcVersion)>(nullptr)));
  static_assert(
      matches<&NvrtcApi::create_program>(static_cast<decltype(&nvrtcCreateProgram)>(nullptr)));
  static_assert(
      matches<&NvrtcApi::destroy_program>(static_cast<decltype(&nvrtcDestroyProgram)>(nullptr)));
  static_assert(
      matches<&NvrtcApi::compile_program>(static_cast<decltype(&nvrtcCompileProgram)>(nullptr)));
  static_assert(matches<&NvrtcApi::cubin_size>(static_cast<decltype(&nvrtcGetCUBINSize)>(nullptr)));
  static_assert(matches<&NvrtcApi::cubin>(static_cast<decltype(&nvrtcGetCUBIN)>(nullptr)));
  static_assert(
      matches<&NvrtcApi::log_size>(static_cast<decltype(&nvrtcGetProgramLogSize)>(nullptr)));
  static_assert(matches<&NvrtcApi::log>(static_cast<decltype(&nvrtcGetProgramLog)>(nullptr)));
  static_assert(
      matches<&NvrtcApi::error_string>(static_cast<decltype(&nvrtcGetErrorString)>(nullptr)));
  // The comparison must be able to fail.
  static_assert(!matches<&NvrtcApi::version>(static_cast<decltype(&nvrtcGetCUBIN)>(nullptr)) ||
                sizeof(nvrtcProgram) == sizeof(int*));
  static_assert(!matches<&NvrtcApi::log>(static_cast<decltype(&nvrtcCompileProgram)>(nullptr)));
  EXPECT_EQ(NvrtcApi::kSuccess, NVRTC_SUCCESS);
}

#else

TEST(NvrtcApi, DeclarationsAgreeWithTheToolkitsHeader) {
  GTEST_SKIP() << "nvrtc.h is not installed";
}

#endif

}  // namespace
}  // namespace vitune
