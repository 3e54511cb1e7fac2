// tests/tuner/recording_test.cpp -- Recordings: round trips, sizes, and files made by anyone.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/recording/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <zstd.h>

#include <nlohmann/json.hpp>
#include <random>

#include "generator/operator.h"
#include "tests/tuner/fake_device.h"
#include "tests/tuner/synthetic_space.h"
#include "tests/tuner/test_support.h"

namespace vitune {
namespace {

using nlohmann::json;
using test::error_of;
using ::testing::HasSubstr;

// A sweep over `count` candidates of the synthetic space with figures as a worker would report
// them.
RecordedProblem sweep(const std::string& text, std::size_t count, std::uint64_t seed) {
  const SearchSpace space = test::synthetic_space();
  RecordedProblem problem;
  problem.name = "problem " + text;
  problem.text = text;
  for (const Parameter& parameter : space.parameters) problem.parameters.push_back(parameter.name);
  for (std::size_t i = 0; i < count; ++i) {
    Trial trial;
    trial.config = space.configs[i];
    trial.origin = Origin::kReplayed;
    trial.compile = {static_cast<int>(40 + i % 200), static_cast<int>(i % 7 == 0 ? i : 0),
                     static_cast<std::int64_t>(1024 * (i % 200)), 150};
    const auto cost = test::synthetic_cost(space, i, seed);
    if (cost) {
      const double noise = 0.002 + 0.01 * test::noise(seed, 77, i);
      trial.measurement.cold = {*cost, *cost * (1 - noise), *cost * (1 + noise), 10};
      trial.measurement.warm = {*cost * 0.8, *cost * 0.79, *cost * 0.81, 30};
      trial.error = {1e-3 * (1 + test::noise(seed, 78, i)), 1e-5 * (1 + test::noise(seed, 79, i)),
                     4e-3, 5e-5};
    } else {
      trial.status = i % 2 == 0 ? TrialStatus::kPruned : TrialStatus::kCrash;
      trial.reason = "spills " + std::to_string(i % 50) + " bytes";
    }
    problem.trials.push_back(trial);
  }
  return problem;
}

Recording recording(std::size_t problems, std::size_t candidates) {
  Recording result;
  result.device = test::fake_device();
  result.device.uuid.clear();
  result.compiler_version = "nvrtc 13.0 0123456789ab";
  result.template_digest = std::string(64, 'a');
  result.created = "2026-03-01T12:00:00Z";
  for (std::size_t i = 0; i < problems; ++i) {
    result.put(sweep("attention bf16 n=" + std::to_string(i), candidates, i + 1));
  }
  return result;
}

std::string compress(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

std::string decompress(const std::string& packed) {
  std::string text(ZSTD_getFrameContentSize(packed.data(), packed.size()), '\0');
  ZSTD_decompress(text.data(), text.size(), packed.data(), packed.size());
  return text;
}

TEST(Recording, ARoundTripKeepsEverythingToFourDigits) {
  const Recording before = recording(2, 300);
  const Recording after = Recording::parse(before.serialise(), "memory");
  EXPECT_EQ(after.device, before.device);
  EXPECT_EQ(after.compiler_version, before.compiler_version);
  EXPECT_EQ(after.template_digest, before.template_digest);
  EXPECT_EQ(after.created, before.created);
  ASSERT_EQ(after.problems.size(), 2u);
  for (std::size_t p = 0; p < 2; ++p) {
    ASSERT_EQ(after.problems[p].trials.size(), 300u);
    EXPECT_EQ(after.problems[p].name, before.problems[p].name);
    for (std::size_t i = 0; i < 300; ++i) {
      const Trial& was = before.problems[p].trials[i];
      const Trial& is = after.problems[p].trials[i];
      ASSERT_EQ(is.config, was.config);
      EXPECT_EQ(is.status, was.status);
      EXPECT_EQ(is.reason, was.reason);
      EXPECT_EQ(is.compile, was.compile);
      EXPECT_EQ(is.origin, Origin::kReplayed);
      // Half a unit of the fourth digit, which is at least 1/2000 of the value, and of a
      // nanosecond.
      const auto close = [](double a, double b) { return std::abs(a - b) <= b * 5.01e-4 + 5e-4; };
      EXPECT_TRUE(close(is.measurement.cold.median_us, was.measurement.cold.median_us));
      EXPECT_TRUE(close(is.measurement.cold.low_us, was.measurement.cold.low_us));
      EXPECT_TRUE(close(is.measurement.warm.high_us, was.measurement.warm.high_us));
      EXPECT_EQ(is.measurement.cold.samples, was.measurement.cold.samples);
      EXPECT_NEAR(is.error.max_error, was.error.max_error, was.error.max_error * 5.01e-4);
      EXPECT_NEAR(is.error.rms_bound, was.error.rms_bound, was.error.rms_bound * 5.01e-4);
    }
  }
}

TEST(Recording, ASampleKeepsWhatItDrewAndOfHowMany) {
  Recording before = recording(2, 30);
  before.problems[1].space_size = 1000;
  before.problems[1].drawn.assign(30, true);
  before.problems[1].drawn[7] = false;
  const Recording after = Recording::parse(before.serialise(), "memory");
  EXPECT_EQ(after.problems[0].space_size, 0);
  EXPECT_TRUE(after.problems[0].drawn.empty());
  EXPECT_EQ(after.problems[1].space_size, 1000);
  EXPECT_EQ(after.problems[1].drawn, before.problems[1].drawn);
}

TEST(Recording, WritingWhatWasReadChangesNothing) {
  const std::string bytes = recording(1, 200).serialise();
  EXPECT_EQ(Recording::parse(bytes, "memory").serialise(), bytes);
}

TEST(Recording, TenSweepsOfTwoThousandCandidatesTakeLessThanThreeMegabytes) {
  EXPECT_LT(recording(10, 2000).serialise().size(), 3u << 20);
}

TEST(Recording, PuttingAProblemAgainReplacesIt) {
  Recording result = recording(2, 10);
  result.put(sweep("attention bf16 n=0", 5, 9));
  ASSERT_EQ(result.problems.size(), 2u);
  EXPECT_EQ(result.find("attention bf16 n=0")->trials.size(), 5u);
  EXPECT_EQ(result.find("attention bf16 n=7"), nullptr);
}

TEST(Recording, SavesAtomicallyAndLeavesNoTemporaryFile) {
  test::TemporaryDirectory directory;
  const auto path = directory / "a.recording";
  recording(1, 10).save(path);
  recording(2, 10).save(path);
  EXPECT_EQ(Recording::load(path).problems.size(), 2u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path.parent_path()), {}), 1);
}

TEST(Recording, SayingWhatIsWrongWithAnUnwritablePlace) {
  test::TemporaryDirectory directory;
  const auto path = directory / "absent" / "a.recording";
  const Error error = error_of([&] { recording(1, 2).save(path); });
  EXPECT_THAT(error.what(), HasSubstr(path.string()));
}

TEST(Recording, WhatIsNoRegularFileIsRefusedAtOnce) {
  test::TemporaryDirectory directory;
  ASSERT_EQ(mkfifo((directory / "fifo").c_str(), 0600), 0);
  for (const auto& path : {directory / "missing", directory / "fifo", std::filesystem::path("/")}) {
    const Error error = error_of([&] { Recording::load(path); });
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr(path.string()));
  }
}

TEST(Recording, ALackOfDescriptorsIsNotTakenForAMissingFile) {
  test::TemporaryDirectory directory;
  recording(1, 2).save(directory / "a.recording");
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const Error error = error_of([&] { Recording::load(directory / "a.recording"); });
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(error.what(), HasSubstr("ulimit -n"));
}

TEST(Recording, EveryTruncationIsRefused) {
  const std::string bytes = recording(1, 40).serialise();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(Recording::parse(std::string_view(bytes).substr(0, size), "memory"), Error)
        << size;
  }
  EXPECT_THROW(Recording::parse(bytes + "x", "memory"), Error);
}

// A flipped bit may go unnoticed in a text or a figure, but never does harm.
TEST(Recording, BitFlipsGiveAnErrorOrASoundRecording) {
  std::mt19937_64 random(5);
  const std::string packed = recording(1, 60).serialise();
  const std::string plain = decompress(packed);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    const bool outside = round % 2 == 0;
    std::string bytes = outside ? packed : plain;
    bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    try {
      const Recording read = Recording::parse(outside ? bytes : compress(bytes), "memory");
      for (const Trial& trial : read.problems.at(0).trials) {
        if (trial.status != TrialStatus::kOk) continue;
        EXPECT_GT(trial.measurement.cold.low_us, 0);
        EXPECT_LE(trial.measurement.cold.median_us, trial.measurement.cold.high_us);
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

// Changes the document of a good recording.
std::string altered(const std::function<void(json&)>& change) {
  json document = json::parse(decompress(recording(2, 20).serialise()));
  change(document);
  return compress(document.dump());
}

TEST(Recording, HostileDocumentsAreRefusedWithAReason) {
  struct Case {
    const char* reason;
    std::function<void(json&)> change;
  };
  const auto problem = [](json& d) -> json& { return d["problems"][0]; };
  const std::vector<Case> cases = {
      {"no vitune recording", [](json& d) { d["format"] = "something else"; }},
      {"no vitune recording", [](json& d) { d = json::array(); }},
      {"version 2", [](json& d) { d["version"] = 2; }},
      {"\"version\"", [](json& d) { d["version"] = -1; }},
      {"\"device\" is missing", [](json& d) { d.erase("device"); }},
      {"sm_count", [](json& d) { d["device"]["sm_count"] = -4; }},
      {"sm_count", [](json& d) { d["device"]["sm_count"] = 4.5; }},
      {"l2_bytes", [](json& d) { d["device"]["l2_bytes"] = 18446744073709551615u; }},
      {"control characters", [](json& d) { d["device"]["name"] = "H200\x1b[2J"; }},
      {"too long", [](json& d) { d["created"] = std::string(5000, 'x'); }},
      {"wrong type", [](json& d) { d["problems"] = 3; }},
      {"there twice", [](json& d) { d["problems"][1]["text"] = d["problems"][0]["text"]; }},
      {"named twice", [&](json& d) { problem(d)["parameters"][1] = problem(d)["parameters"][0]; }},
      {"no name of a parameter",
       [&](json& d) { problem(d)["parameters"][0] = "k; asm(\"trap;\")"; }},
      {"one list per parameter", [&](json& d) { problem(d)["configs"].erase(0); }},
      {"one value per candidate", [&](json& d) { problem(d)["configs"][0].push_back(1); }},
      {"configs", [&](json& d) { problem(d)["configs"][0][3] = 1e300; }},
      {"configs", [&](json& d) { problem(d)["configs"][0][3] = "64"; }},
      {"recorded twice",
       [&](json& d) {
         for (auto& list : problem(d)["configs"]) list[1] = list[0];
       }},
      {"no status", [&](json& d) { problem(d)["statuses"][0] = "splendid"; }},
      {"\"status\"", [&](json& d) { problem(d)["status"][0] = 99; }},
      {"\"status\"", [&](json& d) { problem(d)["status"][0] = -1; }},
      {"\"reason\"", [&](json& d) { problem(d)["reason"][0] = 1000000; }},
      {"differ in length", [&](json& d) { problem(d)["reason"].push_back(0); }},
      {"registers", [&](json& d) { problem(d)["columns"]["registers"].erase(0); }},
      {"cold_ns", [&](json& d) { problem(d)["columns"]["cold_ns"][0] = -5; }},
      {"max_error", [&](json& d) { problem(d)["columns"]["max_error"][0] = -0.5; }},
      {"max_error", [&](json& d) { problem(d)["columns"]["max_error"][0] = nullptr; }},
      {"\"space\" is missing", [&](json& d) { problem(d)["drawn"] = std::vector<int>(20, 1); }},
      {"\"space\"",
       [&](json& d) {
         problem(d).update({{"drawn", std::vector<int>(20, 1)}, {"space", 19}});
       }},
      {"one value per candidate",
       [&](json& d) {
         problem(d).update({{"drawn", std::vector<int>(19, 1)}, {"space", 99}});
       }},
      {"drawn",
       [&](json& d) {
         problem(d).update({{"drawn", std::vector<int>(20, 2)}, {"space", 99}});
       }},
      {"no sound timing",
       [&](json& d) { problem(d)["columns"]["warm_samples"] = std::vector<int>(20, 0); }},
      {"no sound timing",
       [&](json& d) {
         problem(d)["columns"]["cold_low_ns"] = std::vector<std::int64_t>(20, 80000000000000);
       }},
  };
  for (const Case& c : cases) {
    const Error error = error_of([&] { Recording::parse(altered(c.change), "hostile"); });
    EXPECT_EQ(error.code(), ErrorCode::kUsage) << c.reason;
    EXPECT_THAT(error.what(), HasSubstr("hostile"));
    EXPECT_THAT(error.what(), HasSubstr(c.reason));
  }
  EXPECT_NO_THROW(Recording::parse(altered([](json&) {}), "sound"));
}

TEST(Recording, DeepNestingAndHugeContentsAreRefusedBeforeTheyAreParsed) {
  const std::string deep(1 << 20, '[');
  EXPECT_THAT(error_of([&] { Recording::parse(compress(deep), "deep"); }).what(),
              HasSubstr("nested"));
  // 200 MB of blanks in some kilobytes.
  const std::string bomb = compress(std::string(std::size_t{200} << 20, ' '));
  EXPECT_LT(bomb.size(), 100000u);
  EXPECT_THAT(error_of([&] { Recording::parse(bomb, "bomb"); }).what(),
              HasSubstr("more than any recording"));
}

std::string repeated(const std::string& part, std::size_t times) {
  std::string text;
  text.reserve(part.size() * times);
  for (std::size_t i = 0; i < times; ++i) text += part;
  return text;
}

TEST(Recording, TextsOfWhichAParserWouldMakeGigabytesAreRefusedBeforeTheyAreParsed) {
  for (const auto& [part, times] : std::vector<std::pair<std::string, std::size_t>>{
           {"{},", 60 << 20}, {"[],", 60 << 20}, {"\"\",", 60 << 20}, {"0,", 90 << 20}}) {
    const std::string bomb = compress("{\"problems\":[" + repeated(part, times) + "0]}");
    EXPECT_LT(bomb.size(), 40000u) << part;
    EXPECT_THAT(error_of([&] { Recording::parse(bomb, "bomb"); }).what(),
                HasSubstr("more values than any recording"))
        << part;
  }
}

TEST(RecordedTemplates, AreThoseOfTheOperatorsThatWereMeasured) {
  Recording recording;
  EXPECT_EQ(recorded_templates(recording), "");
  const std::string built_in = operators().front()->templates().digest().hex();
  for (const std::string& text : {operators().front()->example(), std::string("of_none b=1")}) {
    RecordedProblem& problem = recording.problems.emplace_back();
    problem.text = text;
    EXPECT_EQ(recorded_templates(recording), built_in);
  }
  for (const Operator* other : operators().subspan(1)) {
    const std::string before = recorded_templates(recording);
    recording.problems.emplace_back().text = other->example();
    EXPECT_NE(recorded_templates(recording), before) << other->name();
  }
}

}  // namespace
}  // namespace vitune
