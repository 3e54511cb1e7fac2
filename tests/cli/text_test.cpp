// tests/cli/text_test.cpp -- Budgets, ordinals, nearest names, durations, progress.
// SPDX-License-Identifier: Apache-2.0
#include "cli/output/text.h"

#include <gtest/gtest.h>

#include "cli/arguments/device_probe.h"
#include "cli/output/progress.h"
#include "cli/output/results.h"
#include "core/error.h"

namespace vitune {
namespace {

using std::chrono::milliseconds;

TEST(BudgetTest, TimesAndTrialsAreTold) {
  EXPECT_EQ(parse_budget("30s").time, std::chrono::seconds(30));
  EXPECT_EQ(parse_budget("2m").time, std::chrono::seconds(120));
  EXPECT_EQ(parse_budget("1h").time, std::chrono::seconds(3600));
  EXPECT_EQ(parse_budget("200").trials, 200);
  EXPECT_FALSE(parse_budget("200").time);
  EXPECT_FALSE(parse_budget("30s").trials);
}

TEST(BudgetTest, AnythingElseIsAUsageError) {
  for (const char* text : {"", "s", "0", "0s", "-5", "5x", "1.5s", " 5", "5 s", "5ms", "721h",
                           "99999999999999999999", "9223372036854775807h", "100000001"}) {
    try {
      parse_budget(text);
      ADD_FAILURE() << "accepted '" << text << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage) << text;
    }
  }
}

TEST(OrdinalsTest, ListsAreReadWithoutRepeats) {
  EXPECT_EQ(parse_ordinals("0,2,0,1"), (std::vector<int>{0, 2, 1}));
  for (const char* text : {"", ",", "a", "-1", "1024", "0;1", "0x1"}) {
    EXPECT_THROW(parse_ordinals(text), Error) << text;
  }
}

TEST(NearestNameTest, TypingErrorsFindTheirWord) {
  const std::vector<std::string> verbs = {"tune", "bench", "verify", "show", "compile", "devices"};
  EXPECT_EQ(nearest_name("tnue", verbs), "tune");
  EXPECT_EQ(nearest_name("tun", verbs), "tune");
  EXPECT_EQ(nearest_name("benhc", verbs), "bench");
  EXPECT_EQ(nearest_name("compil", verbs), "compile");
  EXPECT_EQ(nearest_name("devicse", verbs), "devices");
  EXPECT_EQ(nearest_name("xyzzy", verbs), std::nullopt);
  EXPECT_EQ(nearest_name("", verbs), std::nullopt);
  EXPECT_EQ(nearest_name(std::string(100000, 't'), verbs), std::nullopt);
}

TEST(DurationTest, UnitsFitTheLength) {
  EXPECT_EQ(duration_text(milliseconds(850)), "850 ms");
  EXPECT_EQ(duration_text(milliseconds(12340)), "12.3 s");
  EXPECT_EQ(duration_text(milliseconds(200'000)), "3 min 20 s");
  EXPECT_EQ(duration_text(milliseconds(7'500'000)), "2 h 05 min");
  EXPECT_EQ(duration_text(milliseconds(-3)), "0 ms");
}

TEST(BytesTest, UnitsFitTheSize) {
  EXPECT_EQ(bytes_text(613), "613 B");
  EXPECT_EQ(bytes_text(61'300), "61.3 kB");
  EXPECT_EQ(bytes_text(2'900'000), "2.9 MB");
  EXPECT_EQ(bytes_text(150'000'000'000), "150.0 GB");
}

TEST(ArchitectureNameTest, TakesTheUsualSpellings) {
  for (const char* text : {"sm_90", "sm90", "90", "9.0"})
    EXPECT_EQ(architecture_name(text), "sm_90");
  for (const char* text : {"sm_90a", "hopper", "", "sm_"}) EXPECT_EQ(architecture_name(text), text);
}

TEST(FirstFewTest, LongListsAreCounted) {
  EXPECT_EQ(first_few({}), "");
  EXPECT_EQ(first_few({"a", "b"}), "a, b");
  EXPECT_EQ(first_few({"a", "b", "c", "d", "e"}), "a, b, c, d, e");
  EXPECT_EQ(first_few(std::vector<std::string>(436, "x")), "x, x, x, x, x and 431 more");
}

TEST(EffortTest, StandsForABudgetOfTrials) {
  EXPECT_FALSE(parse_effort("normal").trials);
  EXPECT_LT(parse_effort("quick").trials, parse_effort("thorough").trials);
  EXPECT_FALSE(parse_effort("thorough").time);
  EXPECT_THROW(parse_effort("none"), Error);
}

TEST(CompactConfigTest, TheConventionalPrefixIsLeftOut) {
  EXPECT_EQ(compact_config(Config{{"kBlockN", 104}, {"kWarps", 4}, {"kernel", 1}}),
            "BlockN=104 Warps=4 kernel=1");
}

TEST(ProgressTextTest, SaysWhatRunsTheBestAndWhatIsLeft) {
  TuneProgress progress;
  progress.problem = "ViT-B/16@224 b32";
  progress.problem_index = 1;
  progress.problem_count = 4;
  progress.phase = "search";
  progress.done = 120;
  progress.planned = 400;
  progress.pruned = 3;
  progress.failed = 2;
  progress.best_us = 25.44;
  progress.elapsed = milliseconds(12'000);
  progress.eta = milliseconds(28'000);
  EXPECT_EQ(progress_text(progress),
            "[2/4] search 120/400, best 25.4 us, 3 pruned, 2 failed, 12.0 s, 28.0 s left: "
            "ViT-B/16@224 b32");
}

TEST(DeviceProbeTest, AnAnswerSurvivesTheWire) {
  DeviceProbe probe;
  probe.driver_version = 13000;
  DeviceInfo device;
  device.cc_major = 9;
  device.sm_count = 132;
  device.l2_bytes = 62914560;
  device.memory_bytes = 150'000'000'000;
  device.name = "NVIDIA H200";
  device.uuid = "GPU-1";
  probe.devices = {device};
  const DeviceProbe back = decode_probe(encode_probe(probe));
  EXPECT_EQ(back.devices, probe.devices);
  EXPECT_EQ(back.driver_version, 13000);
}

TEST(DeviceProbeTest, AnythingElseIsRefused) {
  for (const char* text :
       {"", "[]", "{}", "{\"driver_version\":1,\"reason\":\"\",\"devices\":[{}]}",
        "{\"driver_version\":\"x\",\"reason\":\"\",\"devices\":[]}"}) {
    EXPECT_THROW(decode_probe(text), Error) << text;
  }
}

}  // namespace
}  // namespace vitune
