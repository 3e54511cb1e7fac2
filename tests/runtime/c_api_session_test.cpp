// tests/runtime/c_api_session_test.cpp -- Sessions of one attention, by the mock driver.
// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <utility>

#include "tests/model/model_files.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

constexpr const char* kProblem = "bf16 b=2 h=12 nq=197 nk=197 d=64 layout=packed";

// Attention of a packed projection of 12 heads.
ordered_json attention_graph() {
  const auto part = [](std::int64_t offset) {
    return ordered_json{{"of", "qkv"},
                        {"offset", offset},
                        {"extents", {"B", 12, 197, 64}},
                        {"strides", {453888, 64, 2304, 1}}};
  };
  ordered_json node = {{"op", "attention"}, {"at", "attn"}};
  node["q"] = part(0);
  node["k"] = part(768);
  node["v"] = part(1536);
  node["out"] = {{"of", "t0"}, {"extents", {"B", 12, 197, 64}}, {"strides", {151296, 64, 768, 1}}};
  ordered_json graph;
  graph["inputs"] = {{{"name", "qkv"}, {"type", "bf16"}, {"shape", {"B", 197, 2304}}}};
  graph["outputs"] = {{{"name", "out"}, {"of", "t0"}}};
  graph["values"] = {{{"name", "t0"}, {"type", "bf16"}, {"shape", {"B", 197, 768}}}};
  graph["nodes"] = {node};
  return graph;
}

class CApiSessionTest : public RuntimeTest {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    if (mock_ == nullptr) return;
    put_binary(database(), standard_);
    context_.emplace(options());
  }
  // Opens the file and makes a session of two images, which launches one by one.
  void open(const ordered_json& graph) {
    const auto header = tiny_header(graph);
    const auto path = folder_.write(bytes_of(header.dump(), data_of(header)));
    EXPECT_STATUS(VITUNE_OK, vitune_model_open(context_->get(), path.c_str(), &model_));
    vitune_session_options options = VITUNE_SESSION_OPTIONS_INIT;
    options.no_graph = 1;
    EXPECT_STATUS(VITUNE_OK, vitune_session_create(model_, 2, &options, &session_));
  }
  void TearDown() override {
    vitune_session_destroy(std::exchange(session_, nullptr));
    vitune_model_destroy(std::exchange(model_, nullptr));
    context_.reset();
    RuntimeTest::TearDown();
  }
  vitune_status run(std::int64_t images) {
    const void* input = nullptr;
    void* output = nullptr;
    return vitune_session_run_images(session_, images, &input, &output, nullptr);
  }
  std::uint64_t image_run() {
    mock_->clear_log();
    EXPECT_STATUS(VITUNE_OK, run(2));
    return mock_->launches().at(0).image;
  }
  std::int32_t refreshed() {
    std::int32_t renewed = -1;
    EXPECT_STATUS(VITUNE_OK, vitune_session_refresh(session_, &renewed));
    return renewed;
  }

  const ModelFolder folder_;
  const StoredKernel standard_ = default_kernel(kProblem, 3);
  const StoredKernel winner_ = make_kernel(kProblem, 1);
  std::optional<Context> context_;
  vitune_model* model_ = nullptr;
  vitune_session* session_ = nullptr;
};

TEST_F(CApiSessionTest, RefreshMakesTheSessionAgainOnceTheContextHasAnotherKernel) {
  open(attention_graph());
  EXPECT_EQ(image_run(), standard_.image_id());
  EXPECT_EQ(refreshed(), 0);
  promote(database(), winner_);
  EXPECT_EQ(refreshed(), 0) << "the context has not looked";
  ASSERT_STATUS(VITUNE_OK, vitune_context_refresh(context_->get(), nullptr));
  EXPECT_EQ(refreshed(), 1);
  EXPECT_EQ(image_run(), winner_.image_id());
  EXPECT_EQ(refreshed(), 0);
  EXPECT_STATUS(VITUNE_OK, vitune_session_refresh(session_, nullptr));
}

TEST_F(CApiSessionTest, StepsAreListed) {
  open(attention_graph());
  const std::string wanted = std::string("attn\tattention ") + kProblem + "\n";
  std::size_t length = 0;
  EXPECT_STATUS(VITUNE_OK, vitune_session_text(session_, nullptr, 0, &length));
  EXPECT_EQ(length, wanted.size());
  std::string text(length + 1, '\0');
  EXPECT_STATUS(VITUNE_OK, vitune_session_text(session_, text.data(), text.size(), nullptr));
  EXPECT_EQ(text.c_str(), wanted);
  EXPECT_STATUS(VITUNE_INVALID_ARGUMENT, vitune_session_text(session_, nullptr, 8, nullptr));
}

TEST_F(CApiSessionTest, FewerImagesRunWhereNoResultDependsOnOthers) {
  open(attention_graph());
  EXPECT_STATUS(VITUNE_OK, run(1));
  EXPECT_STATUS(VITUNE_INVALID_ARGUMENT, run(0));
  EXPECT_STATUS(VITUNE_INVALID_ARGUMENT, run(3));
  EXPECT_THAT(vitune_last_error(), HasSubstr("a session of 2 takes 1 to that many"));
}

TEST_F(CApiSessionTest, FewerImagesAreRefusedWhereAResultMayDependOnOthers) {
  ordered_json graph = attention_graph();  // what counts images is not the first extent
  graph["inputs"][0]["shape"] = {1, "B", 197, 2304};
  open(graph);
  EXPECT_STATUS(VITUNE_OK, run(2));
  EXPECT_STATUS(VITUNE_UNSUPPORTED, run(1));
  EXPECT_THAT(vitune_last_error(), HasSubstr("make a session of 1"));
}

}  // namespace
}  // namespace vitune::test
