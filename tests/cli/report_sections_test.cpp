// tests/cli/report_sections_test.cpp -- What the parts of a report say and draw of given numbers.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "cli/report/section.h"
#include "cli/report/works_picture.h"

namespace vitune::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

ProblemTimes times_of(const std::string& problem, double us, double bytes, double eager_us = 0,
                      double eager_bytes = 0) {
  ProblemTimes times;
  times.name = problem;
  times.problem = AttentionProblem::parse(problem);
  times.us["vitune"] = {us, us};
  times.memory["vitune"] = bytes;
  if (eager_us > 0) {
    times.us["eager"] = {eager_us, eager_us};
    times.memory["eager"] = eager_bytes;
  }
  return times;
}

Measurements measured(std::vector<ProblemTimes> problems) {
  Measurements measurements;
  measurements.device = "GPU";
  measurements.date = "2026-01-02";
  measurements.problems = std::move(problems);
  return measurements;
}

FirstCalls first_calls() {
  FirstCalls calls;
  calls.device = "GPU";
  calls.date = "2026-01-02";
  calls.peers = {{"cudnn", 3e6, 4e5, 150e3, 80, 60, 40e3, 5},
                 {"vitune", 3e6, 4e5, 5e3, 50, 40, 900, 5}};
  return calls;
}

std::vector<std::string> first_cells(const Sheet& sheet) {
  std::vector<std::string> cells;
  for (const auto& row : sheet.rows) cells.push_back(row[0]);
  return cells;
}

TEST(ReportColdStart, ShowsCudnnBesideVitune) {
  const Section section = cold_start_section(std::nullopt, std::nullopt, first_calls());
  ASSERT_THAT(section.panels, SizeIs(1));
  EXPECT_THAT(section.panels[0].texts, Contains("PyTorch, cuDNN: first call"));
  EXPECT_THAT(section.panels[0].script,
              AllOf(HasSubstr("$ours << EOD\n5000 "), HasSubstr("$theirs << EOD\n150000 ")));
  EXPECT_THAT(section.numbers.at(0).rows.at(0),
              ElementsAre("cuDNN", "3,000", "400", "150", "0.0800", "0.0600", "40.0", "5"));
  EXPECT_THAT(first_cells(section.numbers.at(1)),
              ElementsAre("PyTorch, vitune: first call", "PyTorch, cuDNN: first call",
                          "PyTorch, vitune: second call", "PyTorch, cuDNN: second call",
                          "PyTorch, vitune: new problem", "PyTorch, cuDNN: new problem"));
  EXPECT_THAT(section.legend, SizeIs(2));
}

TEST(ReportColdStart, SaysWhyThereIsNothingOfCudnn) {
  FirstCalls without = first_calls();
  without.peers.erase(without.peers.begin());
  without.left_out["cudnn"] = "no such backend";
  const Section refused = cold_start_section(std::nullopt, std::nullopt, without);
  EXPECT_THAT(refused.missing,
              Contains(HasSubstr("cuDNN's first call is not in the file: no such")));
  EXPECT_THAT(refused.legend, SizeIs(1));
  const Section none = cold_start_section(std::nullopt, ColdStep{"compile", 1e5, "", ""}, {});
  EXPECT_THAT(none.missing, Contains(HasSubstr("cuDNN's first call was not measured")));
  EXPECT_THAT(none.panels, SizeIs(1));
  EXPECT_THAT(none.legend, IsEmpty());
}

TEST(ReportMemory, DrawsProblemsOfOneShapeWhereThereAreEnough) {
  const Measurements lengths = measured({times_of("bf16 b=1 h=16 n=2048 d=64", 40, 4e6, 900, 6e8),
                                         times_of("bf16 b=1 h=16 n=512 d=64", 9, 1e6, 60, 4e7),
                                         times_of("bf16 b=32 h=12 n=577 d=64", 98, 3e7, 2500, 1e9),
                                         times_of("bf16 b=1 h=16 n=8192 d=64", 500, 2e7)});
  const Section section = memory_section(lengths, measured({}));
  EXPECT_THAT(section.missing, IsEmpty());
  EXPECT_THAT(section.caption, HasSubstr("batch 1, 16 heads"));
  ASSERT_THAT(section.panels, SizeIs(2));
  EXPECT_THAT(section.panels[0].script,
              HasSubstr("$s0 << EOD\n512 9\n2048 40\n8192 500\nEOD"));  // calls, not heads
  EXPECT_THAT(section.panels[1].script, HasSubstr("$s1 << EOD\n512 40\n2048 600\nEOD"));
  EXPECT_THAT(
      section.sheets.at(0).rows,
      ElementsAre(
          ElementsAre("512", "1 x 16", "9.00 us", "1.0 MB", "60.0 us", "40.0 MB", "6.7", "40.0"),
          ElementsAre("2048", "1 x 16", "40.0 us", "4.0 MB", "900 us", "600.0 MB", "22.5", "150.0"),
          ElementsAre("8192", "1 x 16", "500 us", "20.0 MB", "-", "-", "-", "-")));
}

TEST(ReportMemory, TakesTheComparisonsOwnProblemsPerHeadAndSaysSo) {
  ProblemTimes causal = times_of("bf16 b=1 h=2 n=1024 d=64 causal", 1, 1);
  ProblemTimes unknown = times_of("bf16 b=1 h=2 n=4096 d=64", 1, 1);
  unknown.memory.clear();
  const Measurements comparison = measured(
      {times_of("bf16 b=1 h=2 n=576 d=64", 10, 2e6), times_of("bf16 b=4 h=2 n=577 d=64", 16, 8e6),
       times_of("bf16 b=1 h=2 n=197 d=64", 1, 1), causal, unknown});
  const Section section = memory_section(std::nullopt, comparison);
  EXPECT_THAT(section.missing, Contains(HasSubstr("--reference-peers")));
  EXPECT_THAT(section.caption, HasSubstr("divided by batch and heads"));
  ASSERT_THAT(section.panels, SizeIs(2));
  EXPECT_THAT(section.panels[0].script, HasSubstr("$s0 << EOD\n577 2\nEOD"));
  EXPECT_THAT(section.panels[1].script, HasSubstr("$s0 << EOD\n577 1\nEOD"));
  ASSERT_THAT(section.numbers, SizeIs(1));
  EXPECT_THAT(section.numbers[0].rows, SizeIs(4));  // every problem whose memory is known
}

TEST(ReportMemory, SaysThatNothingWasMeasured) {
  const Section section = memory_section(std::nullopt, measured({}));
  EXPECT_THAT(section.missing, ElementsAre(HasSubstr("Problems of one shape")));
  EXPECT_THAT(section.panels, IsEmpty());
  EXPECT_THAT(section.sheets, IsEmpty());
}

constexpr const char* kLadder = "attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed";

std::vector<Work> small_work() {
  WorkTable table;
  table.title = "Time";
  table.machine = "not named";
  table.first_column = "version";
  table.picture = "ladder";
  table.columns = {"197 tokens", "more"};
  table.problems = {kLadder};
  table.rows = {{"v0", "naive", false, {"48.01 ms", "1 s"}},
                {"v3", "", false, {"1.42 ms", "-"}},
                {"eager", "eager", false, {"38.11 us", "-"}},
                {"its memory", "eager", true, {"0.5 GB", "-"}},
                {"tuned", "tuned", false, {"-", "-"}}};
  return {{"A work", "Somebody", "", {table}}};
}

TEST(ReportWorks, PutsKernelsAndPyTorchOfTheSameProblemBesideAWork) {
  ReferenceResults reference{"GPU", "2026-01-03", {}};
  reference.rows = {{"naive", kLadder, 495, {}, {}, {}, {}},
                    {"naive", "attention other", 1, {}, {}, {}, {}},
                    {"tuned", kLadder, 21.3, {}, {}, {}, {}}};
  const Measurements peers = measured({times_of(kLadder, 22, 9e6, 499, 2.1e8)});
  const Measurements other = measured({times_of("bf16 b=1 h=12 n=197 d=64", 7, 3e5, 59, 1e7)});
  const Section section = works_section(small_work(), reference, peers, other);
  EXPECT_THAT(section.missing, IsEmpty());
  EXPECT_THAT(section.sheets.at(0).rows,
              ElementsAre(ElementsAre("v0", "48.01 ms", "495 us", "1 s"),
                          ElementsAre("v3", "1.42 ms", "-", "-"),
                          ElementsAre("eager", "38.11 us", "499 us", "-"),
                          ElementsAre("its memory", "0.5 GB", "210.0 MB", "-"),
                          ElementsAre("tuned", "-", "21.3 us", "-")));
  EXPECT_THAT(section.sheets.at(0).note,
              AllOf(HasSubstr("Their machine: not named. Ours: GPU, 2026-01-02; GPU, 2026-01-03; "),
                    Not(HasSubstr("GPU;"))));
  ASSERT_THAT(section.panels, SizeIs(1));
  EXPECT_EQ(section.panels[0].name, "ladder-1");
  EXPECT_THAT(section.panels[0].script,
              AllOf(HasSubstr("$theirs << EOD\n48010 "), HasSubstr("$ours << EOD\n495 ")));
}

TEST(ReportWorks, WhatWasNotMeasuredSaysSoWithItsCommand) {
  const Section section =
      works_section(small_work(), std::nullopt, std::nullopt,
                    measured({times_of("bf16 b=1 h=12 n=197 d=64", 7, 3e5, 59, 1e7)}));
  EXPECT_THAT(section.sheets.at(0).rows.at(2),
              ElementsAre("eager", "38.11 us", "not measured", "-"));
  EXPECT_THAT(section.missing, ElementsAre(HasSubstr("vitune_bench_reference"),
                                           HasSubstr("--reference-peers reference_peers.json")));
}

TEST(ReportWorks, ReadsLatenciesAsAuthorsWriteThem) {
  const std::vector<std::pair<std::string, std::optional<double>>> cases = {
      {"38.11 us", 38.11},      {"48.01 ms", 48010},         {"1.30 s", 1.3e6},
      {"~1.5 ms", 1500},        {"-", std::nullopt},         {"out of memory", std::nullopt},
      {"0.5 GB", std::nullopt}, {"-3 ms", std::nullopt},     {"inf ms", std::nullopt},
      {"", std::nullopt},       {"3 ms or so", std::nullopt}};
  for (const auto& [text, us] : cases) {
    const auto found = parse_latency(text);
    ASSERT_EQ(found.has_value(), us.has_value()) << text;
    EXPECT_NEAR(found.value_or(0), us.value_or(0), 1e-6) << text;
  }
}

}  // namespace
}  // namespace vitune::testing
