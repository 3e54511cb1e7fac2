// tests/catalogue/model_catalogue_test.cpp -- Models by name, and the files they are read from.
// SPDX-License-Identifier: Apache-2.0
#include "catalogue/model_catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "catalogue/hub_names.h"
#include "core/error.h"
#include "tests/catalogue/shipped_catalogue.h"
#include "tests/temporary_directory.h"

namespace vitune {
namespace {

using test::catalogue;
using test::failure;
using test::kData;
using test::kSource;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
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
  EXPECT_THAT(catalogue().models(), SizeIs(380));
  EXPECT_EQ(calls, 779);
  EXPECT_EQ(unsupported, 27);
  EXPECT_EQ(each_image, 23);
  EXPECT_TRUE(std::ranges::is_sorted(catalogue().names()));
  EXPECT_LT(std::filesystem::file_size(kData / "timm_models.json"), 120'000U);
  EXPECT_LT(std::filesystem::file_size(kData / "timm_calls.json"), 700'000U);
}

TEST(ModelCatalogueTest, WhatVituneIsAskedForIsAllThere) {
  std::map<std::string, std::int64_t> first, left;
  std::int64_t norms = 0, second = 0;
  for (const Model& model : catalogue().models()) {
    EXPECT_FALSE(model.compiled.empty()) << model.name;
    std::set<std::pair<std::string, Rows>> texts;
    for (const AskedCall& call : model.compiled) {
      for (const Rows rows : {Rows::kFew, Rows::kMany}) {
        if (call.rows != Rows::kAny && call.rows != rows) continue;
        EXPECT_TRUE(texts.emplace(call.text, rows).second) << model.name << ' ' << call.text;
      }
      if (call.rows == Rows::kMany) continue;
      (call.is_second ? second : first[call.operator_name()]) += call.calls;
    }
    for (const AskedCall& call : model.norms) {
      EXPECT_EQ(call.operator_name(), "norm");
      norms += call.calls;
    }
    for (const OutsideCall& call : model.outside) {
      if (call.reason.empty()) left[call.operator_name] += call.calls;
    }
  }
  const std::map<std::string, std::int64_t> asked = {
      {"attention", 6012}, {"linear", 35331}, {"window_attention", 1207}};
  const std::map<std::string, std::int64_t> not_taken = {
      {"convolution", 7605}, {"matmul", 678}, {"softmax", 367}};
  EXPECT_EQ(first, asked);
  EXPECT_EQ(left, not_taken);
  EXPECT_EQ(norms, 17485);
  EXPECT_EQ(second, 66929);
}

TEST(ModelCatalogueTest, NamesThatHaveAWordInThemAreSaid) {
  const std::string said = failure([] { catalogue().find("dinov2"); }, ErrorCode::kUsage);
  EXPECT_THAT(said,
              HasSubstr("7 have it in the name, as vit_base_patch14_dinov2; 'vitune models'"));
}

TEST(ModelCatalogueTest, NamesOfHuggingFacesHubAreToldTheirTimmNames) {
  for (const std::string_view name : hub_names()) {
    EXPECT_NO_THROW(catalogue().find(timm_name_of(name))) << name;
    EXPECT_THAT(failure([&] { catalogue().find(name); }, ErrorCode::kUsage),
                HasSubstr("it is timm's " + std::string(timm_name_of(name))));
  }
  EXPECT_EQ(timm_name_of("facebook/dinov2-base"), "vit_base_patch14_dinov2");
  EXPECT_EQ(timm_name_of("facebook/dinov2"), "");
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
  EXPECT_THAT(message("google/vit-base-patch16-224"),
              HasSubstr("did you mean vit_base_patch16_224?"));
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
  EXPECT_THAT(names("*"), SizeIs(380));
  EXPECT_THAT(names("base*"), SizeIs(0));
  // A whole name is that model's, though others begin with it.
  EXPECT_THAT(names("samvit_base_patch16"), ElementsAre("samvit_base_patch16"));
  EXPECT_THAT(names("efficientnet"), SizeIs(0));
}

class ModelFilesTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) const {
    test::write_file(folder_ / name, content);
  }
  std::string message() const {
    return failure([&] { ModelCatalogue::load(folder_.path()); }, ErrorCode::kFailure);
  }
  // One model, m, with one call.
  void write_models() const {
    write("timm_models.json", R"({"schema":1,"images":2,"source":"x","models":[{"name":"m",
      "attention":[{"calls":1,"problem":"bf16 b=2 h=1 n=8 d=64"}]}]})");
  }
  const test::TemporaryDirectory folder_;
};

TEST_F(ModelFilesTest, AMissingOrForeignFileIsNamedWithThePlace) {
  EXPECT_THAT(message(), HasSubstr("timm_models.json: no such file"));
  const std::string begin = R"({"schema":1,"images":2,"source":"x","models":[)";
  const std::string call = R"({"calls":1,"problem":"bf16 b=2 h=1 n=8 d=64"})";
  const std::string model = R"({"name":"m","attention":[)" + call + "]}";
  const std::string cases[][2] = {
      {"", "timm_models.json: is empty; expected a JSON object with \"schema\", \"images\""},
      {"{\n\"a\":", "timm_models.json:2: is not valid JSON (unexpected end of input); expected"},
      {"[]", "timm_models.json: is not a JSON object"},
      {"{}", "timm_models.json: field \"schema\" is missing; is the installation complete?"},
      {R"({"schema":2,"images":2,"source":"x","models":[]})", "has schema 2: this version reads 1"},
      {R"({"schema":1,"images":3,"source":"x","models":[]})",
       "\"images\" is not an integer from 2"},
      {R"({"schema":1,"images":2,"source":7,"models":[]})", "\"source\" is not a string"},
      {begin + "]}", "field \"models\" has 0 elements"},
      {begin + "7]}", "model 1: is not a JSON object"},
      {begin + R"({"name":"","attention":[]}]})", "model 1: \"name\" is not one of 1 to 200"},
      {begin + R"({"name":"m"}]})", "model 1 ('m'): field \"attention\" is missing"},
      {begin + R"({"name":"m","attention":{}}]})", "field \"attention\" is not an array"},
      {begin + model + "," + model + "]}", "timm_models.json: has 'm' twice"},
      {begin + R"({"name":"m","attention":[)" + call + R"(,{"calls":0,"problem":"x"}]}]})",
       "model 1 ('m'), call 2: \"calls\" is not an integer from 1 to 1000000"},
      {begin + R"({"name":"m","attention":[{"calls":1.5,"problem":"x"}]}]})",
       "\"calls\" is not an"},
      {begin + R"({"name":"m","attention":[{"calls":18446744073709551615,"problem":"x"}]}]})",
       "\"calls\" is not an integer"},
      {begin + R"({"name":"m","attention":[{"calls":1,"problem":"bf16 b=3 h=1 n=8 d=64"}]}]})",
       "call 1: 'bf16 b=3 h=1 n=8 d=64' is not a call of 2 images"},
      {begin + R"({"name":"m","attention":[{"calls":1,"problem":"bf16 b=2 h=1 n=8 d=65"}]}]})",
       "65"},
      {begin + R"({"name":"m","attention":[{"calls":1,"problem":"x","each_image":1}]}]})",
       "\"each_image\" is not true or false"},
      {begin + R"({"name":"m","attention":[{"calls":1,"problem":"x","unsupported":""}]}]})",
       "\"unsupported\" is not one of 1 to 500"},
  };
  for (const auto& [content, said] : cases) {
    write("timm_models.json", content);
    EXPECT_THAT(message(), HasSubstr(said)) << content;
  }
}

// timm_calls.json with these texts, and with a model that has these fields.
std::string calls_document(const std::string& texts, const std::string& models) {
  return R"({"schema":2,"few_rows":2048,"texts":[)" + texts + R"(],"models":[)" + models + "]}";
}

std::string model_with(const std::string& compile, const std::string& left = "",
                       const std::string& outside = "", const std::string& name = "m") {
  return R"({"name":")" + name + R"(","compile":[)" + compile + R"(],"second":[],"drop_in":[],)" +
         R"("left":{)" + left + R"(},"outside":[)" + outside + "]}";
}

std::string trained_model(const std::string& fields) {
  std::string model = model_with("");
  return model.insert(model.size() - 1, "," + fields);
}

TEST_F(ModelFilesTest, AskedCallsAreReadAsStrictly) {
  write_models();
  EXPECT_THAT(message(), HasSubstr("timm_calls.json: no such file"));
  const std::string text = R"("norm dtype m=197*images d=768")";
  const auto document = calls_document;
  const std::string cases[][2] = {
      {"", "timm_calls.json: is empty; expected a JSON object with \"schema\", \"few_rows\""},
      {R"({"schema":1,"texts":[],"models":[]})", "has schema 1: this version reads 2"},
      {R"({"schema":2,"texts":[],"models":[]})", "field \"few_rows\" is missing"},
      {document("7", ""), "text 0: it is not a string"},
      {document("\"norm\"", ""), "text 0: 'norm' is not an operator and its words"},
      {document("\"Norm m=1\"", ""), "is not an operator and its words"},
      {document("\"wishful m=1\"", ""), "is not an operator and its words"},
      {document(text + ",\"norm m=1*image\"", ""), "text 1: 'norm m=1*image' is not an operator"},
      {document("\"norm m=*images\"", ""), "with N*images where a number grows"},
      {document("\"norm m=1\\u001b[2J\"", ""), "printable characters"},
      {document("\"norm m=" + std::string(600, '1') + "\"", ""), "1 to 500 printable"},
      {document(text, ""), "model 'm' of timm_models.json is missing"},
      {document(text, model_with("", "", "", "n")), "model 1 ('n'): timm_models.json has no such"},
      {document(text, model_with("") + "," + model_with("")), "model 2 ('m'): is there twice"},
      {document(text, R"({"name":"m","compile":[]})"),
       "model 1 ('m'): field \"second\" is missing"},
      {document(text, trained_model(R"("train":[[1,0]])")), "field \"train_second\" is missing"},
      {document(text, trained_model(R"("train":[[1,1]],"train_second":[])")),
       "train 1: the place of the text is not an integer"},
      {document(text, model_with("[1,0],[1]")), "model 1 ('m'), compile 2: is not [calls"},
      {document(text, model_with("[0,0]")), "the number of calls is not an integer"},
      {document(text, model_with("[1,1]")), "the place of the text is not an integer"},
      {document(text, model_with("[1,-1]")), "the place of the text is not an integer"},
      {document(text, model_with("[1,0],[1]")), "with 1, 2 or 3 behind it"},
      {document(text, model_with("[1,0,0]")), "the third number is not an integer from 1 to 3"},
      {document(text, model_with("[1,0,4]")), "the third number is not an integer from 1 to 3"},
      {document("\"attention dtype b=1\"", model_with("[1,0,2]")),
       "compile 1: depends on the rows, and 'attention dtype b=1' has none (m=)"},
      {document(text, model_with("", R"("softmax":0)")), "a number of \"left\" is not an integer"},
      {document(text, model_with("", "", R"([1,"linear"])")), "is not [calls, operator, why]"},
      {document(text, model_with("", "", R"([1,"linear",""])")), "a reason of \"outside\""},
  };
  for (const auto& [content, said] : cases) {
    write("timm_calls.json", content);
    EXPECT_THAT(message(), HasSubstr(said)) << content;
  }
  write("timm_calls.json",
        document(text, model_with("[3,0],[2,0,1],[2,0,2],[2,0,3]", R"("softmax":4)")));
  const ModelCatalogue read = ModelCatalogue::load(folder_.path());
  const Model& model = read.models()[0];
  ASSERT_THAT(model.compiled, SizeIs(4));
  const Rows rows[] = {Rows::kAny, Rows::kAny, Rows::kFew, Rows::kMany};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(model.compiled[i].each_image, i == 1) << i;
    EXPECT_EQ(model.compiled[i].rows, rows[i]) << i;
  }
  EXPECT_EQ(model.compiled[0].calls, 3);
  EXPECT_EQ(model.compiled[0].few_rows, 2048);
  ASSERT_THAT(model.outside, SizeIs(1));
  EXPECT_EQ(model.outside[0].operator_name, "softmax");
  EXPECT_THAT(model.trained, IsEmpty());
  write("timm_calls.json",
        document(text, trained_model(R"("train":[[3,0]],"train_second":[[2,0]])")));
  const ModelCatalogue trains = ModelCatalogue::load(folder_.path());
  ASSERT_THAT(trains.models()[0].trained, SizeIs(2));
  EXPECT_FALSE(trains.models()[0].trained[0].is_second);
  EXPECT_TRUE(trains.models()[0].trained[1].is_second);
}

TEST_F(ModelFilesTest, SizesDepthAndCountsAreBounded) {
  write("timm_models.json", std::string(1000, '[') + std::string(1000, ']'));
  EXPECT_THAT(message(), HasSubstr("timm_models.json: JSON is nested deeper than 8 levels"));
  std::string many = "[";
  for (int i = 0; i < 4'000'001; ++i) many += "0,";
  write("timm_models.json", many + "0]");
  EXPECT_THAT(message(), HasSubstr("JSON values"));
  write("timm_models.json", "");
  std::filesystem::resize_file(folder_ / "timm_models.json", (std::uintmax_t{64} << 20) + 1);
  EXPECT_THAT(message(), HasSubstr("64 MiB are the most"));
  write_models();
  std::string calls;
  for (int i = 0; i < 1001; ++i) calls += i == 0 ? "[1,0]" : ",[1,0]";
  write("timm_calls.json", calls_document("\"norm m=1\"", model_with(calls)));
  EXPECT_THAT(message(), HasSubstr("field \"compile\" has 1001 elements: 0 to 1000 are expected"));
}

TEST_F(ModelFilesTest, DamagedShippedFilesNeverCrash) {
  std::mt19937_64 random(7);
  int refused = 0;
  for (const char* name : {"timm_models.json", "timm_calls.json"}) {
    const std::string content = read(kData / name);
    std::uniform_int_distribution<std::size_t> place(0, content.size() - 1);
    std::uniform_int_distribution<int> byte(0, 255);
    write("timm_models.json", read(kData / "timm_models.json"));
    write("timm_calls.json", read(kData / "timm_calls.json"));
    for (int round = 0; round < 60; ++round) {
      std::string damaged = content;
      if (round % 2 == 0) {
        damaged.resize(place(random));
      } else {
        for (int i = 0; i < 20; ++i) damaged[place(random)] = static_cast<char>(byte(random));
      }
      write(name, damaged);
      try {
        ModelCatalogue::load(folder_.path());
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(name));
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 60);
}

// The shipped file is what the script makes of the traces; the first lies beside the source tree.
TEST(ModelCatalogueTest, TheShippedFileIsWhatTheScriptMakes) {
  const auto trace = kSource / ".." / "shared" / "catalogue" / "timm_attention.jsonl";
  if (!std::filesystem::exists(trace)) GTEST_SKIP() << "no traces at " << trace;
  if (std::system("python3 -c pass >/dev/null 2>&1") != 0) GTEST_SKIP() << "no python3 here";
  const test::TemporaryDirectory folder;
  const std::string shipped = read(kData / "timm_models.json");
  const std::string key = "\"date\":\"";
  const std::string date = shipped.substr(shipped.find(key) + key.size(), 10);
  const std::string command =
      "python3 '" + (kSource / "cmake/make_timm_models.py").string() + "' '" + trace.string() +
      "' '" + (kSource / "cmake/timm_attention_added.jsonl").string() + "' --date " + date +
      " > '" + (folder.path() / "made.json").string() + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(read(folder.path() / "made.json"), shipped);
}

}  // namespace
}  // namespace vitune
