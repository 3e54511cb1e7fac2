// tests/runtime/capture_test.cpp -- What a program asks for is written down once, and reads back.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/context/capture.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>
#include <thread>

#include "catalogue/problem_set.h"
#include "generator/attention/problem.h"
#include "tests/db/test_support.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

AttentionProblem problem_of_batch(int batch) {
  return AttentionProblem::parse("bf16 b=" + std::to_string(batch) + " h=12 n=197 d=64");
}

std::multiset<std::string> texts_in(const fs::path& file) {
  std::multiset<std::string> texts;
  for (const NamedProblem& named : load_problem_file(file)) texts.insert(named.problem->text());
  return texts;
}

// Counts warnings; other levels would be noise in somebody else's program.
struct Warnings {
  std::vector<std::string> texts;
  LogSink sink() {
    return [this](LogLevel level, std::string_view text) {
      EXPECT_EQ(level, LogLevel::kWarning);
      texts.emplace_back(text);
    };
  }
};

TEST(ProblemCapture, EachProblemIsOneLineThatReadsBack) {
  const test::TempDir directory;
  Warnings warnings;
  ProblemCapture capture(directory / "asked.jsonl", warnings.sink());

  for (int round = 0; round < 3; ++round) {
    for (int batch = 1; batch <= 4; ++batch) capture.add(problem_of_batch(batch));
  }

  std::multiset<std::string> expected;
  for (int batch = 1; batch <= 4; ++batch) expected.insert(problem_of_batch(batch).text());
  EXPECT_EQ(texts_in(directory / "asked.jsonl"), expected);
  EXPECT_TRUE(warnings.texts.empty());
}

TEST(ProblemCapture, EqualProblemsWithOtherFieldsAreOneLine) {
  const test::TempDir directory;
  ProblemCapture capture(directory / "asked.jsonl");
  AttentionProblem one = problem_of_batch(1);
  AttentionProblem same = one;
  same.q.batch = 12345;  // of a batch of 1: no matter

  capture.add(one);
  capture.add(same);

  EXPECT_EQ(texts_in(directory / "asked.jsonl").size(), 1U);
}

TEST(ProblemCapture, FileIsForItsOwnerOnlyAndKeepsWhatWasThere) {
  const test::TempDir directory;
  const fs::path file = directory / "asked.jsonl";

  ProblemCapture(file).add(problem_of_batch(1));
  ProblemCapture(file).add(problem_of_batch(2));

  struct stat status {};
  ASSERT_EQ(stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  EXPECT_EQ(texts_in(file).size(), 2U);
}

TEST(ProblemCapture, NothingAskedMakesNoFile) {
  const test::TempDir directory;
  { ProblemCapture capture(directory / "asked.jsonl"); }
  EXPECT_FALSE(fs::exists(directory / "asked.jsonl"));
}

TEST(ProblemCapture, ThreadsAndProcessesShareAFileWithoutMixingLines) {
  const test::TempDir directory;
  const fs::path file = directory / "asked.jsonl";
  constexpr int kProblems = 200;
  const auto write_all = [&] {
    ProblemCapture capture(file);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&] {
        for (int batch = 1; batch <= kProblems; ++batch) capture.add(problem_of_batch(batch));
      });
    }
    for (std::thread& thread : threads) thread.join();
    return 0;
  };

  const pid_t child = fork();
  if (child == 0) _exit(write_all());
  write_all();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);

  EXPECT_EQ(status, 0);
  const std::multiset<std::string> found = texts_in(file);
  EXPECT_EQ(found.size(), 2U * kProblems);
  for (int batch = 1; batch <= kProblems; ++batch) {
    EXPECT_EQ(found.count(problem_of_batch(batch).text()), 2U);
  }
}

struct Refusal {
  std::string name;
  std::string why;
  void (*prepare)(const fs::path&);
};

class ProblemCaptureRefusal : public ::testing::TestWithParam<Refusal> {};

TEST_P(ProblemCaptureRefusal, IsOneWarningThatSaysWhy) {
  const test::TempDir directory;
  const fs::path file = directory / "asked.jsonl";
  GetParam().prepare(file);
  Warnings warnings;
  ProblemCapture capture(file, warnings.sink());

  for (int batch = 1; batch <= 3; ++batch) capture.add(problem_of_batch(batch));

  ASSERT_EQ(warnings.texts.size(), 1U);
  EXPECT_NE(warnings.texts[0].find(GetParam().why), std::string::npos) << warnings.texts[0];
  EXPECT_NE(warnings.texts[0].find("asked.jsonl"), std::string::npos) << warnings.texts[0];
}

INSTANTIATE_TEST_SUITE_P(
    Files, ProblemCaptureRefusal,
    ::testing::Values(
        Refusal{"SymbolicLink", "symbolic link",
                [](const fs::path& file) {
                  test::write_bytes(file.string() + ".target", "");
                  fs::create_symlink(file.string() + ".target", file);
                }},
        Refusal{"Pipe", "No such device",
                [](const fs::path& file) { ASSERT_EQ(mkfifo(file.c_str(), 0600), 0); }},
        Refusal{"Folder", "directory", [](const fs::path& file) { fs::create_directory(file); }}),
    [](const auto& param) { return param.param.name; });

TEST(ProblemCapture, AFullDiskIsOneWarning) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  Warnings warnings;
  ProblemCapture capture("/dev/full", warnings.sink());
  capture.add(problem_of_batch(1));
  capture.add(problem_of_batch(2));
  // One on the name, one on what cannot be written.
  ASSERT_EQ(warnings.texts.size(), 2U);
  EXPECT_NE(warnings.texts[1].find("cannot be captured"), std::string::npos);
}

}  // namespace
}  // namespace vitune
