// tests/catalogue/model_catalogue_test.cpp -- Models by name, and their problems for any batch.
// SPDX-License-Identifier: Apache-2.0
#include "catalogue/model_catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>

#include "core/error.h"
#include "tests/temporary_directory.h"

namespace vitune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const std::filesystem::path kSource = VITUNE_SOURCE_DIR;
const std::filesystem::path kData = kSource / "data";

const ModelCatalogue& catalogue() {
  static const ModelCatalogue kCatalogue = ModelCatalogue::load(kData);
  return kCatalogue;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> texts(const std::string& name, std::int64_t images,
                               ElementType dtype = ElementType::kBf16) {
  std::vector<std::string> result;
  for (const ModelProblem& p : model_problems(catalogue().find(name), images, dtype)) {
    result.push_back(std::to_string(p.calls) + "x " + p.problem.text());
  }
  return result;
}

std::string failure(const std::function<void()>& action, ErrorCode code) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(ModelCatalogueTest, TheShippedModelsAreAllThere) {
  std::int64_t calls = 0, unsupported = 0, each_image = 0;
  for (const Model& model : catalogue().models()) {
    for (const ModelCall& call : model.calls) {
      ++calls;
      unsupported += call.unsupported.empty() ? 0 : 1;
      each_image += call.each_image ? 1 : 0;
    }
  }
  EXPECT_THAT(catalogue().models(), SizeIs(371));
  EXPECT_EQ(calls, 754);
  EXPECT_EQ(unsupported, 27);
  EXPECT_EQ(each_image, 20);
  EXPECT_TRUE(std::ranges::is_sorted(catalogue().names()));
  EXPECT_LT(std::filesystem::file_size(kData / "timm_models.json"), 120'000U);
}

TEST(ModelCatalogueTest, ProblemsScaleWithTheImages) {
  EXPECT_THAT(texts("vit_base_patch16_224", 1),
              ElementsAre("12x attention bf16 b=1 h=12 nq=197 nk=197 d=64 layout=packed"));
  EXPECT_THAT(texts("vit_base_patch16_224", 32, ElementType::kFp16),
              ElementsAre("12x attention fp16 b=32 h=12 nq=197 nk=197 d=64 layout=packed"));
  // Two q and k of their own, v a view of the projection.
  EXPECT_THAT(texts("eva02_small_patch14_224", 8),
              ElementsAre("12x attention bf16 b=8 h=6 nq=257 nk=257 d=64 layout=bhnd v=packed"));
}

TEST(ModelCatalogueTest, WindowsCountAsBatchAndASharedBiasStaysShared) {
  const std::vector<std::string> swin =
      texts("swin_tiny_patch4_window7_224", 32, ElementType::kFp16);
  ASSERT_THAT(swin, SizeIs(7));
  EXPECT_EQ(swin[0],
            "1x attention fp16 b=2048 h=3 nq=49 nk=49 d=32 layout=packed bias=fp16:1x3x49x49");
  // Shifted windows: timm adds the mask to the bias for every window of every image.
  EXPECT_EQ(swin[1],
            "1x attention fp16 b=2048 h=3 nq=49 nk=49 d=32 layout=packed bias=fp16:2048x3x49x49");
  EXPECT_EQ(swin[6],
            "2x attention fp16 b=32 h=24 nq=49 nk=49 d=32 layout=packed bias=fp16:1x24x49x49");
}

TEST(ModelCatalogueTest, HeadsThatWereFoldedIntoTheBatchScaleTogether) {
  EXPECT_THAT(texts("samvit_base_patch16", 3),
              ElementsAre("8x attention bf16 b=900 h=1 nq=196 nk=196 d=64 layout=bnhd "
                          "bias=bf16:900x1x196x196",
                          "4x attention bf16 b=36 h=1 nq=4096 nk=4096 d=64 layout=bnhd "
                          "bias=bf16:36x1x4096x4096"));
}

TEST(ModelCatalogueTest, ViewsOfOneImageAreCalledOncePerImage) {
  const Model& hiera = catalogue().find("hiera_base_abswin_256");
  const auto one = model_problems(hiera, 1, ElementType::kBf16);
  const auto eight = model_problems(hiera, 8, ElementType::kBf16);
  ASSERT_EQ(one.size(), eight.size());
  int each_image = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    if (one[i].problem == eight[i].problem) {
      EXPECT_EQ(eight[i].calls, 8 * one[i].calls);
      ++each_image;
    } else {
      EXPECT_EQ(eight[i].calls, one[i].calls);
      EXPECT_EQ(eight[i].problem.batch, 8 * one[i].problem.batch);
    }
  }
  EXPECT_EQ(each_image, 3);
}

TEST(ModelCatalogueTest, TwoImagesGiveWhatWasTraced) {
  for (const Model& model : catalogue().models()) {
    std::int64_t calls = 0;
    std::set<std::string> traced;
    for (const ModelCall& call : model.calls) {
      if (!call.unsupported.empty()) continue;
      EXPECT_EQ(AttentionProblem::parse(call.text), call.traced);
      EXPECT_EQ(call.traced.vector_bytes(), 16) << model.name;
      traced.insert(call.traced.text());
      calls += call.calls * (call.each_image ? 2 : 1);
    }
    for (const ModelProblem& p : model_problems(model, 2, ElementType::kBf16)) {
      EXPECT_TRUE(traced.contains(p.problem.text())) << model.name << ' ' << p.problem.text();
      calls -= p.calls;
    }
    EXPECT_EQ(calls, 0) << model.name;
  }
}

TEST(ModelCatalogueTest, EveryModelExpandsToAnyBatchAndTheWorkGrowsWithIt) {
  for (const Model& model : catalogue().models()) {
    const auto flops = [&](std::int64_t images) {
      double sum = 0;
      for (const ModelProblem& p : model_problems(model, images, ElementType::kFp16)) {
        EXPECT_EQ(AttentionProblem::parse(p.problem.text()), p.problem) << model.name;
        sum += p.problem.flops() * static_cast<double>(p.calls);
      }
      return sum;
    };
    const double one = flops(1);
    for (const std::int64_t images : {3, 7, 256}) {
      EXPECT_NEAR(flops(images) / one, static_cast<double>(images), 1e-9) << model.name;
    }
  }
}

TEST(ModelCatalogueTest, SoManyImagesThatTheKernelsCannotCountThemAreRefused) {
  const Model& swin = catalogue().find("swin_tiny_patch4_window7_224");
  failure([&] { model_problems(swin, std::int64_t{1} << 40, ElementType::kBf16); },
          ErrorCode::kUnsupported);
  // The second model's first call is asked once per image: the count of calls does not fit.
  for (const char* name : {"swin_tiny_patch4_window7_224", "hiera_base_plus_224"}) {
    const Model& model = catalogue().find(name);
    failure([&] { model_problems(model, std::int64_t{1} << 62, ElementType::kBf16); },
            ErrorCode::kUnsupported);
  }
}

TEST(ModelCatalogueTest, CallsOutsideTheKernelsReachAreSaidInOneLine) {
  EXPECT_EQ(unsupported_calls(catalogue().find("vit_base_patch16_224")), "");
  EXPECT_EQ(unsupported_calls(catalogue().find("mobilevit_s")),
            "5 of the 9 attention calls of mobilevit_s are outside what the kernels do: head size "
            "36 is no multiple of 8 (2x); head size 60 is no multiple of 8 (3x)");
  EXPECT_THAT(texts("mobilevit_s", 1), SizeIs(1));
  EXPECT_THAT(unsupported_calls(catalogue().find("xcit_nano_12_p8_384")), HasSubstr("2304"));
}

TEST(ModelCatalogueTest, NamesTellModelBatchAndCalls) {
  const auto vit =
      named_model_problems(catalogue().find("vit_base_patch16_224"), 32, ElementType::kBf16);
  ASSERT_THAT(vit, SizeIs(1));
  EXPECT_EQ(vit[0].name, "vit_base_patch16_224 b32 (12x)");
  EXPECT_EQ(vit[0].group, "vit_base_patch16_224");
  const auto hiera =
      named_model_problems(catalogue().find("hiera_base_abswin_256"), 8, ElementType::kBf16);
  EXPECT_EQ(hiera[0].name, "hiera_base_abswin_256 #1 b8 (2x)");
  EXPECT_EQ(hiera[2].name, "hiera_base_abswin_256 #3 b8 (16x)");
}

TEST(ModelCatalogueTest, NamesAreFoundAsHubsWriteThem) {
  for (const char* name :
       {"vit_base_patch16_224", "timm/vit_base_patch16_224", "vit_base_patch16_224.augreg_in21k",
        "hf-hub:timm/vit_base_patch16_224.augreg_in21k"}) {
    EXPECT_EQ(catalogue().find(name).name, "vit_base_patch16_224") << name;
  }
}

TEST(ModelCatalogueTest, AnUnknownNameGivesTheNearest) {
  const auto message = [](const char* name) {
    return failure([&] { catalogue().find(name); }, ErrorCode::kUsage);
  };
  EXPECT_THAT(message("vit_base_patch16_244"), HasSubstr("did you mean vit_base_patch16_224?"));
  EXPECT_THAT(message("swin_tiny_patch4_windw7_224"),
              HasSubstr("did you mean swin_tiny_patch4_window7_224?"));
  EXPECT_THAT(message("zzzzzz"), HasSubstr("'vitune models'"));
  EXPECT_THAT(message("a\x1b[2Jb"), HasSubstr("\\x1b"));
}

TEST(ModelCatalogueTest, WordsAndGlobsFilter) {
  const auto names = [](const std::string& pattern) {
    std::vector<std::string> result;
    for (const Model* model : catalogue().matching(pattern)) result.push_back(model->name);
    return result;
  };
  EXPECT_THAT(names("samvit"), ElementsAre("samvit_base_patch16", "samvit_base_patch16_224",
                                           "samvit_large_patch16"));
  EXPECT_THAT(names("sam2_hiera_[st]*"), ElementsAre("sam2_hiera_small", "sam2_hiera_tiny"));
  EXPECT_THAT(names("*"), SizeIs(371));
  EXPECT_THAT(names("base*"), SizeIs(0));
  EXPECT_THAT(names("efficientnet"), SizeIs(0));
}

TEST(ModelCatalogueTest, AMissingOrForeignFileIsNamed) {
  const test::TemporaryDirectory folder;
  const auto message = [&] {
    return failure([&] { ModelCatalogue::load(folder.path()); }, ErrorCode::kFailure);
  };
  EXPECT_THAT(message(), HasSubstr("timm_models.json: there is no such file"));
  const char* const cases[][2] = {
      {"", "timm_models.json: it is empty, and a JSON object with \"schema\", \"images\""},
      {"{\n\"a\":", "line 2 is not valid JSON (unexpected end of input), and a JSON object with"},
      {"[]", "timm_models.json: it is not as this version reads it: cannot use at()"},
      {"{}", "this version reads it: key 'schema' not found; is the installation complete?"},
      {R"({"schema":2,"images":2,"source":"x","models":[]})", "schema 1"},
      {R"({"schema":1,"images":2,"source":"x","models":[{"name":"m","attention":[]}]})", "no call"},
      {R"({"schema":1,"images":2,"source":"x","models":[{"name":"m","attention":[
         {"calls":1,"problem":"bf16 b=3 h=1 n=8 d=64"}]}]})",
       "not a call of 2 images"},
      {R"({"schema":1,"images":2,"source":"x","models":[{"name":"m","attention":[
         {"calls":1,"problem":"bf16 b=2 h=1 n=8 d=65"}]}]})",
       "65"},
  };
  for (const auto& [content, said] : cases) {
    std::ofstream(folder.path() / "timm_models.json") << content;
    EXPECT_THAT(message(), HasSubstr(said)) << content;
  }
}

// The shipped file is what the script makes of the traces; they lie beside the source tree.
TEST(ModelCatalogueTest, TheShippedFileIsWhatTheScriptMakes) {
  const auto trace = kSource / ".." / "shared" / "catalogue" / "timm_attention.jsonl";
  if (!std::filesystem::exists(trace)) GTEST_SKIP() << "no traces at " << trace;
  if (std::system("python3 -c pass >/dev/null 2>&1") != 0) GTEST_SKIP() << "no python3 here";
  const test::TemporaryDirectory folder;
  const std::string shipped = read(kData / "timm_models.json");
  const std::string key = "\"date\":\"";
  const std::string date = shipped.substr(shipped.find(key) + key.size(), 10);
  const std::string command = "python3 '" + (kSource / "cmake/make_timm_models.py").string() +
                              "' '" + trace.string() + "' --date " + date + " > '" +
                              (folder.path() / "made.json").string() + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(read(folder.path() / "made.json"), shipped);
}

}  // namespace
}  // namespace vitune
