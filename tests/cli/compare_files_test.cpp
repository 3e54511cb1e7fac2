// tests/cli/compare_files_test.cpp -- vitune compare on files that are damaged, hostile or of
// somebody else; and whether its intervals hold what they promise.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <filesystem>
#include <random>

#include "cli/arguments/json_file.h"
#include "cli/compare/comparison.h"
#include "cli/compare/timing_figures.h"
#include "tests/cli/command_fixture.h"
#include "tests/cli/timing_documents.h"
#include "tests/processor_seconds.h"

namespace vitune::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CompareFilesTest : public CommandTest {
 protected:
  // `content` beside a good file, on either side.
  void expect_refused(const std::string& content, const std::string& said) const {
    const std::string good = write_file("good.json", tune_document(10).dump()).string();
    const std::string bad = write_file("bad.json", content).string();
    for (const auto& files : {std::vector{good, bad}, std::vector{bad, good}}) {
      const CommandResult result = run({"compare", files[0], files[1]});
      EXPECT_EQ(result.status, 2) << content.substr(0, 100) << result.err;
      EXPECT_EQ(result.out, "");
      EXPECT_THAT(result.err, AllOf(HasSubstr("bad.json"), HasSubstr(said)));
      EXPECT_LT(result.err.size(), 2000u);
    }
  }
  // A good document with one thing changed.
  static std::string changed(const std::function<void(json&)>& change) {
    json document = tune_document(10);
    change(document);
    return document.dump();
  }
};

TEST_F(CompareFilesTest, DamagedFilesAreRefusedWithThePlace) {
  const std::string whole = tune_document(10).dump(1);
  expect_refused(whole.substr(0, whole.size() / 2), "was it written to the end");
  expect_refused("", "is not valid JSON");
  expect_refused("{} {}", "is not valid JSON (line 1");
  expect_refused(std::string("\0\xff\x1b[2J", 6), "is not valid JSON");
  expect_refused(std::string(100'000, '['), "nested deeper than 16");
  expect_refused(R"({"command": "tune", "results": [1e999]})", "is not valid JSON");
  expect_refused(R"({"a": ")" + std::string(1'000'000, 'x'), "is not valid JSON");
  std::string many = "[0";
  for (int i = 0; i < 4'000'000; ++i) many += ",0";
  expect_refused(many + "]", "more than 4000000 JSON values");
}

TEST_F(CompareFilesTest, WhatHoldsNoTimesIsRefusedWithWhatWouldDo) {
  for (const std::string text :
       {R"({})", R"({"schema": 1, "problems": []})", R"({"command": "show", "results": []})",
        R"({"command": "tune", "results": 7})", R"({"rows": []})"}) {
    expect_refused(text, "holds no times that are understood");
  }
  expect_refused("[]", "is not a JSON object");
  expect_refused(changed([](json& d) { d["schema"] = 2; }), "update vitune");
  expect_refused(changed([](json& d) { d.erase("schema"); }), "schema");
}

TEST_F(CompareFilesTest, MissingAndMistypedFieldsAreNamed) {
  const struct {
    std::function<void(json&)> change;
    std::string said;
  } cases[] = {
      {[](json& d) { d["results"][0].erase("name"); }, "results[0]: has no field \"name\""},
      {[](json& d) { d["results"][0]["name"] = 7; }, "results[0].name: is not a string"},
      {[](json& d) { d["results"][0]["name"] = std::string(5000, 'x'); }, "4096"},
      {[](json& d) { d["results"][0]["problem"] = json::array(); }, "results[0].problem"},
      {[](json& d) { d["results"][0]["winner"] = 3; }, "results[0].winner: is not a JSON object"},
      {[](json& d) { d["results"][0]["winner"].erase("warm"); }, "has no field \"warm\""},
      {[](json& d) { d["results"][0]["winner"]["cold"].erase("low_us"); }, "low_us"},
      {[](json& d) { d["results"][0]["winner"]["cold"]["median_us"] = "10"; }, "is not a number"},
      {[](json& d) { d["results"][0]["winner"]["cold"]["median_us"] = -10; }, "above 0"},
      {[](json& d) { d["results"][0]["winner"]["cold"]["median_us"] = 1e300; }, "at most"},
      {[](json& d) { d["results"][0]["winner"]["cold"]["high_us"] = 9; }, "does not hold"},
      {[](json& d) { d["results"][0]["winner"]["low_confidence"] = 1; }, "true nor false"},
      {[](json& d) { d["results"][0] = "text"; }, "results[0]: is not a JSON object"},
      {[](json& d) { d["results"].push_back(d["results"][0]); }, "twice; keep one"},
      {[](json& d) { d["device"] = "H200"; }, "device: is not a JSON object"},
  };
  for (const auto& c : cases) expect_refused(changed(c.change), c.said);
}

TEST_F(CompareFilesTest, MistakesInOtherFormatsAreNamedToo) {
  const auto google = [](const std::string& field, const json& value) {
    json document = google_document("x", {10});
    document["benchmarks"][0][field] = value;
    return document.dump();
  };
  expect_refused(google("time_unit", "fortnights"), "benchmarks[0].time_unit: is none of");
  expect_refused(google("real_time", 0), "benchmarks[0].real_time");
  expect_refused(google("real_time", nullptr), "has no field \"real_time\"");
  expect_refused(google("label", 1), "benchmarks[0].label: is not a string");
  const auto peers = [](const json& times) {
    return peers_document("ViT", kVit, {{"vitune", times}}).dump();
  };
  expect_refused(peers({{"cold", "fast"}}), "rows[0].us.vitune.cold: is not a number");
  expect_refused(peers({{"cold", 10}, {"cold_p10", 11}, {"cold_p90", 12}}),
                 "do not hold its median");
  expect_refused(peers({{"cold", 10}, {"cold_samples", json::array({1, -1})}}), "cold_samples[1]");
}

TEST_F(CompareFilesTest, NotANumberIsRefusedWhereATimeIsAndIgnoredElsewhere) {
  const std::string text = google_document("x", {10, 10, 10}).dump();
  const std::string time = "\"real_time\":";
  const std::string bare = std::string(text).replace(text.find(time) + time.size(), 4, "NaN");
  expect_refused(bare, "is not a number");
  // Google Benchmark writes such words for counters; inside a text they are text.
  const std::string counter = std::string(text).replace(
      text.find("\"name\":\"x\""), 10,
      "\"name\":\"NaN\",\"a\":NaN,\"b\":-Infinity,\"c\":-NaN,\"q\":\"\\\"NaN\"");
  const std::string file = write_file("counter.json", counter).string();
  const CommandResult result = run({"compare", file, file, "--json"});
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST_F(CompareFilesTest, WhatIsNoRegularReadableFileIsRefused) {
  const std::string good = write_file("good.json", tune_document(10).dump()).string();
  const auto said = [&](const std::string& path) {
    const CommandResult result = run({"compare", good, path});
    EXPECT_EQ(result.status, 2);
    return result.err;
  };
  EXPECT_THAT(said((directory() / "none.json").string()), HasSubstr("none.json: no such file"));
  EXPECT_THAT(said(directory().string()), HasSubstr("is not a regular file"));
  EXPECT_THAT(said("/dev/zero"), HasSubstr("is not a regular file"));
  const fs::path large = write_file("large.json", "{");
  fs::resize_file(large, 1'000'000'001);  // sparse: takes no room
  EXPECT_THAT(said(large.string()), HasSubstr("1.0 GB is the most"));
}

TEST_F(CompareFilesTest, ALongListTakesTimeInProportionToItsLength) {
  std::string text = R"({"schema":1,"results":[{})";
  for (int i = 1; i < 400'000; ++i) text += ",{}";
  const fs::path path = write_file("long.json", text + "]}");
  const double seconds =
      test::processor_seconds([&] { EXPECT_EQ(read_json_file(path)["results"].size(), 400'000U); });
  EXPECT_LT(seconds, 10) << "0.3 s is usual, and 46 s in proportion to its square";
}

TEST_F(CompareFilesTest, AHostileNameCannotDriveTheTerminal) {
  const std::string file =
      write_file("a.json", tune_document({{"\x1b[2Jclear", kVit, 10, 8}}).dump()).string();
  const CommandResult result = run({"compare", file, file});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
  EXPECT_THAT(result.out, HasSubstr("\\x1b[2Jclear"));
}

// --- the intervals themselves

TimedFigure drawn(std::mt19937_64& random, int count, double median_us) {
  std::lognormal_distribution<double> values(std::log(median_us), 0.05);
  std::vector<double> samples(static_cast<std::size_t>(count));
  for (double& sample : samples) sample = values(random);
  return figure_of_samples(std::move(samples));
}

TEST(RatioIntervals, HoldTheTrueRatioAboutAsOftenAsTheySay) {
  const struct {
    int count;
    std::string method;
    double least;  // share of intervals that hold it
  } cases[] = {{30, "bootstrap", 0.94}, {300, "intervals", 0.93}, {5, "extremes", 0.98}};
  for (const auto& c : cases) {
    std::mt19937_64 random(7);
    int held = 0;
    constexpr int kRuns = 400;
    for (int run = 0; run < kRuns; ++run) {
      const RatioInterval ratio =
          time_ratio(drawn(random, c.count, 10), drawn(random, c.count, 12));
      ASSERT_EQ(ratio.method, c.method);
      held += ratio.interval->low <= 1.2 && 1.2 <= ratio.interval->high;
    }
    EXPECT_GE(held, c.least * kRuns) << c.method;
    EXPECT_LT(held, kRuns) << c.method << ": it is never wrong, so it says nothing";
  }
}

TEST(RatioIntervals, NarrowWithMoreSamplesAndAreTheSameEachTime) {
  std::mt19937_64 random(9);
  const TimedFigure few = drawn(random, 10, 10), many = drawn(random, 190, 10);
  const auto width = [](const RatioInterval& r) { return r.interval->high - r.interval->low; };
  EXPECT_LT(width(time_ratio(many, many)), 0.5 * width(time_ratio(few, few)));
  EXPECT_EQ(time_ratio(few, many).interval->low, time_ratio(few, many).interval->low);
}

TEST(RatioIntervals, TurnRoundWithTheFiles) {
  const TimedFigure a = figure_of_deviation(10, 0.02, 25), b = figure_of_deviation(13, 0.03, 16);
  const RatioInterval forth = time_ratio(a, b), back = time_ratio(b, a);
  EXPECT_NEAR(forth.interval->low * back.interval->high, 1, 1e-12);
  EXPECT_NEAR(forth.ratio * back.ratio, 1, 1e-12);
}

}  // namespace
}  // namespace vitune::testing
