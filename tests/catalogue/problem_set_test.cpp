// tests/catalogue/problem_set_test.cpp -- Problem files, hostile ones among them, and the presets.
// SPDX-License-Identifier: Apache-2.0
#include "catalogue/problem_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <set>
#include <string>

#include "core/error.h"
#include "generator/attention/operator.h"
#include "tests/catalogue/shipped_catalogue.h"
#include "tests/processor_seconds.h"

namespace vitune {
namespace {

using test::kData;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

const std::string kText = "attention bf16 b=2 h=3 nq=4 nk=4 d=8 layout=packed";

class ProblemSet : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "vitune_set_XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }
  // The message that loading `content` as `name` ends with; its code must be `code`.
  std::string refusal(const std::string& name, const std::string& content,
                      ErrorCode code = ErrorCode::kUsage) const {
    return refusal_of(write(name, content), code);
  }
  std::string refusal_of(const std::filesystem::path& path, ErrorCode code) const {
    try {
      load_problem_file(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(path.filename().string()));
      return error.what();
    }
    ADD_FAILURE() << "accepted " << path;
    return "";
  }

  std::filesystem::path folder_;
};

TEST_F(ProblemSet, ATextFileHasOneProblemPerLine) {
  const auto path = write("p.txt", "# a comment\n\nbf16 b=2 h=3 n=4 d=8\r\n   \n  # another\n\t" +
                                       kText + " causal\nfp16 b=1 h=1 nq=1 nk=9 d=64");

  const auto problems = load_problem_file(path);

  ASSERT_THAT(problems, SizeIs(3));
  EXPECT_EQ(problems[0].name, kText);
  EXPECT_EQ(problems[0].problem->text(), kText);
  EXPECT_EQ(problems[1].problem->text(), kText + " causal");
  EXPECT_EQ(attention_of(*problems[2].problem).nk, 9);
  EXPECT_TRUE(problems[0].group.empty() && problems[0].peers.empty() && !problems[0].floor_us);
}

TEST_F(ProblemSet, AByteOrderMarkInFrontIsNoWord) {
  const auto problems = load_problem_file(write("p.txt", "\xef\xbb\xbf" + kText + "\r\n"));
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].problem->text(), kText);
}

TEST_F(ProblemSet, ALineMayBeAJsonObject) {
  const auto path = write("p.jsonl", "{\"name\":\"mine\",\"group\":\"g\",\"problem\":\"" + kText +
                                         "\",\"count\":7}\n{\"problem\":\"" + kText +
                                         "\",\"name\":null}\n" + kText + "\n");

  const auto problems = load_problem_file(path);

  ASSERT_THAT(problems, SizeIs(3));
  EXPECT_EQ(problems[0].name, "mine");
  EXPECT_EQ(problems[0].group, "g");
  EXPECT_EQ(problems[1].name, kText);
  EXPECT_EQ(problems[2].problem->text(), problems[0].problem->text());
}

TEST_F(ProblemSet, ADocumentMayCarryWhatOthersNeed) {
  const auto path =
      write("p.json", R"({"schema":1,"note":"x","problems":[{"name":"a","problem":")" + kText +
                          R"(","peers_us":{"b":{"cold":2,"warm":1.5},"a":{"cold":4.0,
      "warm":3.0}},"floor_us":0.5},{"name":"é","problem":")" +
                          kText + R"(","peers_us":null,"floor_us":null}]})");

  const auto problems = load_problem_file(path);

  ASSERT_THAT(problems, SizeIs(2));
  EXPECT_THAT(problems[0].peers, ElementsAre(PeerTime{"a", 4, 3}, PeerTime{"b", 2, 1.5}));
  EXPECT_EQ(problems[0].floor_us, 0.5);
  EXPECT_EQ(problems[1].name, "é");
  EXPECT_TRUE(problems[1].peers.empty());
}

TEST_F(ProblemSet, AMistakeInALineIsReportedWithFileAndLine) {
  EXPECT_THAT(refusal("a.txt", "# x\nbf16 b=2 h=3 n=4 d=8\nbf16 b=two h=3 n=4 d=8\n"),
              HasSubstr("a.txt:3: b: 'two' is not a whole number"));
  EXPECT_THAT(refusal("b.txt", kText + "\nbf16 b=2 h=3 n=4 d=130", ErrorCode::kUnsupported),
              HasSubstr("b.txt:2: head size d=130 is not supported: use 8 to 128"));
  EXPECT_THAT(refusal("c.jsonl", kText + "\n\n{\"problem\":\n"),
              HasSubstr("c.jsonl:3: is not valid"));
  EXPECT_THAT(refusal("d.jsonl", kText + "\n{\"name\":\"x\"}\n"),
              HasSubstr("d.jsonl:2 ('x'): field \"problem\""));
  EXPECT_THAT(refusal("e.jsonl", "{\"problem\":\"" + kText + "\"} trailing\n"),
              HasSubstr("e.jsonl:1: is not valid JSON"));
  EXPECT_THAT(refusal("f.jsonl", "{\"problem\":\"" + kText + " gelu\"}\n"),
              HasSubstr("f.jsonl:1: unknown word 'gelu'"));
}

TEST_F(ProblemSet, AMistakeInADocumentIsReportedWithEntryAndField) {
  const auto entry = [](const std::string& fields) {
    return R"({"schema":1,"problems":[{"problem":"bf16 b=1 h=1 n=1 d=8"},{)" + fields + "}]}";
  };
  const std::string text = R"("problem":"bf16 b=1 h=1 n=1 d=8")";
  const struct {
    std::string content, words;
  } cases[] = {
      {"", "c.json: is empty; expected a JSON object with \"schema\": 1 and \"problems\""},
      {"no JSON",
       "c.json:1: is not valid JSON (invalid literal; last read: 'no'); expected a JSON"},
      {"{\n\"schema\":", "c.json:2: is not valid JSON (unexpected end of input); expected a JSON"},
      {"{\n\"schema\":1,\n\"problems\": [,]\n}", "c.json:3: is not valid JSON"},
      {"\xff\xfe", "is not valid JSON"},
      {R"({"schema":1,"problems":[{"name":")"
       "\xff"
       R"("}]})",
       "is not valid JSON"},
      {"[]", "is not a JSON object"},
      {"3", "is not a JSON object"},
      {R"({"problems":[]})", "field \"schema\" is missing"},
      {R"({"schema":"1","problems":[]})", "field \"schema\" is missing"},
      {R"({"schema":2,"problems":[]})", "has schema 2: this version reads 1; update"},
      {R"({"schema":1})", "field \"problems\" is missing"},
      {R"({"schema":1,"problems":{}})", "field \"problems\" is missing or not an array"},
      {R"({"schema":1,"problems":[]})", "holds no problem"},
      {R"({"schema":1,"problems":[7]})", "problem 1: is not a JSON object"},
      {entry(""), "problem 2: field \"problem\" (the text of a problem) is missing"},
      {entry(R"("problem":7)"), "problem 2: field \"problem\" is not a string"},
      {entry(R"("name":"x","problem":"")"), "problem 2 ('x'): the problem text is empty"},
      {entry(R"("name":[],)" + text), "field \"name\" is not a string"},
      {entry(R"("name":"\u001b[2J",)" + text), "'\\x1b[2J': use at most 200 printable"},
      {entry(R"("name":"\u009b2J",)" + text), "printable characters"},
      {entry(R"("name":")" + std::string(201, 'n') + "\"," + text), "at most 200"},
      {entry(R"("group":{},)" + text), "field \"group\" is not a string"},
      {entry(R"("peers_us":[],)" + text), "\"peers_us\" is not an object"},
      {entry(R"("peers_us":{"p":1},)" + text), "peer 'p': is not an object"},
      {entry(R"("peers_us":{"p":{"cold":1}},)" + text), "peer 'p': field \"warm\" is missing"},
      {entry(R"("peers_us":{"p":{"cold":"1","warm":1}},)" + text), "\"cold\" is missing or not a"},
      {entry(R"("peers_us":{"p":{"cold":0,"warm":1}},)" + text), "use microseconds above 0"},
      {entry(R"("peers_us":{"\n":{"cold":1,"warm":1}},)" + text), "printable characters"},
      {entry(R"("floor_us":-1,)" + text), "field \"floor_us\" is -1"},
      {entry(R"("floor_us":1e999,)" + text), "cannot be taken"},
      {std::string(1'000'000, '['), "nested deeper than 8 levels"},
      {R"({"schema":1,"problems":[)" + std::string(2'000'000, '1') + "]}", "cannot be taken"},
  };
  for (const auto& c : cases) EXPECT_THAT(refusal("c.json", c.content), HasSubstr(c.words));
}

TEST_F(ProblemSet, AFileThatIsTooLargeOrTooFullIsRefusedUnread) {
  std::string full = "[";
  for (int i = 0; i < 4'000'001; ++i) full += "0,";
  EXPECT_THAT(refusal("full.json", full + "0]"), HasSubstr("more than 4000000 JSON values"));

  const auto path = write("large.txt", "");
  std::filesystem::resize_file(path, (std::uintmax_t{64} << 20) + 1);  // sparse
  EXPECT_THAT(refusal_of(path, ErrorCode::kUsage), HasSubstr("64 MiB are the most"));
  std::filesystem::resize_file(path, std::uintmax_t{8} << 20);
  EXPECT_THAT(refusal_of(path, ErrorCode::kUsage), HasSubstr("large.txt:1: "));
}

TEST_F(ProblemSet, ALongListTakesTimeInProportionToItsLength) {
  std::string text = R"({"schema":1,"problems":[{})";
  for (int i = 1; i < 400'000; ++i) text += ",{}";
  const auto seconds = test::processor_seconds(
      [&] { EXPECT_THAT(refusal("long.json", text + "]}"), HasSubstr("problem 1: field")); });
  EXPECT_LT(seconds, 10) << "0.3 s is usual, and 46 s in proportion to its square";
}

TEST_F(ProblemSet, WhatIsNoReadableFileIsRefused) {
  EXPECT_THAT(refusal_of(folder_ / "none.json", ErrorCode::kUsage), HasSubstr("no such file"));
  EXPECT_THAT(refusal("a.yaml", kText), HasSubstr("use .json, .jsonl or .txt"));
  EXPECT_THAT(refusal("noextension", kText), HasSubstr("use .json, .jsonl or .txt"));
  EXPECT_THAT(refusal("empty.txt", "# nothing\n"), HasSubstr("holds no problem"));
  std::filesystem::create_directory(folder_ / "folder.json");
  EXPECT_THAT(refusal_of(folder_ / "folder.json", ErrorCode::kUsage),
              HasSubstr("is not a regular file"));
  ASSERT_EQ(mkfifo((folder_ / "pipe.txt").c_str(), 0600), 0);
  EXPECT_THAT(refusal_of(folder_ / "pipe.txt", ErrorCode::kUsage),
              HasSubstr("is not a regular file"));
  std::filesystem::create_symlink("loop.txt", folder_ / "loop.txt");
  EXPECT_THAT(refusal_of(folder_ / "loop.txt", ErrorCode::kUsage), HasSubstr("cannot be read"));
  if (geteuid() != 0) {
    const auto path = write("closed.txt", kText);
    std::filesystem::permissions(path, std::filesystem::perms::none);
    EXPECT_THAT(refusal_of(path, ErrorCode::kUsage), HasSubstr("cannot be opened"));
  }
}

TEST_F(ProblemSet, ATruncatedOrDamagedShippedFileNeverCrashes) {
  std::ifstream stream(kData / "bench_problems.json");
  const std::string content{std::istreambuf_iterator<char>(stream), {}};
  std::mt19937_64 random(5);
  std::uniform_int_distribution<std::size_t> place(0, content.size() - 1);
  std::uniform_int_distribution<int> byte(0, 255);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string damaged = content;
    if (round % 2 == 0) {
      damaged.resize(place(random));
    } else {
      for (int i = 0; i < 4; ++i) damaged[place(random)] = static_cast<char>(byte(random));
    }
    try {
      load_problem_file(write("damaged.json", damaged));
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("damaged.json"));
      ++refused;
    }
  }
  EXPECT_GT(refused, 200);
}

TEST_F(ProblemSet, TheShippedProblemsAreCanonicalAndNamedApart) {
  const auto problems = load_problem_file(kData / "bench_problems.json");

  ASSERT_THAT(problems, SizeIs(40));
  std::set<std::string> names;
  std::ifstream stream(kData / "bench_problems.json");
  const std::string content{std::istreambuf_iterator<char>(stream), {}};
  for (const NamedProblem& problem : problems) {
    EXPECT_TRUE(names.insert(problem.name).second) << problem.name;
    EXPECT_THAT(content, HasSubstr("\"" + problem.problem->text() + "\"")) << problem.name;
    EXPECT_GE(problem.peers.size(), 3U) << problem.name;
    EXPECT_TRUE(problem.floor_us) << problem.name;
  }
}

// These problems are measured by benchmarks/bench_operators.
TEST_F(ProblemSet, EveryOperatorHasShippedProblemsInTheirCanonicalText) {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(kData)) {
    if (!entry.path().filename().string().ends_with("_problems.json")) continue;
    std::ifstream stream(entry.path());
    const std::string content{std::istreambuf_iterator<char>(stream), {}};
    for (const NamedProblem& named : load_problem_file(entry.path())) {
      found.insert(named.problem->operator_name());
      EXPECT_THAT(content, HasSubstr('"' + named.problem->text() + '"')) << entry.path();
    }
  }
  for (const Operator* op : operators()) {
    EXPECT_TRUE(found.contains(std::string(op->name())))
        << op->name() << ": add data/*_problems.json";
  }
}

TEST_F(ProblemSet, PresetsHoldWhatTheirNamesSay) {
  EXPECT_THAT(preset_names(), ElementsAre("vit-b16", "recorded", "vit", "bias", "long", "bench",
                                          "swin", "sam", "siglip", "all"));
  EXPECT_THAT(preset("bench", kData), SizeIs(40));
  EXPECT_THAT(preset("recorded", kData), SizeIs(10));
  EXPECT_EQ(
      preset("vit", kData).size() + preset("bias", kData).size() + preset("long", kData).size(),
      40U);
  for (const NamedProblem& p : preset("bias", kData))
    EXPECT_TRUE(attention_of(*p.problem).bias) << p.name;
  std::vector<std::int64_t> batches;
  for (const NamedProblem& p : preset("vit-b16", kData)) {
    batches.push_back(attention_of(*p.problem).batch);
    EXPECT_EQ(attention_of(*p.problem).nq, 197);
    EXPECT_EQ(attention_of(*p.problem).heads, 12);
  }
  EXPECT_THAT(batches, ElementsAre(1, 32, 128));
  for (const std::string& name : preset_names()) EXPECT_FALSE(preset_description(name).empty());
}

TEST_F(ProblemSet, PresetsOfModelsAreAskedForImagesAndType) {
  for (const char* name : {"vit-b16", "recorded", "vit", "bias", "long", "bench"}) {
    EXPECT_FALSE(is_preset_of_models(name)) << name;
  }
  const ModelInput input{{3}, ElementType::kFp16};
  std::size_t all = preset("all", kData, input).size();
  for (const auto& [name, part, models] :
       {std::tuple("swin", "swin", 7U), {"sam", "sam", 6U}, {"siglip", "siglip", 20U}}) {
    EXPECT_TRUE(is_preset_of_models(name));
    std::set<std::string> groups, problems;
    for (const NamedProblem& p : preset(name, kData, input)) {
      EXPECT_THAT(p.name, HasSubstr(" b3")) << name;
      EXPECT_THAT(p.problem->text(), HasSubstr(" fp16 "));
      EXPECT_TRUE(problems.insert(p.problem->text()).second) << p.problem->text();
      const std::string family = p.group == "hieradet_small" ? "sam" : p.group;  // SAM 2's encoder
      EXPECT_THAT(family, HasSubstr(part));
      groups.insert(p.group);
    }
    EXPECT_LE(groups.size(), models) << name;
    EXPECT_GT(groups.size(), models / 3) << name;
    EXPECT_LT(problems.size(), all);
  }
  EXPECT_GT(all, 900U);
  const ModelInput attention_alone{{3}, ElementType::kFp16, {"attention"}};
  for (const NamedProblem& p : preset("swin", kData, attention_alone)) {
    EXPECT_EQ(p.problem->operator_name(), "attention");
  }
  EXPECT_GT(preset("all", kData, attention_alone).size(), 350U);
  EXPECT_GT(preset("swin", kData).size(), preset("swin", kData, input).size());
  EXPECT_THROW(is_preset_of_models("resnet"), Error);
}

TEST_F(ProblemSet, AnUnknownPresetOrAForeignDataFileIsNamed) {
  try {
    preset("resnet", kData);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("no preset 'resnet': use one of vit-b16, recorded, vit"));
  }
  const auto failure = [&](const char* name) -> std::string {
    try {
      preset(name, folder_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailure);
      return error.what();
    }
    ADD_FAILURE();
    return "";
  };
  EXPECT_THAT(failure("vit"), HasSubstr("is the installation complete?"));
  write("bench_problems.json",
        R"({"schema":1,"problems":[{"name":"x","problem":")" + kText + "\"}]}");
  EXPECT_THAT(failure("vit"), HasSubstr("has no problem of group 'vit'"));
  EXPECT_THAT(failure("vit-b16"), HasSubstr("has no problem 'ViT-B/16@224 b1'"));
}

}  // namespace
}  // namespace vitune
