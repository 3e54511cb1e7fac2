// tests/cli/compare_test.cpp -- vitune compare: formats, pairing, verdicts, exit statuses.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/cli/command_fixture.h"
#include "tests/cli/timing_documents.h"

namespace vitune::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<double> kSteady = {10.0, 10.1, 9.9, 10.0, 10.05, 9.95, 10.0, 10.1};

std::vector<double> scaled(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

class CompareTest : public CommandTest {
 protected:
  CommandResult compare(const json& a, const json& b, std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"compare", write_file("a.json", a.dump()).string(),
                                     write_file("b.json", b.dump()).string()});
    return run(options);
  }
  // The first result of --json.
  json first(const json& a, const json& b, std::vector<std::string> options = {}) const {
    options.push_back("--json");
    const CommandResult result = compare(a, b, options);
    const json document = result.json();
    EXPECT_FALSE(document["results"].empty()) << result.err;
    return document["results"].empty() ? json() : document["results"][0];
  }
};

TEST_F(CompareTest, ACommittedResultIsTheSameAsItself) {
  const std::string file = VITUNE_SOURCE_DIR "/benchmarks/results/h200/tune.json";
  const CommandResult result = run({"compare", file, file, "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json document = result.json();
  EXPECT_EQ(document["schema"], 1);
  EXPECT_EQ(document["a"]["format"], "vitune tune");
  EXPECT_EQ(document["regressions"], 0);
  EXPECT_EQ(document["results"].size(), 80u);
  for (const json& row : document["results"]) {
    EXPECT_EQ(row["ratio"], 1.0);
    EXPECT_EQ(row["verdict"], "same");
    EXPECT_LE(row["low"], 1.0);
    EXPECT_GE(row["high"], 1.0);
  }
}

TEST_F(CompareTest, VerdictAndStatusFollowThresholdAndInterval) {
  const struct {
    double a, b, share;
    std::string threshold, verdict;
    int status;
  } cases[] = {
      {10, 11, 0.01, "5%", "slower", 6},  {10, 11, 0.01, "20%", "same", 0},
      {10, 10.4, 0.01, "5%", "same", 0},  {10, 10.4, 0.001, "1.5 %", "slower", 6},
      {10, 11, 0.12, "5%", "unclear", 0}, {10, 9, 0.01, "5%", "faster", 0},
      {10, 9, 0.12, "5", "unclear", 0},   {10, 10.4, 0.001, "0", "slower", 6},
      {10, 9.6, 0.001, "5%", "same", 0},
  };
  for (const auto& c : cases) {
    const json a = tune_document(c.a, 8, c.share), b = tune_document(c.b, 8, c.share);
    const CommandResult result = compare(a, b, {"--threshold", c.threshold});
    EXPECT_EQ(result.status, c.status) << c.b << ' ' << c.threshold << result.out << result.err;
    EXPECT_EQ(first(a, b, {"--threshold", c.threshold})["verdict"], c.verdict);
    if (c.status == 6) {
      EXPECT_THAT(result.err, HasSubstr("1 of 2 rows of B are slower"));
    }
    EXPECT_EQ(result.err.find("is not chance") != std::string::npos, c.verdict == "unclear");
  }
}

TEST_F(CompareTest, TheIntervalOfStoredIntervalsCombinesTheirLogarithms) {
  const json row = first(tune_document(10), tune_document(20));
  EXPECT_EQ(row["method"], "intervals");
  EXPECT_DOUBLE_EQ(row["ratio"], 2);
  // 1 % down in B and 1 % up in A: about sqrt(2) %.
  EXPECT_NEAR(row["low"].get<double>(), 2 * std::exp(-std::hypot(std::log(0.99), std::log(1.01))),
              1e-12);
  EXPECT_NEAR(row["high"].get<double>(), 2 * std::exp(std::hypot(std::log(1.01), std::log(0.99))),
              1e-12);
}

TEST_F(CompareTest, RowsOfPeersAndTunePairByProblemHoweverItIsWritten) {
  const json a = peers_document("another name", "bf16 b=1 h=12 n=197 d=64 layout=packed",
                                {{"vitune", peer_times(9)}, {"cudnn", peer_times(12)}});
  const json b = tune_document(10);
  const json row = first(a, b);
  EXPECT_EQ(row["problem"], kVit);
  EXPECT_EQ(row["a_us"], 9);
  EXPECT_EQ(row["b_us"], 10);
  EXPECT_EQ(row["verdict"], "slower");
  EXPECT_EQ(first(a, a, {"--peer", "cudnn"})["a_us"], 12);
  const CommandResult unknown = compare(a, a, {"--peer", "cudn"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("it has cudnn, vitune"));
}

TEST_F(CompareTest, PercentilesGiveTheMediansIntervalByTheirCount) {
  const json few = peers_document("ViT", kVit, {{"vitune", peer_times(10, 0.05, 16)}});
  const json many = peers_document("ViT", kVit, {{"vitune", peer_times(10, 0.05, 1600)}});
  const double wide = first(few, few)["high"], narrow = first(many, many)["high"];
  EXPECT_EQ(first(few, few)["method"], "intervals");
  // A hundred times the measurements: a tenth of the logarithm.
  EXPECT_NEAR(std::log(wide), 10 * std::log(narrow), 1e-9);
  json uncounted = few;
  uncounted["rows"][0]["us"]["vitune"].erase("cold_samples");
  const json row = first(uncounted, uncounted);
  EXPECT_EQ(row["method"], "extremes");
  EXPECT_NEAR(row["high"].get<double>(), 1.05 / 0.95, 1e-9);
}

TEST_F(CompareTest, APeerThatRefusedIsNamedWithItsReason) {
  json a = peers_document("ViT", kVit, {{"vitune", peer_times(9)}, {"flash", {{"warm", 3.0}}}});
  a["rows"].push_back(
      {{"name", "biased"}, {"problem", kSwin}, {"us", {{"vitune", peer_times(4)}}}});
  a["rows"][1]["refused"] = {{"flash", "no bias"}};
  const CommandResult result = compare(a, a, {"--peer", "flash"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("A has no time for biased: no bias"));
  // One that took part but refused everything is known all the same.
  a["peers"] = {"vitune", "flex"};
  a["rows"][0]["failed"] = {{"flex", "did not compile"}};
  const CommandResult none = compare(a, a, {"--peer", "flex"});
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.err, HasSubstr("ViT: did not compile"));
}

TEST_F(CompareTest, ABenchDocumentHasThePeersItWasPrintedWith) {
  json a = tune_document({{"ViT", kVit, 10, 8}}, "bench");
  a["results"][0]["peers"] = {{{"peer", "cudnn"}, {"cold_us", 14.0}, {"warm_us", 12.0}},
                              {{"peer", "eager"}, {"cold_us", 140.0}, {"warm_us", 120.0}}};
  EXPECT_EQ(first(a, a)["a_us"], 10);
  const json row = first(a, a, {"--peer", "cudnn", "--kind", "warm"});
  EXPECT_EQ(row["a_us"], 12);
  EXPECT_EQ(row["method"], "none");
  EXPECT_TRUE(row["low"].is_null());
}

TEST_F(CompareTest, RepetitionsOfGoogleBenchmarkAreResampled) {
  const json a = google_document("look_up/8", kSteady);
  const json slower = first(a, google_document("look_up/8", scaled(kSteady, 1.2)));
  EXPECT_EQ(slower["kind"], "time");
  EXPECT_EQ(slower["method"], "bootstrap");
  EXPECT_EQ(slower["verdict"], "slower");
  EXPECT_GT(slower["low"].get<double>(), 1.15);
  EXPECT_LT(slower["high"].get<double>(), 1.25);
  // The unit is the file's own.
  EXPECT_EQ(first(a, google_document("look_up/8", scaled(kSteady, 1000), "ns"))["ratio"], 1.0);
  EXPECT_EQ(compare(a, google_document("look_up/8", scaled(kSteady, 1.2))).status, 6);
}

TEST_F(CompareTest, AggregatesOfGoogleBenchmarkStandInForRepetitions) {
  const auto aggregates = [](double median, double deviation) {
    json document = google_document("look_up", {});
    for (const auto& [name, value] :
         {std::pair{"mean", median}, {"median", median}, {"stddev", deviation}, {"cv", 0.01}}) {
      document["benchmarks"].push_back({{"name", "look_up_" + std::string(name)},
                                        {"run_name", "look_up"},
                                        {"run_type", "aggregate"},
                                        {"aggregate_name", name},
                                        {"repetitions", 25},
                                        {"real_time", value},
                                        {"time_unit", "us"}});
    }
    return document;
  };
  const json row = first(aggregates(10, 0.5), aggregates(12, 0.6));
  EXPECT_EQ(row["method"], "intervals");
  EXPECT_EQ(row["verdict"], "slower");
  EXPECT_NEAR(std::log(row["high"].get<double>() / 1.2), std::sqrt(2) * 1.96 * 1.2533 * 0.05 / 5,
              1e-9);
}

TEST_F(CompareTest, ASingleRunIsNeverARegression) {
  const CommandResult result = compare(google_document("x", {10}), google_document("x", {30}));
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("3.000"), HasSubstr("unclear")));
  EXPECT_THAT(result.err, HasSubstr("measure more often"));
}

TEST_F(CompareTest, FewMeasurementsMustNotOverlapToCount) {
  const json a = google_document("x", {10, 11, 10.5});
  EXPECT_EQ(first(a, google_document("x", {11.5, 12, 13}))["method"], "extremes");
  EXPECT_EQ(compare(a, google_document("x", {11.5, 12, 13})).status, 6);
  EXPECT_EQ(compare(a, google_document("x", {10.9, 12, 13})).status, 0);
}

// "attention/bf16 b=1 ...": bench_operators says the operator's name once.
TEST_F(CompareTest, BenchmarksOfOperatorsPairWithWhatTunePrinted) {
  const struct {
    std::string name, label, problem;
  } cases[] = {
      {"attention/bf16 b=1 h=12 n=197 d=64", "ViT-B/16@224 b1", kVit},
      {"norm/bf16 m=197 d=768 weight bias", "ViT-B b1 norm", "norm bf16 m=197 d=768 weight bias"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const std::string suffix = "/iterations:1/repeats:8/manual_time";
    json b = google_document(c.name + "/cold" + suffix, kSteady, "us", c.label);
    const json warm = google_document(c.name + "/warm" + suffix, kSteady, "us", c.label);
    for (const json& entry : warm["benchmarks"]) b["benchmarks"].push_back(entry);
    const json row = first(tune_document({{"as it was tuned", c.problem, 9, 8}}), b);
    EXPECT_EQ(row["kind"], "cold");
    EXPECT_EQ(row["problem"], c.problem);
    EXPECT_NEAR(row["b_us"].get<double>(), 10, 0.05);
    EXPECT_EQ(row["verdict"], "slower");
    EXPECT_EQ(first(b, b, {"--kind", "warm"})["name"], c.label);
    EXPECT_THAT(compare(b, b, {"--peer", "cudnn"}).err, HasSubstr("no times of peer 'cudnn'"));
  }
}

// From when cuDNN ran beside vitune in that program.
TEST_F(CompareTest, TheCommittedBenchmarksOfAttentionAreTheSameAsThemselves) {
  const std::string file = VITUNE_SOURCE_DIR "/benchmarks/results/h200/bench_attention.json";
  for (const std::string peer : {"vitune", "cudnn"}) {
    const CommandResult result = run({"compare", file, file, "--peer", peer, "--json"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.json()["results"].size(), 8u) << peer;
    for (const json& row : result.json()["results"]) EXPECT_EQ(row["verdict"], "same");
  }
}

TEST_F(CompareTest, BenchmarksOfPeersPairWithWhatTunePrinted) {
  const std::string suffix = "/iterations:1/repeats:8/manual_time";
  json b = google_document("vitune/cold/ViT-B/16@224 b1" + suffix, kSteady, "us", kVit);
  const json cudnn =
      google_document("cudnn/cold/ViT-B/16@224 b1" + suffix, scaled(kSteady, 2), "us", kVit);
  for (const json& entry : cudnn["benchmarks"]) b["benchmarks"].push_back(entry);
  const json row = first(tune_document(9), b);
  EXPECT_EQ(row["kind"], "cold");
  EXPECT_NEAR(row["b_us"].get<double>(), 10, 0.05);
  EXPECT_EQ(row["verdict"], "slower");
  const json other = first(b, b, {"--peer", "cudnn"});
  EXPECT_EQ(other["name"], "ViT-B/16@224 b1");
  EXPECT_NEAR(other["a_us"].get<double>(), 20, 0.1);
}

TEST_F(CompareTest, AFailedBenchmarkIsNamedAndTheOthersAreCompared) {
  json b = google_document("x", kSteady);
  b["benchmarks"].push_back(
      {{"name", "y"}, {"run_name", "y"}, {"error_occurred", true}, {"error_message", "no kernel"}});
  const CommandResult result = compare(google_document("x", kSteady), b);
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("B has no time for y: no kernel"));
}

TEST_F(CompareTest, TheKindChoosesTheRows) {
  const json a = tune_document(10, 8), b = tune_document(10, 12);
  EXPECT_EQ(compare(a, b).status, 6);
  EXPECT_EQ(compare(a, b, {"--kind", "cold"}).status, 0);
  EXPECT_EQ(compare(a, b, {"--kind", "warm"}).status, 6);
  EXPECT_EQ(first(a, b, {"--kind", "warm"})["kind"], "warm");
}

TEST_F(CompareTest, RowsOfOneFileOnlyAreListed) {
  const json a = tune_document({{"ViT", kVit, 10, 8}, {"gone", kSwin, 5, 4}});
  const json b =
      tune_document({{"ViT", kVit, 10, 8}, {"gone", "attention bf16 b=9 h=1 n=8 d=8", 7, 6}});
  const json document = compare(a, b, {"--json"}).json();
  ASSERT_EQ(document["only_in_a"].size(), 2u);
  EXPECT_EQ(document["only_in_a"][0]["problem"], kSwin);
  EXPECT_EQ(document["only_in_b"][1]["us"], 6);
  const CommandResult csv = compare(a, b, {"--csv"});
  EXPECT_EQ(csv.status, 0);
  EXPECT_THAT(csv.out, AllOf(HasSubstr("problem,kind,a_us,b_us,ratio,low,high,method,verdict\n"),
                             HasSubstr("gone,cold,5,,,,,,only in A\n"),
                             HasSubstr("gone,warm,,6,,,,,only in B\n")));
  const CommandResult text = compare(a, b);
  EXPECT_THAT(text.out, Not(HasSubstr("only in")));
  EXPECT_THAT(text.err, AllOf(HasSubstr("2 times are only in A"), HasSubstr("only in B")));
  EXPECT_THAT(compare(a, b, {"-v"}).out, HasSubstr("only in A"));
}

TEST_F(CompareTest, TheGeometricMeanIsOfThePairedRowsAndNarrowerThanThey) {
  const json a = tune_document({{"ViT", kVit, 10, 8}, {"Swin", kSwin, 5, 4}});
  const json b = tune_document({{"ViT", kVit, 20, 8}, {"Swin", kSwin, 10, 4}});
  const json document = compare(a, b, {"--json"}).json();
  const json& mean = document["geometric_means"][0];
  EXPECT_EQ(mean["kind"], "cold");
  EXPECT_EQ(mean["rows"], 2);
  EXPECT_NEAR(mean["ratio"].get<double>(), 2, 1e-12);
  const double row = std::log(document["results"][0]["high"].get<double>() / 2);
  EXPECT_NEAR(std::log(mean["high"].get<double>() / 2), row / std::sqrt(2), 1e-9);
  EXPECT_THAT(compare(a, b, {"--md"}).out, HasSubstr("| geometric mean of 2 | cold |"));
}

TEST_F(CompareTest, OtherDevicesAreWarnedOf) {
  const json a = tune_document(10);
  json b = a;
  b["device"]["key"] = "cc8.0 sm108";
  b["device"]["name"] = "NVIDIA A100";
  EXPECT_THAT(compare(a, b).err, HasSubstr("different devices (NVIDIA H200 and NVIDIA A100)"));
  b["device"] = a["device"];
  b["device"]["name"] = "the same silicon under another name";
  EXPECT_THAT(compare(a, b).err, Not(HasSubstr("different devices")));
  const json peers = peers_document("ViT", kVit, {{"vitune", peer_times(9)}});
  EXPECT_THAT(compare(a, peers).err, Not(HasSubstr("different devices")));
}

TEST_F(CompareTest, AReplayedFileIsSaidToBeOne) {
  json a = tune_document({{"ViT", kVit, 10, 8}}), b = a;
  EXPECT_THAT(compare(a, b).err, Not(HasSubstr("replayed")));
  b["origin"] = "replayed";
  EXPECT_THAT(compare(a, b).err, HasSubstr("2 times, replayed)"));
  EXPECT_EQ(compare(a, b, {"--json"}).json()["b"]["replayed"], true);
}

TEST_F(CompareTest, NothingToCompareIsAFailureAndNotASuccess) {
  const CommandResult other =
      compare(tune_document({{"ViT", kVit, 10, 8}}), tune_document({{"Swin", kSwin, 10, 8}}));
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("nothing was compared"));
  EXPECT_THAT(other.err, HasSubstr("only in A"));
  EXPECT_EQ(
      compare(google_document("x", kSteady), google_document("x", kSteady), {"--kind", "cold"})
          .status,
      1);
}

TEST_F(CompareTest, AProblemWithoutAWinnerIsNamed) {
  json b = tune_document({{"ViT", kVit, 10, 8}, {"Swin", kSwin, 5, 4}});
  b["results"][1]["winner"] = nullptr;
  b["results"][1]["message"] = "every candidate failed";
  const CommandResult result = compare(tune_document(10), b);
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("B has no time for Swin: every candidate failed"));
}

}  // namespace
}  // namespace vitune::testing
