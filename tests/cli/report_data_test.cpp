// tests/cli/report_data_test.cpp -- The numbers behind the pictures of a report.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>

#include "catalogue/problem_set.h"
#include "cli/report/config_map.h"
#include "cli/report/measurements.h"
#include "cli/report/result_files.h"
#include "cli/report/search_curves.h"
#include "core/error.h"
#include "tests/cli/synthetic_recording.h"
#include "tests/cli/timing_documents.h"

namespace vitune::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class ReportData : public ::testing::Test {
 protected:
  ReportData() {
    std::string pattern = (fs::temp_directory_path() / "vitune-report-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
    folder_ = pattern;
  }
  ~ReportData() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const nlohmann::json& document) const {
    std::ofstream(folder_ / name) << document;
    return folder_ / name;
  }
  // The message of the error that `read` throws.
  template <typename Read>
  static std::string refusal(Read&& read) {
    try {
      read();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      return error.what();
    }
    return "nothing was refused";
  }

 private:
  fs::path folder_;
};

TEST_F(ReportData, AReplayIsSaidToBeOne) {
  nlohmann::json document = tune_document({{"ViT", kVit, 10, 8}});
  EXPECT_EQ(read_tune_measurements(write("tune.json", document), {}).place(), "NVIDIA H200");
  document["origin"] = "replayed";
  EXPECT_EQ(read_tune_measurements(write("tune.json", document), {}).place(),
            "NVIDIA H200, replayed from a recording");
}

TEST_F(ReportData, TheBestPeerIsNeitherOursNorEager) {
  nlohmann::json times = {{"vitune", peer_times(10)},
                          {"vitune_default", peer_times(5)},
                          {"eager", peer_times(6)},
                          {"cudnn", peer_times(15)},
                          {"flash", peer_times(20)}};
  nlohmann::json document = peers_document("ViT", kVit, times);
  document["date"] = "2026-01-02T03:04:05Z";
  document["rows"][0]["floor_us"] = 2.5;
  const Measurements read = read_peer_measurements(write("peers.json", document));
  ASSERT_THAT(read.problems, SizeIs(1));
  const ProblemTimes& row = read.problems[0];
  EXPECT_EQ(row.best_peer(Objective::kCold)->peer, "cudnn");
  EXPECT_DOUBLE_EQ(*row.speed_up(Objective::kCold), 1.5);
  EXPECT_EQ(row.floor_us, 2.5);
  EXPECT_EQ(read.place(), "NVIDIA H200, 2026-01-02");
  EXPECT_THAT(read.peers(), ElementsAre("cudnn", "flash", "eager"));
  EXPECT_FALSE(read.stored_peers);
}

TEST_F(ReportData, SpeedUpsCountLossesAndTakeTheGeometricMean) {
  Measurements measurements;
  for (const double peer_us : {20.0, 5.0, 40.0}) {
    ProblemTimes times;
    times.us["vitune"] = {10, std::nullopt};
    times.us["cudnn"] = {peer_us, 8};
    measurements.problems.push_back(times);
  }
  const SpeedUps cold = speed_ups(measurements, Objective::kCold);
  EXPECT_EQ(cold.faster, 2);
  EXPECT_EQ(cold.slower, 1);
  EXPECT_NEAR(cold.mean, std::cbrt(2 * 0.5 * 4), 1e-12);
  EXPECT_EQ(speed_ups(measurements, Objective::kWarm).count(), 0);
}

TEST_F(ReportData, TuneTimesStandBesideStoredPeers) {
  NamedProblem known;
  known.name = "ViT";
  known.problem = AttentionProblem::parse(kVit);
  known.peers = {{"cudnn", 30, 24}};
  known.floor_us = 3;
  const Measurements read = read_tune_measurements(
      write("tune.json", tune_document({{"ViT", kVit, 20, 12}, {"Swin", kSwin, 7, 6}})), {known});
  ASSERT_THAT(read.problems, SizeIs(2));
  EXPECT_DOUBLE_EQ(*read.problems[0].speed_up(Objective::kWarm), 2);
  EXPECT_FALSE(read.problems[1].best_peer(Objective::kCold));
  EXPECT_TRUE(read.stored_peers);
  EXPECT_THAT(read.notes, ElementsAre(HasSubstr("Swin: no times of peers")));
}

TEST_F(ReportData, RefusesFilesThatAreNoneAndSaysWhere) {
  const fs::path peers = write("p.json", tune_document(10)), tune = write("t.json", {{"a", 1}});
  EXPECT_THAT(refusal([&] { read_peer_measurements(peers); }),
              AllOf(HasSubstr("p.json"), HasSubstr("no result of benchmarks/peers")));
  EXPECT_THAT(refusal([&] { read_tune_measurements(tune, {}); }), HasSubstr("t.json"));
  const fs::path none = write("n.json", peers_document("ViT", kVit, {{"cudnn", peer_times(15)}}));
  EXPECT_THAT(refusal([&] { read_peer_measurements(none); }), HasSubstr("no time of vitune"));
}

TEST_F(ReportData, LeavesOutProblemsItDoesNotUnderstand) {
  nlohmann::json document = peers_document("ViT", kVit, {{"vitune", peer_times(10)}});
  document["rows"].push_back(
      {{"name", "new"}, {"problem", "convolution b=1"}, {"us", {{"vitune", peer_times(10)}}}});
  const Measurements read = read_peer_measurements(write("peers.json", document));
  EXPECT_THAT(read.problems, SizeIs(1));
  EXPECT_THAT(read.notes, ElementsAre(HasSubstr("new: its problem is not understood")));
}

TEST_F(ReportData, ReadsCeilingsAndRefusesRatesThatAreNone) {
  nlohmann::json document = {
      {"schema", 1},
      {"device", {{"name", "GPU"}}},
      {"measured", {{"wgmma_tflops", {{"median", 900}, {"low", 880}, {"high", 910}}}}},
      {"clock_mhz", 1980},
      {"driver", "1.2"}};
  const MeasuredCeilings ceilings = read_ceilings(write("c.json", document));
  EXPECT_EQ(ceilings.find("wgmma_tflops"), 900);
  EXPECT_FALSE(ceilings.find("mma_tflops"));
  EXPECT_EQ(ceilings.device, "GPU");
  document["measured"]["wgmma_tflops"]["low"] = -1;
  const fs::path bad = write("bad.json", document);
  EXPECT_THAT(refusal([&] { read_ceilings(bad); }), HasSubstr("measured.wgmma_tflops.low"));
  document["schema"] = 2;
  const fs::path newer = write("newer.json", document);
  EXPECT_THAT(refusal([&] { read_ceilings(newer); }), HasSubstr("schema 2"));
}

TEST_F(ReportData, NamesTheStepsOfAColdStart) {
  nlohmann::json document = google_document("first_launch/manual_time", {900, 1000, 1100});
  const ColdStart start = read_cold_start(write("s.json", document));
  ASSERT_THAT(start.steps, SizeIs(1));
  EXPECT_EQ(start.steps[0].what, "first call, stored cubin");
  EXPECT_DOUBLE_EQ(start.steps[0].us, 1000);
  EXPECT_EQ(start.device, "NVIDIA H200");
}

TEST_F(ReportData, TheShippedWorksAreWhole) {
  const std::vector<Work> works =
      read_works(fs::path(VITUNE_SOURCE_DIR) / "data" / "reference_works.json");
  ASSERT_THAT(works, SizeIs(4));
  const WorkTable& ladder = works[1].tables.at(0);
  ASSERT_THAT(ladder.problems, SizeIs(3));
  EXPECT_EQ(ladder.problems[0], "attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed");
  EXPECT_THAT(ladder.rows.at(0).cells, ElementsAre("48.01 ms", "410.74 ms", "1.30 s"));
  EXPECT_EQ(ladder.rows.at(0).kernel, "naive");
}

TEST_F(ReportData, EveryProblemOfAWorkIsAmongThoseThatAreMeasured) {
  const fs::path data = fs::path(VITUNE_SOURCE_DIR) / "data";
  std::set<std::string> measured;
  for (const NamedProblem& named : load_problem_file(data / "reference_problems.json")) {
    EXPECT_TRUE(measured.insert(named.problem->text()).second) << named.name;
  }
  std::size_t asked = 0;
  for (const Work& work : read_works(data / "reference_works.json")) {
    for (const WorkTable& table : work.tables) {
      for (const std::string& problem : table.problems) {
        EXPECT_TRUE(measured.contains(problem)) << problem;
        ++asked;
      }
    }
  }
  EXPECT_EQ(asked, 7u);
}

TEST_F(ReportData, KeepsThePeakMemoryOfPeersThatHaveTimes) {
  nlohmann::json document = peers_document("ViT", kVit, {{"vitune", peer_times(10)}});
  document["rows"][0]["memory"] = {{"vitune", 302592}, {"fa3", 5}};
  const Measurements read = read_peer_measurements(write("peers.json", document));
  EXPECT_EQ(read.problems[0].peak_memory("vitune"), 302592);
  EXPECT_FALSE(read.problems[0].peak_memory("fa3"));
  document["rows"][0]["memory"]["vitune"] = -1;
  const fs::path bad = write("bad.json", document);
  EXPECT_THAT(refusal([&] { read_peer_measurements(bad); }),
              HasSubstr("rows[0].memory.vitune: is no size"));
}

nlohmann::json first_calls_document() {
  const nlohmann::json us = {{"import_torch", 3e6}, {"cuda_context", 4e5}, {"first", 150e3},
                             {"second", 80},        {"later", 60},         {"next_problem", 40e3},
                             {"samples", 5}};
  return {{"schema", 1},
          {"command", "first_calls"},
          {"device", {{"name", "GPU"}}},
          {"date", "2026-01-02T03:04:05+00:00"},
          {"problem", kVit},
          {"next_problem", kSwin},
          {"us", {{"cudnn", us}}},
          {"refused", {{"flash", "not mine"}}},
          {"failed", {{"effic", "it died"}}}};
}

TEST_F(ReportData, ReadsFirstCallsAndWhoWasLeftOut) {
  const FirstCalls calls = read_first_calls(write("f.json", first_calls_document()));
  EXPECT_EQ(calls.device, "GPU");
  EXPECT_EQ(calls.date, "2026-01-02");
  ASSERT_NE(calls.find("cudnn"), nullptr);
  EXPECT_EQ(calls.find("cudnn")->first, 150e3);
  EXPECT_EQ(calls.find("cudnn")->next_problem, 40e3);
  EXPECT_EQ(calls.find("cudnn")->samples, 5);
  EXPECT_EQ(calls.find("flash"), nullptr);
  EXPECT_EQ(calls.left_out.at("flash"), "not mine");
  EXPECT_EQ(calls.left_out.at("effic"), "it died");
}

TEST_F(ReportData, RefusesFirstCallsThatLackAFigure) {
  nlohmann::json document = first_calls_document();
  document["us"]["cudnn"].erase("second");
  const fs::path bad = write("f.json", document);
  EXPECT_THAT(refusal([&] { read_first_calls(bad); }), HasSubstr("us.cudnn"));
  const fs::path other = write("p.json", peers_document("ViT", kVit, {}));
  EXPECT_THAT(refusal([&] { read_first_calls(other); }), HasSubstr("run.py --first-calls wrote"));
}

TEST_F(ReportData, FindsReferenceKernelsByProblemHoweverItIsWritten) {
  const nlohmann::json document = {
      {"schema", 1},
      {"device", {{"name", "GPU"}}},
      {"date", "2026-01-02T03:04:05Z"},
      {"rows",
       {{{"kernel", "naive"},
         {"problem", "bf16 b=1 h=12 n=197 d=64"},
         {"us", 5},
         {"call_bytes", 7}},
        {{"kernel", "naive"}, {"problem", "of a later version"}, {"us", 6}}}}};
  const ReferenceResults reference = read_reference(write("r.json", document));
  EXPECT_EQ(reference.place(), "GPU, 2026-01-02");
  ASSERT_NE(reference.find("naive", kVit), nullptr);
  EXPECT_EQ(reference.find("naive", kVit)->us, 5);
  EXPECT_EQ(reference.find("naive", kVit)->call_bytes, 7);
  EXPECT_EQ(reference.find("tuned", kVit), nullptr);
  EXPECT_EQ(reference.find("naive", kSwin), nullptr);
}

TEST_F(ReportData, ARowOfAWorkHasACellForEachColumn) {
  const nlohmann::json table = {{"title", "t"},
                                {"machine", "m"},
                                {"first_column", "v"},
                                {"columns", {"a", "b"}},
                                {"rows", {{{"label", "x"}, {"cells", {"1"}}}}}};
  const nlohmann::json document = {
      {"schema", 1},
      {"works", {{{"title", "w"}, {"source", "s"}, {"tables", nlohmann::json::array({table})}}}}};
  const fs::path bad = write("w.json", document);
  EXPECT_THAT(refusal([&] { read_works(bad); }), HasSubstr("one cell for each of the 2 columns"));
}

constexpr const char* kRecorded = "attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed";

TEST(ReportSearch, CurvesRiseToTheOptimumAndLocalIsNotWorse) {
  const Recording recording = synthetic_recording({kRecorded}, 300);
  const std::atomic<bool> stop{false};
  const SearchCurves curves = search_curves(recording, recording.problems[0], 3, stop);
  ASSERT_THAT(curves.strategies, SizeIs(3));
  EXPECT_EQ(curves.space, recording.problems[0].trials.size());
  for (const StrategyCurve& curve : curves.strategies) {
    double last = 0;
    for (const CurvePoint& point : curve.points) {
      EXPECT_GE(point.median, last) << curve.strategy;
      EXPECT_LE(point.low, point.median);
      EXPECT_LE(point.median, point.high);
      last = point.median;
    }
    if (curve.strategy != "local") {
      EXPECT_DOUBLE_EQ(last, 1) << curve.strategy;
    }
    EXPECT_GT(last, 0.99) << curve.strategy;
    EXPECT_DOUBLE_EQ(curve.points.back().share_tried, 1);
  }
  double best = 1e9;
  for (const Trial& trial : recording.problems[0].trials) {
    if (trial.status == TrialStatus::kOk) best = std::min(best, trial.measurement.cold.median_us);
  }
  EXPECT_DOUBLE_EQ(curves.optimum_us, best);
}

TEST(ReportSearch, PoolsTheMediansOfProblems) {
  SearchCurves a{"a", 10, 1, {{"random", {{0.5, 0, 0.4, 0}, {1, 1, 1, 1}}, 1}}};
  SearchCurves b{"b", 20, 1, {{"random", {{0.5, 0, 0.8, 0}, {1, 1, 1, 1}}, 0.5}}};
  const SearchCurves pooled = pooled_curves({a, b});
  ASSERT_THAT(pooled.strategies, SizeIs(1));
  EXPECT_DOUBLE_EQ(pooled.strategies[0].points[0].median, 0.6);
  EXPECT_DOUBLE_EQ(pooled.strategies[0].points[0].low, 0.44);
  EXPECT_DOUBLE_EQ(pooled.strategies[0].points[0].high, 0.76);
  EXPECT_EQ(pooled.space, 30u);
}

TEST(ReportSearch, EndsWhenItIsToldTo) {
  const Recording recording = synthetic_recording({kRecorded}, 300);
  const std::atomic<bool> stop{true};
  EXPECT_THROW(search_curves(recording, recording.problems[0], 1, stop), Error);
}

Trial trial_of(const Config& config, TrialStatus status, double us) {
  Trial trial;
  trial.config = config;
  trial.status = status;
  trial.measurement.cold = {us, us, us, 10};
  return trial;
}

TEST(ReportMap, GroupsConfigsByTileAndKeepsTheBest) {
  const Config narrow{{"kBlockN", 64}, {"kStages", 2}, {"kWarps", 4}, {"kRowTiles", 1}};
  Config other = narrow, wide = narrow, foreign = narrow;
  other.set("kPersistent", 1);
  wide.set("kBlockN", 128);
  foreign.set("kHeadsPerCta", 0);  // would divide by zero
  const ConfigMap map =
      config_map("ViT", AttentionProblem::parse(kRecorded),
                 {trial_of(narrow, TrialStatus::kOk, 12), trial_of(other, TrialStatus::kOk, 10),
                  trial_of(wide, TrialStatus::kPruned, 0), trial_of(foreign, TrialStatus::kOk, 1),
                  trial_of(Config{{"kWarps", 4}}, TrialStatus::kOk, 1)});
  ASSERT_THAT(map.cells, SizeIs(2));
  EXPECT_EQ(map.configs, 3u);
  EXPECT_EQ(map.best_us, 10);
  EXPECT_EQ(map.cells[0].block_m, 64);
  EXPECT_EQ(map.cells[0].best_us, 10);
  EXPECT_THAT(map.cells[0].best_config, HasSubstr("Persistent=1"));
  EXPECT_FALSE(map.cells[1].best_us);
  EXPECT_EQ(map.cells[1].main_failure(), TrialStatus::kPruned);
}

}  // namespace
}  // namespace vitune::testing
