// tests/emulator/kept_kernels_test.cpp -- The emulated compiler keeps modules for a run of tests.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generator/compiler.h"
#include "tests/temporary_directory.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

class KeptKernelsTest : public ::testing::Test {
 protected:
  KeptKernelsTest() {
    if (const char* const set = std::getenv(kVariable)) before_ = set;
  }
  ~KeptKernelsTest() override { before_ ? keep_in(*before_) : name_none(); }

  static void keep_in(const std::string& folder) { setenv(kVariable, folder.c_str(), 1); }
  static void name_none() { unsetenv(kVariable); }
  std::vector<std::byte> compiled(const std::string& kernel) const {
    return compiled_by(*compiler_, kernel);
  }
  static std::vector<std::byte> compiled_by(const Compiler& compiler, const std::string& kernel) {
    CompileRequest request;
    request.source = assemble("extern \"C\" __global__ void " + kernel + "() {}\n");
    request.arch = "sm_90";
    request.entry = kernel;
    const CompileResult result = compiler.compile(request);
    EXPECT_EQ(result.status, CompileStatus::kOk) << result.log;
    return result.cubin;
  }
  std::vector<fs::path> files() const {
    const fs::directory_iterator all(folder_.path());
    return {begin(all), end(all)};
  }

  static constexpr char kVariable[] = "VITUNE_EMULATED_KERNELS";
  const std::shared_ptr<const Compiler> compiler_ =
      Compiler::open_in({VITUNE_EMULATED_DEVICE "/lib64"});
  const test::TemporaryDirectory folder_;

 private:
  std::optional<std::string> before_;
};

TEST_F(KeptKernelsTest, AKernelIsCompiledOnceAndItsModuleTakenFromTheFolder) {
  keep_in(folder_.path());
  const auto first = compiled("first");
  ASSERT_EQ(files().size(), 1u);
  const fs::path kept = files()[0];
  const auto second = compiled("second");
  ASSERT_EQ(files().size(), 2u) << "another text is another kernel";
  EXPECT_EQ(compiled("first"), first);

  const fs::path other = files()[0] == kept ? files()[1] : files()[0];
  fs::copy_file(other, kept, fs::copy_options::overwrite_existing);
  EXPECT_EQ(compiled("first"), second) << "it was compiled again";
}

TEST_F(KeptKernelsTest, NothingIsKeptWhereTheNamedFolderIsEmpty) {
  keep_in("");

  EXPECT_FALSE(compiled("first").empty());
  EXPECT_TRUE(files().empty());
}

// As in a compile worker, which does not get the variable.
TEST_F(KeptKernelsTest, WhereNoneIsNamedTheDevicesOwnFolderKeepsThemIfItIsThere) {
  name_none();
  const fs::path library = folder_ / "device/lib64/libnvrtc.so.12";
  const fs::path kernels = folder_ / "device/kernels";
  fs::create_directories(library.parent_path());
  fs::copy_file(VITUNE_EMULATED_DEVICE "/lib64/libnvrtc.so.12", library);
  const auto compiler = Compiler::open_in({library.parent_path()});

  compiled_by(*compiler, "first");
  EXPECT_FALSE(fs::exists(kernels));
  fs::create_directory(kernels);
  compiled_by(*compiler, "first");
  EXPECT_FALSE(fs::is_empty(kernels));
}

TEST_F(KeptKernelsTest, AFolderThatCannotBeMadeKeepsNothingAndHindersNothing) {
  test::write_file(folder_ / "file", "");
  keep_in(folder_ / "file/kernels");

  EXPECT_FALSE(compiled("first").empty());
}

}  // namespace
}  // namespace vitune
