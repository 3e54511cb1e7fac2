// tests/runtime/settings_test.cpp -- Options and environment, and where the library looks for data.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/context/settings.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "tests/db/test_support.h"
#include "tests/faked_looks.h"

namespace vitune::test {
namespace {

Environment at_home() {
  Environment environment;
  environment.home = "/home/somebody";
  return environment;
}

struct MissCase {
  std::int32_t option;
  const char* variable;  // null: not set
  MissPolicy expected;
  bool warned;
};

TEST(Settings, TheOptionDecidesThenTheEnvironmentThenNearest) {
  for (const MissCase& c : {MissCase{0, nullptr, MissPolicy::kNearest, false},
                            MissCase{0, "error", MissPolicy::kError, false},
                            MissCase{0, "compile", MissPolicy::kCompile, false},
                            MissCase{0, "sometimes", MissPolicy::kNearest, true},
                            MissCase{VITUNE_ON_MISS_DEFAULT, "error", MissPolicy::kDefault, false},
                            MissCase{VITUNE_ON_MISS_ERROR, nullptr, MissPolicy::kError, false}}) {
    vitune_context_options options = VITUNE_CONTEXT_OPTIONS_INIT;
    options.on_miss = c.option;
    Environment environment = at_home();
    if (c.variable != nullptr) environment.miss = c.variable;
    const Settings settings = read_settings(&options, environment, {});
    EXPECT_EQ(settings.on_miss, c.expected) << c.option << " " << environment.miss.value_or("-");
    EXPECT_EQ(!settings.warnings.empty(), c.warned) << environment.miss.value_or("-");
  }
}

TEST(Settings, EachOptionOutOfRangeIsRefused) {
  using Options = vitune_context_options;
  std::int32_t Options::*const members[] = {&Options::device,         &Options::objective,
                                            &Options::on_miss,        &Options::on_busy,
                                            &Options::read_only,      &Options::no_compile,
                                            &Options::check_pointers, &Options::refresh_seconds};
  for (const auto member : members) {
    Options options = VITUNE_CONTEXT_OPTIONS_INIT;
    options.*member = -1;
    EXPECT_THROW(read_settings(&options, at_home(), {}), Error);
    if (member == &Options::device || member == &Options::refresh_seconds) continue;
    options.*member = 77;
    EXPECT_THROW(read_settings(&options, at_home(), {}), Error);
  }
}

TEST(Settings, PathsStayWhereTheyWereWhenTheProgramGoesToAnotherFolder) {
  vitune_context_options options = VITUNE_CONTEXT_OPTIONS_INIT;
  options.database = "own.db";
  options.shipped_database = "shipped.db";
  Environment environment = at_home();
  environment.capture = "problems.jsonl";
  const Settings settings = read_settings(&options, environment, {});
  const auto here = std::filesystem::current_path();
  EXPECT_EQ(settings.places.user, here / "own.db");
  EXPECT_EQ(settings.places.shipped, here / "shipped.db");
  EXPECT_EQ(settings.environment.capture, (here / "problems.jsonl").string());
}

TEST(Settings, TheDatabaseIsTheOptionElseTheEnvironments) {
  vitune_context_options options = VITUNE_CONTEXT_OPTIONS_INIT;
  EXPECT_EQ(read_settings(&options, at_home(), {}).places.user,
            "/home/somebody/.cache/vitune/vitune.db");
  EXPECT_FALSE(read_settings(nullptr, Environment{}, {}).places.user);
  options.database = "/else/where.db";
  EXPECT_EQ(read_settings(&options, at_home(), {}).places.user, "/else/where.db");
}

TEST(Settings, TheShippedLayerIsLookedForBesideTheLibrary) {
  const TempDir directory;
  const fs::path library = directory / "lib" / "libvitune.so.0";
  const fs::path data = directory / "share" / "vitune";
  fs::create_directories(data);
  fs::create_directories(library.parent_path());
  std::ofstream(library) << "a library";
  std::ofstream(data / "bench_problems.json") << "{}";
  vitune_context_options options = VITUNE_CONTEXT_OPTIONS_INIT;
  EXPECT_FALSE(read_settings(&options, at_home(), library).places.shipped) << "no file yet";
  std::ofstream(data / "winners.db") << "x";
  EXPECT_EQ(read_settings(&options, at_home(), library).places.shipped, data / "winners.db");
  fs::permissions(data, fs::perms::others_write, fs::perm_options::add);
  const Settings refusing = read_settings(&options, at_home(), library);
  EXPECT_FALSE(refusing.places.shipped) << "others may write it";
  ASSERT_EQ(refusing.warnings.size(), 1U);
  EXPECT_NE(refusing.warnings[0].find("without the shipped winners"), std::string::npos);
  fs::permissions(data, fs::perms::others_write, fs::perm_options::remove);
  {
    const FailingLook lost(data / "winners.db", EIO);
    const Settings lacking = read_settings(&options, at_home(), library);
    EXPECT_FALSE(lacking.places.shipped);
    ASSERT_EQ(lacking.warnings.size(), 1U) << "it is not left out in silence";
    EXPECT_NE(lacking.warnings[0].find("winners.db cannot be looked at"), std::string::npos);
  }
  options.shipped_database = "";
  EXPECT_FALSE(read_settings(&options, at_home(), library).places.shipped);
  options.shipped_database = "/given.db";
  EXPECT_EQ(read_settings(&options, at_home(), library).places.shipped, "/given.db");
}

TEST(Settings, TheLibraryKnowsItsOwnFile) {
  EXPECT_TRUE(fs::exists(own_library())) << own_library();
}

}  // namespace
}  // namespace vitune::test
