// tests/core/env_test.cpp -- What is read from the environment, what is ignored, what workers get.
// SPDX-License-Identifier: Apache-2.0
#include "core/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include <map>

namespace vitune {
namespace {

using testing::Contains;
using testing::Not;
using testing::StartsWith;

// Starts each test with an empty environment and restores the former one.
class EnvTest : public testing::Test {
 protected:
  EnvTest() {
    for (char** entry = environ; *entry != nullptr; ++entry) saved_.emplace_back(*entry);
    clearenv();
  }
  ~EnvTest() override {
    clearenv();
    for (std::string& entry : saved_) {
      const std::size_t equals = entry.find('=');
      setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
    }
  }
  static void set(const char* name, const char* value) { setenv(name, value, 1); }

 private:
  std::vector<std::string> saved_;
};

TEST_F(EnvTest, EveryVariableArrives) {
  set("VITUNE_DB", "a.db");
  set("VITUNE_CACHE_DIR", "/cache");
  set("VITUNE_LOG_LEVEL", "debug");
  set("XDG_CACHE_HOME", "/xdg");
  set("HOME", "/home/u");
  set("CUDA_HOME", "/cuda");
  set("NO_COLOR", "1");
  set("TERM", "dumb");
  set("VITUNE_LOG_CMD", "1");
  set("VITUNE_MISS", "error");
  set("VITUNE_CAPTURE", "asked.txt");
  set("VITUNE_DISABLE", "1");
  set("SLURM_ARRAY_TASK_ID", "7");
  set("SLURM_ARRAY_TASK_COUNT", "4");
  set("SLURM_ARRAY_TASK_MIN", "1");
  set("SLURM_ARRAY_TASK_MAX", "9");
  set("SLURM_ARRAY_TASK_STEP", "2");
  set("JOB_COMPLETION_INDEX", "3");
  const Environment environment = read_environment();
  EXPECT_EQ(environment.database, "a.db");
  EXPECT_EQ(environment.cache_dir, "/cache");
  EXPECT_EQ(environment.log_level, "debug");
  EXPECT_EQ(environment.xdg_cache_home, "/xdg");
  EXPECT_EQ(environment.home, "/home/u");
  EXPECT_EQ(environment.cuda_home, "/cuda");
  EXPECT_TRUE(environment.no_color);
  EXPECT_TRUE(environment.dumb_terminal);
  EXPECT_TRUE(environment.log_command);
  EXPECT_EQ(environment.miss, "error");
  EXPECT_EQ(environment.capture, "asked.txt");
  EXPECT_TRUE(environment.disable);
  EXPECT_EQ(environment.slurm_task, "7");
  EXPECT_EQ(environment.slurm_count, "4");
  EXPECT_EQ(environment.slurm_min, "1");
  EXPECT_EQ(environment.slurm_max, "9");
  EXPECT_EQ(environment.slurm_step, "2");
  EXPECT_EQ(environment.job_index, "3");
}

TEST_F(EnvTest, DatabasesBehindAColonAreTheSites) {
  struct Case {
    const char* value;
    std::optional<std::string> user;
    std::vector<std::string> sites;
  };
  const std::vector<Case> cases = {{"a.db", "a.db", {}},          {"a.db:/b", "a.db", {"/b"}},
                                   {":/b", std::nullopt, {"/b"}}, {"a:b:c", "a", {"b", "c"}},
                                   {"a::b:", "a", {"b"}},         {":", std::nullopt, {}},
                                   {"::b", std::nullopt, {"b"}}};
  for (const Case& one : cases) {
    set("VITUNE_DB", one.value);
    const Environment environment = read_environment();
    EXPECT_EQ(environment.database, one.user) << one.value;
    EXPECT_EQ(environment.site_databases, one.sites) << one.value;
  }
}

TEST_F(EnvTest, AnEmptyFirstDatabaseIsTheDefaultPlace) {
  set("HOME", "/home/u");
  set("VITUNE_DB", ":/site.pack");
  EXPECT_EQ(default_database_path(read_environment()), "/home/u/.cache/vitune/vitune.db");
}

TEST_F(EnvTest, EmptyValuesCountAsUnset) {
  for (const char* name : {"VITUNE_DB", "VITUNE_CACHE_DIR", "VITUNE_LOG_LEVEL", "XDG_CACHE_HOME",
                           "CUDA_HOME", "CUDA_PATH", "VITUNE_MISS", "VITUNE_CAPTURE",
                           "VITUNE_DISABLE", "VITUNE_LOG_CMD", "NO_COLOR", "TERM"}) {
    set(name, "");
  }
  const Environment environment = read_environment();
  EXPECT_FALSE(environment.database);
  EXPECT_FALSE(environment.cache_dir);
  EXPECT_FALSE(environment.log_level);
  EXPECT_FALSE(environment.xdg_cache_home);
  EXPECT_FALSE(environment.cuda_home);
  EXPECT_FALSE(environment.miss);
  EXPECT_FALSE(environment.capture);
  EXPECT_FALSE(environment.disable);
  EXPECT_FALSE(environment.no_color);
  EXPECT_FALSE(environment.dumb_terminal);
  EXPECT_FALSE(environment.log_command);
}

TEST_F(EnvTest, HomeFallsBackToThePasswordDatabase) {
  const passwd* entry = getpwuid(geteuid());
  if (entry == nullptr) GTEST_SKIP() << "this user is not in the password database";
  for (const char* home : {"", "relative/home"}) {
    set("HOME", home);
    EXPECT_EQ(read_environment().home, entry->pw_dir);
  }
}

TEST_F(EnvTest, RelativeDirectoriesAreIgnored) {
  set("XDG_CACHE_HOME", "cache");
  set("CUDA_HOME", "../cuda");
  set("CUDA_PATH", "/usr/cuda");
  const Environment environment = read_environment();
  EXPECT_FALSE(environment.xdg_cache_home);
  EXPECT_EQ(environment.cuda_home, "/usr/cuda");
}

TEST_F(EnvTest, CudaHomeComesBeforeCudaPath) {
  set("CUDA_PATH", "/second");
  EXPECT_EQ(read_environment().cuda_home, "/second");
  set("CUDA_HOME", "/first");
  EXPECT_EQ(read_environment().cuda_home, "/first");
}

TEST(DefaultDatabasePathTest, FollowsTheDocumentedOrder) {
  Environment environment;
  EXPECT_EQ(default_database_path(environment), std::nullopt);
  environment.home = "/home/u";
  EXPECT_EQ(default_database_path(environment), "/home/u/.cache/vitune/vitune.db");
  environment.xdg_cache_home = "/xdg";
  EXPECT_EQ(default_database_path(environment), "/xdg/vitune/vitune.db");
  environment.cache_dir = "/cache";
  EXPECT_EQ(default_database_path(environment), "/cache/vitune.db");
  environment.database = "mine.db";
  EXPECT_EQ(default_database_path(environment), "mine.db");
}

TEST_F(EnvTest, WorkersGetTheAllowListAndNothingElse) {
  set("PATH", "/bin");
  set("LC_ALL", "C");
  set("CUDA_VISIBLE_DEVICES", "1");
  set("ASAN_OPTIONS", "abort_on_error=1");
  for (const char* name : {"LD_PRELOAD", "LD_AUDIT", "CUDA_INJECTION64_PATH", "NVRTC_OPTIONS",
                           "VITUNE_DB", "SECRET", "PATHS", "LANGUAGE"}) {
    set(name, "x");
  }
  const std::vector<std::string> passed = worker_environment();
  EXPECT_THAT(passed,
              testing::UnorderedElementsAre("PATH=/bin", "LC_ALL=C", "CUDA_VISIBLE_DEVICES=1",
                                            "ASAN_OPTIONS=abort_on_error=1"));
}

}  // namespace
}  // namespace vitune
