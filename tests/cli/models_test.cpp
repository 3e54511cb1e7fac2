// tests/cli/models_test.cpp -- Models by name: vitune models, --model and what goes with it.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/cli/command_fixture.h"
#include "tests/model/model_files.h"

namespace vitune::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

class ModelsTest : public CommandTest {};

// The input that the arguments give.
class ModelInputsTest : public CommandTest {
 protected:
  void SetUp() override {
    if (!has_compiler()) GTEST_SKIP() << "no NVRTC here";
  }
  static bool is_of_models(const std::string& argument) {
    return argument == "--model" || argument == "-m" || argument == "sam";
  }
  // The attention problems that a verb takes from its arguments, by name: `compile` of an
  // architecture that has no space left says so for each without compiling anything.
  std::vector<std::pair<std::string, std::string>> taken(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(),
                     {"compile", "--arch", "sm_80", "--json", "-q", "--config", "kBlockN=7"});
    if (std::ranges::any_of(arguments, is_of_models)) {
      arguments.insert(arguments.end(), {"--operator", "attention", "--as", "drop-in"});
    }
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.status, 1) << result.err;
    std::vector<std::pair<std::string, std::string>> problems;
    const auto document = result.json();
    for (const auto& entry : document["results"]) {
      EXPECT_EQ(entry["status"], "outside the space");
      problems.emplace_back(entry["name"], entry["problem"]);
    }
    return problems;
  }
};

TEST_F(ModelsTest, TheListHasProblemsLayersTokensAndHeadSize) {
  const CommandResult result = run({"models", "--csv", "vit_base_patch16_224"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("model,problems,layers,tokens,head size,outside\n"));
  EXPECT_THAT(result.out, HasSubstr("\nvit_base_patch16_224,1,12,197,64,\n"));
  EXPECT_THAT(run({"models", "mobilevit_s", "--csv"}).out, HasSubstr("mobilevit_s,1,9,64,48,5"));
}

TEST_F(ModelsTest, AModelFileIsShownWithItsProblemsAndWhatServesThem) {
  const test::ModelFolder folder;
  const std::string path = folder.write(test::small_file()).string();
  const CommandResult result = run({"models", path, "--batch", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("licence   apache-2.0\n"));
  EXPECT_THAT(result.out, HasSubstr("9: 1 attention, 4 linear, 2 map, 1 norm, 1 window_attention"));
  const auto document = run({"models", path, "--json"}).json();
  EXPECT_EQ(document["batch"], 1);
  EXPECT_EQ(document["steps"], 11);
  EXPECT_EQ(document["copies"], 1);
  EXPECT_GT(document["arena_bytes"], 0);
  ASSERT_EQ(document["problems"].size(), 11u);
  EXPECT_THAT(document["problems"].dump(),
              HasSubstr("\"linear bf16 m=17 n=192 k=64 bias act=gelu\""));
  EXPECT_EQ(run({"models", path, "--names"}).status, 2);
  EXPECT_EQ(run({"models", path, "vit_base_patch16_224"}).status, 2);
  const CommandResult damaged = run({"models", folder.write("damaged").string()});
  EXPECT_EQ(damaged.status, 2);
  EXPECT_THAT(damaged.err, HasSubstr("model.safetensors: has 7 bytes"));
}

TEST_F(ModelsTest, TheDigestOfAModelFileComesBehindAllThatNeedsNoWeights) {
  const test::ModelFolder folder;
  const CommandResult result = run({"models", folder.write(test::small_file()).string()});
  EXPECT_EQ(result.status, 0) << result.err;
  const std::size_t problems = result.out.find("linear bf16"), digest = result.out.find("digest");
  ASSERT_NE(problems, std::string::npos);
  ASSERT_NE(digest, std::string::npos);
  EXPECT_LT(problems, digest);
}

TEST_F(ModelsTest, AModelFileNamesTheProblemsOfItsSessionsWhereverAModelMayStand) {
  const test::ModelFolder folder;
  const std::string path = folder.write(test::small_file()).string();
  const auto texts = [](const nlohmann::json& problems) {
    std::set<std::string> found;
    for (const auto& each : problems) found.insert(each["problem"]);
    return found;
  };
  for (const std::string batch : {"1", "3"}) {
    const auto listed = run({"models", path, "--batch", batch, "--json"}).json()["problems"];
    const CommandResult shown = run({"explain", "--model", path, "--batch", batch, "--json"});
    ASSERT_EQ(shown.status, 0) << shown.err;
    EXPECT_EQ(texts(shown.json()["problems"]), texts(listed));
  }
  const CommandResult norms =
      run({"explain", path, "--batch", "1", "--operator", "norm", "--json"});
  ASSERT_EQ(norms.status, 0) << norms.err;
  ASSERT_EQ(norms.json()["problems"].size(), 2u);
  EXPECT_THAT(norms.json()["problems"].dump(), HasSubstr("model.safetensors norm #1 b1 (1x)"));
}

TEST_F(ModelsTest, WhatIsNoModelFileIsRefusedByEveryVerbThatTakesOne) {
  const test::ModelFolder folder;
  const std::string damaged = folder.write("damaged").string();
  for (const std::string verb : {"tune", "bench", "verify", "explain"}) {
    const CommandResult result = run({verb, "--model", damaged});
    EXPECT_EQ(result.status, 2) << verb << result.err;
    EXPECT_THAT(result.err, HasSubstr("model.safetensors: has 7 bytes"));
    EXPECT_EQ(run({verb, absent("no.vitune")}).status, 2) << verb;
  }
}

TEST_F(ModelsTest, ALongTextOfAModelFileIsCut) {
  const test::ModelFolder folder;
  auto header = test::small_header(test::small_graph());
  header["__metadata__"]["source"] = std::string(500'000, 's');
  const std::string path =
      folder.write(test::bytes_of(header.dump(), test::data_of(header))).string();
  EXPECT_LT(run({"models", path}).out.size(), 5000u);
  EXPECT_EQ(run({"models", path, "--json"}).json()["source"], std::string(997, 's') + "...");
}

TEST_F(ModelsTest, TheFirstTwoHundredProblemsOfAModelFileAreLookedUp) {
  const test::ModelFolder folder;
  auto graph = test::tiny_graph();
  for (int i = 0; i < 201; ++i) {
    const std::string value = "v" + std::to_string(i);
    graph["values"].push_back({{"name", value}, {"type", "fp32"}, {"shape", {8 + i, 1}}});
    graph["nodes"].push_back({{"op", "linear"},
                              {"at", ""},
                              {"x", {{"of", "one"}, {"extents", {8 + i, 1}}, {"strides", {0, 1}}}},
                              {"w", "one"},
                              {"out", value}});
  }
  const auto header = test::tiny_header(graph);
  const std::string path =
      folder.write(test::bytes_of(header.dump(), test::data_of(header))).string();
  const CommandResult result = run({"models", path, "--json"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("is looked up for the first 200"));
  const auto problems = result.json()["problems"];
  ASSERT_GT(problems.size(), 200u);
  EXPECT_NE(problems[199]["served"], "-");
  EXPECT_EQ(problems[200]["served"], "-");
}

TEST_F(ModelsTest, NamesAreFilteredByWordsAndGlobs) {
  const CommandResult all = run({"models", "--names"});
  EXPECT_EQ(std::count(all.out.begin(), all.out.end(), '\n'), 380);
  EXPECT_EQ(run({"models", "--names", "samvit"}).out,
            "samvit_base_patch16\nsamvit_base_patch16_224\nsamvit_large_patch16\n");
  // A whole name is that model's alone.
  EXPECT_EQ(run({"models", "--names", "samvit_base_patch16"}).out, "samvit_base_patch16\n");
  // As hubs write a name.
  EXPECT_EQ(run({"models", "--names", "timm/vit_base_patch16_224.augreg_in21k"}).out,
            "vit_base_patch16_224\n");
  const CommandResult glob = run({"models", "--names", "vit_base*", "*_384"});
  EXPECT_THAT(glob.out, HasSubstr("vit_base_patch16_224\n"));
  EXPECT_THAT(glob.out, HasSubstr("beit_base_patch16_384\n"));
  EXPECT_THAT(glob.out, Not(HasSubstr("swin_tiny")));
}

TEST_F(ModelsTest, JsonHoldsEveryCall) {
  const auto document = run({"models", "--json", "hiera_base_abswin_256"}).json();
  EXPECT_EQ(document["schema"], 1);
  EXPECT_EQ(document["command"], "models");
  EXPECT_NE(document["source"], "");
  ASSERT_EQ(document["models"].size(), 1u);
  const auto& model = document["models"][0];
  EXPECT_EQ(model["layers"], 24);
  EXPECT_EQ(model["head_sizes"], nlohmann::json::array({96}));
  EXPECT_EQ(model["attention"].size(), 7u);
  EXPECT_EQ(model["attention"][1]["each_image"], true);
}

TEST_F(ModelsTest, ProblemsAreThoseOfTheBatchAndType) {
  const auto document = run({"models", "--problems", "--json", "swin_tiny_patch4_window7_224",
                             "--batch", "4,8", "--dtype", "fp16"})
                            .json();
  std::map<std::string, bool> problems;  // and whether it is a second choice
  for (const auto& entry : document["problems"]) {
    if (entry["batch"] == 8) problems[entry["problem"]] = entry["second"];
  }
  EXPECT_EQ(document["problems"].size(), 2 * problems.size());
  EXPECT_THAT(problems, Contains(Pair("window_attention fp16 b=8 image=56x56 window=7x7 shift=3x3 "
                                      "h=3 d=32 bias=fp16:64x3x49x49",
                                      false)));
  EXPECT_THAT(problems, Contains(Pair("attention fp16 b=512 h=3 nq=49 nk=49 d=32 layout=packed "
                                      "bias=fp16:64x3x49x49",
                                      true)));
}

TEST_F(ModelsTest, WhoAsksDecidesWhatIsAsked) {
  const auto asked = [&](const char* way) {
    std::map<std::string, std::int64_t> calls;
    const auto document = run({"models", "--problems", "--json", "vit_base_patch16_224", "--batch",
                               "32", "--as", way})
                              .json();
    for (const auto& entry : document["problems"]) {
      if (!entry["second"]) calls[entry["problem"]] = entry["calls"];
    }
    return calls;
  };
  const std::string attention = "attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed";
  EXPECT_THAT(
      asked("drop-in"),
      ElementsAre(Pair(attention, 12), Pair("norm bf16 m=6304 d=768 weight bias eps=1e-06", 25)));
  const auto compiled = asked("compile");
  // In the last block only the class token's row is computed.
  EXPECT_THAT(compiled, Contains(Pair(attention, 11)));
  EXPECT_THAT(compiled, Contains(Pair("linear bf16 m=6304 n=768 k=768 bias residual", 11)));
}

TEST_F(ModelsTest, TheProblemsOfAPassAreThoseOfAllOperatorsByTheirShareOfTheTime) {
  const std::vector<std::string> arguments = {
      "models", "--problems", "--json", "deit_small_patch16_224", "--batch", "32"};
  const CommandResult result = run(arguments);
  EXPECT_EQ(result.err, "");  // a patch embedding is a linear layer
  const auto document = result.json();
  std::map<std::string, std::int64_t> calls;
  double last = 1, sum = 0;
  for (const auto& entry : document["problems"]) {
    if (!entry["second"]) calls[entry["operator"]] += entry["calls"].get<std::int64_t>();
    EXPECT_LE(entry["share"], last);
    EXPECT_GT(entry["floor_us"], 0.0);
    last = entry["share"];
    sum += last;
  }
  EXPECT_NEAR(sum, 1, 1e-6);
  EXPECT_THAT(calls, ElementsAre(Pair("attention", 12), Pair("linear", 50)));
}

TEST_F(ModelsTest, OneOperatorCanBeAskedForAlone) {
  std::vector<std::string> arguments = {
      "models",  "--problems", "--csv", "deit_small_patch16_224", "--batch", "32", "--as",
      "drop-in", "--operator", "norm"};
  const CommandResult norms = run(arguments);
  EXPECT_THAT(norms.out, HasSubstr("model,batch,calls,share,problem\n"));
  EXPECT_THAT(norms.out, HasSubstr(",norm bf16 m=6304 d=384 weight bias eps=1e-06"));
  EXPECT_THAT(norms.out, Not(HasSubstr(",attention bf16")));
  EXPECT_EQ(norms.err, "");
  arguments.back() = "attention,norm";
  EXPECT_EQ(run(arguments).out, run({arguments.begin(), arguments.end() - 2}).out);
}

TEST_F(ModelInputsTest, AModelStandsForItsProblems) {
  const auto problems = taken({"--model", "vit_base_patch16_224", "--batch", "1,32"});
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[1].first, "vit_base_patch16_224 b32 (12x)");
  EXPECT_EQ(problems[1].second, "attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed");
  EXPECT_EQ(taken({"-m", "vit_base_patch16_224"}), problems);
  EXPECT_EQ(taken({"--model", "samvit_*", "--batch", "4", "--dtype", "fp16"}).size(), 5u);
}

TEST_F(ModelInputsTest, OtherInputsJoinAndEachProblemIsTakenOnce) {
  const auto problems = taken(
      {"--model", "vit_base_patch16_224", "--preset", "vit-b16", "bf16 b=32 h=12 n=197 d=64"});
  ASSERT_EQ(problems.size(), 3u);  // 32, as text; 1 and 128 of the preset
  EXPECT_EQ(problems[1].first, "ViT-B/16@224 b1");
}

TEST_F(ModelInputsTest, PresetsOfModelsTakeTheBatch) {
  const auto problems = taken({"--preset", "sam", "--batch", "5"});
  ASSERT_FALSE(problems.empty());
  for (const auto& [name, text] : problems) EXPECT_THAT(name, HasSubstr(" b5 (")) << text;
  EXPECT_GT(taken({"--preset", "sam"}).size(), problems.size());
}

TEST_F(ModelsTest, CallsThatTheKernelsDoNotTakeAreSaidInOneLine) {
  const CommandResult result = run({"show", "--model", "mobilevit_s", "--model", "mobilevit_xxs"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("5 of the 9 attention calls of mobilevit_s are outside"));
  EXPECT_THAT(result.err, HasSubstr("of convolution, in one pass of each of 2 models"));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 4);  // and "no winner"
}

TEST_F(ModelsTest, VerbsTakeTheProblemsOfAllOperators) {
  const std::vector<std::string> arguments = {
      "explain", "--json", "--model", "vit_base_patch16_224", "--batch", "32"};
  const auto problems = run(arguments).json()["problems"];
  ASSERT_EQ(problems.size(), 22u);
  EXPECT_EQ(problems[0]["name"], "vit_base_patch16_224 linear #8 b32 (11x)");
  EXPECT_GT(problems[0]["floor_us"], 10.0);
}

TEST_F(ModelsTest, AModelsNameStandsWhereAProblemDoes) {
  const auto texts = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"explain", "--json", "--batch", "8"});
    std::vector<std::string> problems;
    const auto document = run(arguments).json();
    for (const auto& entry : document["problems"]) problems.push_back(entry["problem"]);
    return problems;
  };
  const auto vit = texts({"--model", "vit_base_patch16_224"});
  EXPECT_FALSE(vit.empty());
  EXPECT_EQ(texts({"vit_base_patch16_224"}), vit);
  EXPECT_EQ(texts({"timm/vit_base_patch16_224.augreg_in21k"}), vit);
  EXPECT_EQ(texts({"vit_base_patch16_22?"}), vit);
  EXPECT_EQ(texts({"vit_base_patch16_224", "deit3_small_patch16_224"}),
            texts({"-m", "vit_base_patch16_224", "-m", "deit3_small_patch16_224"}));
  // A text beside it, and one that the shell has cut into words.
  const auto both = texts({"vit_base_patch16_224", "bf16 b=3 h=1 n=8 d=64"});
  EXPECT_EQ(both.size(), vit.size() + 1);
  EXPECT_EQ(
      run({"explain", "--json", "bf16", "b=3", "h=1", "n=8", "d=64"}).json()["problems"].size(),
      1u);
}

TEST_F(ModelsTest, EveryVerbThatTakesProblemsTakesModels) {
  for (const char* verb : {"tune", "bench", "verify", "show", "compile"}) {
    const CommandResult result = run({verb, "--model", "vit_bsae_patch16_224"});
    EXPECT_EQ(result.status, 2) << verb << result.err;
    EXPECT_THAT(result.err, HasSubstr("did you mean vit_base_patch16_224?")) << verb;
    EXPECT_THAT(run({verb, "vit_bsae_patch16_224"}).err,
                HasSubstr("did you mean vit_base_patch16_224?"))
        << verb;
  }
}

TEST_F(ModelsTest, MistakesSayWhatToDo) {
  const struct {
    std::vector<std::string> arguments;
    std::string said;
  } cases[] = {
      {{"show", "--model", "vit_base_patch16_224", "--batch", "0"}, "--batch"},
      {{"show", "--model", "vit_base_patch16_224", "--batch", "1;32"}, "--batch"},
      {{"show", "--model", "vit_base_patch16_224", "--batch", ","}, "1,32"},
      {{"show", "--model", "vit_base_patch16_224", "--batch", "99999999"}, "--batch"},
      {{"show", "--model", "vit_base_patch16_224", "--dtype", "fp32"}, "bf16, fp16"},
      {{"show", "--model", "vit_base_patch16_224", "--operator", "conv"}, "attention, norm, group"},
      {{"show", "--model", "vit_base_patch16_224", "--operator", ","}, "attention,norm,group_norm"},
      {{"show", "--operator", "norm"}, "--operator belongs to --model"},
      {{"show", "--as", "drop-in"}, "--as belongs to --model"},
      {{"show", "vit_base_patch16_224", "--as", "training"}, "use one of compile, train, drop-in"},
      {{"models", "--as", "drop-in"}, "--as belongs to --problems"},
      {{"tune", "bf16"}, "bf16"},
      {{"explain", "dinov2"}, "7 have it in the name, as vit_base_patch14_dinov2"},
      {{"explain", "vit_b"}, " have it in the name, as vit_b"},
      {{"tune", "--model", "facebook/dinov2-base"}, "it is timm's vit_base_patch14_dinov2"},
      {{"explain", "vit_base_patch16_224", "b=32"}, "vit_base_patch16_224 --batch 32"},
      {{"models", "--operator", "norm"}, "--operator belongs to --problems"},
      {{"show", "--model", "efficientnet*"}, "'vitune models'"},
      {{"show", "--batch", "32"}, "--batch belongs to --model"},
      {{"show", "--dtype", "fp16", "--preset", "vit"}, "--dtype belongs to --model"},
      {{"show", "--preset", "swine"}, "swin, sam, siglip, all"},
      {{"models", "efficientnet"}, "no model"},
      {{"models", "--names", "--problems"}, "choose one of"},
  };
  for (const auto& c : cases) {
    const CommandResult result = run(c.arguments);
    EXPECT_EQ(result.status, 2) << c.arguments.back() << ": " << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(c.said));
  }
}

TEST_F(ModelsTest, APresetOfModelsSaysWhatItLeavesOutToo) {
  const CommandResult sam = run({"explain", "--csv", "--preset", "sam", "--batch", "1"});
  EXPECT_THAT(sam.err, HasSubstr("of convolution, in one pass of each of 7 models"));
  EXPECT_THAT(run({"show", "--preset", "sam", "--operator", "group_norm"}).err,
              HasSubstr("no call of preset sam is one of group_norm"));
}

TEST_F(ModelsTest, AModelWithoutSuchCallsIsRefused) {
  const CommandResult one =
      run({"show", "--model", "vit_base_patch16_224", "--operator", "group_norm"});
  EXPECT_NE(one.status, 0);
  EXPECT_THAT(one.err, HasSubstr("no call of vit_base_patch16_224 is one that the kernels of "
                                 "group_norm take"));
  const CommandResult any = run({"show", "--model", "deit3*", "--operator", "group_norm"});
  EXPECT_THAT(any.err, HasSubstr("no call of any of"));
}

TEST_F(ModelsTest, WithoutTheDataFileTheMessageNamesIt) {
  const fs::path data = directory() / "data";
  fs::create_directory(data);
  fs::copy(fs::path(VITUNE_SOURCE_DIR) / "data" / "bench_problems.json", data);
  const CommandResult result = run({"models", "--data-dir", data.string()});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("timm_models.json"));
  fs::copy(fs::path(VITUNE_SOURCE_DIR) / "data" / "timm_models.json", data);
  EXPECT_THAT(run({"models", "--data-dir", data.string()}).err, HasSubstr("timm_calls.json"));
}

}  // namespace
}  // namespace vitune::testing
