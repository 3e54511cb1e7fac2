// tests/model/image_mixing_test.cpp -- Which passes may be of fewer images than their batch.
// SPDX-License-Identifier: Apache-2.0
#include "model/image_mixing.h"

#include <gmock/gmock.h>

#include "tests/model/model_files.h"

namespace vitune {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

std::string why(const ordered_json& json) {
  return why_images_mix(read_model_graph(json.dump(), "a file"));
}

TEST(ImageMixingTest, ImagesOfATransformerAreApart) { EXPECT_EQ(why(test::small_graph()), ""); }

TEST(ImageMixingTest, AGraphWithoutABatchIsThatOfOneImage) {
  EXPECT_EQ(why(test::tiny_graph()), "");
}

TEST(ImageMixingTest, WhatMayReadAnotherImageIsSaid) {
  const struct {
    const char* pointer;
    ordered_json value;
    const char* reason;
  } cases[] = {
      // The next image's rows; rows of all images in turn; a sum over them; biases of images.
      {"/nodes/7/a", {{"of", "t5"}, {"extents", {"B", 64, 16}}, {"strides", {512, 1, 64}}}, "'a'"},
      {"/nodes/5/x",
       {{"of", "t3"}, {"offset", "64*B"}, {"extents", {"B", 16, 64}}, {"strides", {1088, 64, 1}}},
       "'x'"},
      {"/nodes/5/x", {{"of", "t3"}, {"extents", {16, "B", 64}}, {"strides", {64, 1088, 1}}}, "'x'"},
      {"/nodes/7/over", 3, "reduced over images"},
      {"/nodes/3/bias",
       {{"of", "t1"}, {"extents", {"2*B", 2, 17, 17}}, {"strides", {1632, 0, 0, 1}}},
       "'bias'"},
      {"/nodes/8/scale", {{"of", "t6"}, {"extents", {"B"}}, {"strides", {64}}}, "'scale'"},
      {"/nodes/8/w", {{"of", "t6"}, {"extents", {"B", 64}}, {"strides", {64, 1}}}, "'w'"},
      {"/values/6/shape", {2, 64}, "its result is of all images"},
      {"/values/7/shape", {8, "B"}, "'out'"},
      {"/outputs/0/of", {{"of", "t7"}, {"extents", {8, "B"}}, {"strides", {1, 8}}}, "the result"},
  };
  for (const auto& c : cases) {
    ordered_json graph = test::small_graph();
    graph[ordered_json::json_pointer(c.pointer)] = c.value;
    EXPECT_THAT(why(graph), HasSubstr(c.reason)) << c.pointer << c.value;
  }
}

TEST(ImageMixingTest, AResultOfAllImagesThatDoesNotGrowIsSaid) {
  ordered_json graph = test::small_graph();
  graph["nodes"].push_back({{"op", "map"},
                            {"at", "all"},
                            {"x", "a"},
                            {"by", "sum"},
                            {"over", 2},
                            {"a", "t6"},
                            {"out", "t9"}});
  graph["values"].push_back({{"name", "t9"}, {"type", "bf16"}, {"shape", ordered_json::array()}});
  EXPECT_THAT(why(graph), HasSubstr("of all images"));
}

TEST(ImageMixingTest, AProductOverImagesIsSaid) {
  ordered_json graph = test::small_graph();
  graph["values"].push_back({{"name", "t9"}, {"type", "bf16"}, {"shape", {"B", 64}}});
  graph["nodes"].push_back({{"op", "matmul"}, {"at", ""}, {"a", "t6"}, {"b", "t6"}, {"out", "t9"}});
  EXPECT_THAT(why(graph), HasSubstr("'b'"));
}

}  // namespace
}  // namespace vitune
