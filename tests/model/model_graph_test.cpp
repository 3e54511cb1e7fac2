// tests/model/model_graph_test.cpp -- The graph: what each rule refuses, which problems nodes ask.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "core/error.h"
#include "model/expression.h"
#include "model/write_cover.h"
#include "tests/model/model_files.h"

namespace vitune {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal_of(const ordered_json& graph, std::int64_t batch = 3) {
  const test::ModelFolder folder;
  const auto header = test::small_header(graph);
  try {
    test::read_all(folder.write(test::bytes_of(header.dump(), test::data_of(header))), batch);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

ordered_json patched(const char* pointer, const ordered_json& value) {
  ordered_json graph = test::small_graph();
  graph[ordered_json::json_pointer(pointer)] = value;
  return graph;
}

TEST(ModelGraphTest, TheSmallGraphIsSoundForEveryBatch) {
  for (const std::int64_t batch : {1, 2, 64, 4096}) {
    EXPECT_EQ(refusal_of(test::small_graph(), batch), "") << batch;
  }
  EXPECT_THAT(refusal_of(test::small_graph(), 0), HasSubstr("batch 0 is not in 1 to"));
  EXPECT_THAT(refusal_of(test::small_graph(), kMaxModelBatch + 1), HasSubstr("is not in 1 to"));
}

TEST(ModelGraphTest, EachRuleRefusesItsBreachInASentence) {
  const ordered_json far = {
      {"of", "pos"}, {"offset", 65}, {"extents", {"B", 16, 64}}, {"strides", {0, 64, 1}}};
  const struct {
    const char* pointer;
    ordered_json value;
    const char* why;
  } cases[] = {
      {"/extra", 1, "has 'extra', which format 1 does not know"},
      {"/nodes", 1, "'nodes' is no list"},
      {"/inputs", ordered_json::array(), "no input or no result"},
      {"/inputs/0/shape", ordered_json::array({1, 1, 1, 1, 1, 1, 1}), "at most 6 numbers"},
      {"/inputs/0/type", "f64", "of a type that no graph has"},
      {"/inputs/0/name", "pos", "two tensors have the name 'pos'"},
      {"/values/0/shape/0", "0*B", "has the extent 0 for batch 1"},
      {"/values/0/shape/0", ordered_json::array({2, -1}), "has the extent -1 for batch 3"},
      {"/values/0/shape/0", ordered_json::array({1, 2, 3}), "a list of other than two"},
      {"/values/0/shape/0", "B*B", "neither B nor a multiple of B"},
      {"/values/0/shape/0", 1.5, "is no integer"},
      {"/values/0/shape/0", 1e300, "is no integer"},
      {"/values/0/shape/1", 17592186044417, "is beyond 2^44"},
      {"/values/0/shape", ordered_json::array({17592186044416, 17592186044416}),
       "more than 2^47 bytes"},
      {"/outputs/0/of", "t9", "there is no tensor 't9'"},
      {"/nodes/0/op", "exec", "is of kind 'exec', which format 1 does not know"},
      {"/nodes/0/act", "mish", "'act' of node 0"},
      {"/nodes/0/code", "x", "has 'code', which format 1 does not know"},
      {"/nodes/0/x", "none", "there is no tensor 'none'"},
      {"/nodes/0/x", 7, "is no object"},
      {"/nodes/0/x/strides", ordered_json::array({1}), "has other extents than strides"},
      {"/nodes/0/x/strides/1", -64, "a view of 'pixels' reaches beyond it"},
      {"/nodes/0/x/offset", 1, "a view of 'pixels' reaches beyond it"},
      {"/nodes/0/x/extents/1", 17592186044416, "a view of 'pixels' reaches beyond it"},
      {"/nodes/0/residual", far, "a view of 'pos' reaches beyond it"},
      {"/nodes/0/bias", "cls_", "there is no tensor 'cls_'"},
      {"/nodes/0/bias", "norm.weight", ""},
      {"/nodes/0/bias", "qkv.bias", "'bias' is not 64 numbers"},
      {"/nodes/0/out/offset", 0, "where something is written already"},
      {"/nodes/0/out/strides", ordered_json::array({1088, 0, 1}), "an element more than once"},
      {"/nodes/0/out/strides", ordered_json::array({1088, 65, 1}), "a view of 't0' reaches beyond"},
      {"/nodes/1/x", "add(a,c)", "its operands are not the letters of its expression"},
      {"/nodes/1/x", "system(a)", "'system' is neither a word nor an operand"},
      {"/nodes/1/a/extents/1", 63, "operand 'a' has another shape"},
      {"/nodes/1/by", "sum", "reduces by nothing, or over no dimension"},
      {"/nodes/8/out",
       {{"of", "head.scale"}, {"extents", {"B", 8}}, {"strides", {0, 1}}},
       "writes to 'head.scale', which is no value"},
      {"/nodes/2/x", "t2", "is read before all of it is written"},
      {"/nodes/2/x", "t1", "the rows of x are not those of w"},
      {"/nodes/2/w", "head.weight", "the result is not as many rows"},
      {"/nodes/2/norm/eps", 0, "is not in 1e-30 to 1e30"},
      {"/nodes/2/norm/eps", "1", "is no finite number"},
      {"/nodes/2/norm/kind", "batch", "none of: layer rms"},
      {"/nodes/2/norm/weight", "qkv.bias", "'norm.weight' is not 64 numbers"},
      {"/nodes/3/q/extents", ordered_json::array({"B", 17, 32}), "has other extents than strides"},
      {"/nodes/3/bias/extents/3", 16, "does not broadcast to the scores"},
      {"/nodes/3/scale", true, "is no finite number"},
      {"/nodes/3/causal", 1, "neither true nor false"},
      {"/nodes/3/mask", "bias", "does not broadcast"},
      {"/nodes/4/residual", "t1", "the residual is not of x's shape"},
      {"/nodes/5/out", "t5", "the result is not as many rows"},
      {"/nodes/6/window", ordered_json::array({0, 2}), "has no 'window'"},
      {"/nodes/6/window", ordered_json::array({2, 0}), "a window has no columns"},
      {"/nodes/6/window", ordered_json::array({2}), "is not two numbers"},
      {"/nodes/6/x/extents/3", 2, "x is not a projection"},
      {"/nodes/7/over", 4, "over other than 1 to 3"},
      {"/nodes/7/over", 2, "the result is not what the reduction leaves"},
      {"/nodes/7/y", "add(r,a)", "'y' of node 7"},
  };
  for (const auto& c : cases) {
    const std::string refusal = refusal_of(patched(c.pointer, c.value));
    EXPECT_THAT(refusal, HasSubstr(c.why)) << c.pointer << " " << c.value;
    EXPECT_EQ(refusal.empty(), std::string(c.why).empty()) << c.pointer << " " << c.value;
  }
}

std::string refusal_of_tiny(const char* pointer, const ordered_json& value) {
  const test::ModelFolder folder;
  ordered_json graph = test::tiny_graph();
  if (*pointer != '\0') graph[ordered_json::json_pointer(pointer)] = value;
  const auto header = test::tiny_header(graph);
  try {
    test::read_all(folder.write(test::bytes_of(header.dump(), test::data_of(header))), 1 << 20);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ModelGraphTest, AnOperandWithoutDimensionsHasNoLastOne) {
  EXPECT_EQ(refusal_of_tiny("", {}), "");
  const ordered_json none = {
      {"of", "scalar"}, {"extents", ordered_json::array()}, {"strides", ordered_json::array()}};
  for (const ordered_json& scalar : {ordered_json("scalar"), none}) {
    for (const char* operand :
         {"/nodes/0/a", "/nodes/0/out", "/nodes/1/a", "/nodes/1/out", "/nodes/2/x", "/nodes/2/w",
          "/nodes/2/residual", "/nodes/2/bias", "/nodes/2/scale", "/nodes/2/out", "/nodes/3/x",
          "/nodes/3/norm/weight", "/nodes/4/x", "/nodes/4/residual", "/nodes/4/weight",
          "/nodes/4/out", "/nodes/5/a", "/nodes/5/b", "/nodes/5/out"}) {
      EXPECT_NE(refusal_of_tiny(operand, scalar), "") << operand;
    }
  }
  EXPECT_EQ(refusal_of_tiny("/outputs/0/of", none), "");
}

TEST(ModelGraphTest, NumbersThatGrowBeyondAnyTensorAreRefused) {
  const std::int64_t most = kMaxModelNumber;
  for (const auto& [each, far] : {std::pair(most, std::int64_t{1} << 62), {-most, -(1L << 62)}}) {
    EXPECT_EQ((BatchNumber{5, each}.at(kMaxModelBatch)), far);
    EXPECT_EQ((BatchNumber{5, each}.at(1)), 5 + each);
    const ordered_json view = {{"of", "in"},
                               {"offset", {0, each}},
                               {"extents", {1, {1, each}}},
                               {"strides", {{0, each}, 1}}};
    EXPECT_THAT(refusal_of_tiny("/nodes/0/a", view), HasSubstr("a view of 'in' reaches beyond"));
  }
}

TEST(ModelGraphTest, WhatIsNotWhollyWrittenIsRefusedThoughNobodyReadsIt) {
  const ordered_json parts[] = {{{"name", "t9"}, {"type", "bf16"}, {"shape", {"B"}}},
                                {{"name", "t8"}, {"type", "bf16"}, {"shape", {"B", 18, 64}}}};
  ordered_json graph = test::small_graph();
  graph["values"].push_back(parts[0]);
  EXPECT_THAT(refusal_of(graph), HasSubstr("value 't9' is not wholly written"));
  graph["values"].erase(9);
  graph["values"][8] = parts[1];
  graph["nodes"][4]["sum"] = {{"of", "t8"}, {"extents", {"B", 17, 64}}, {"strides", {1152, 64, 1}}};
  EXPECT_THAT(refusal_of(graph), HasSubstr("value 't8' is not wholly written"));
}

TEST(ModelGraphTest, MatricesAndGroupsMustFit) {
  const struct {
    const char* pointer;
    ordered_json value;
    const char* why;
  } cases[] = {{"", {}, ""},
               {"/nodes/9/a/extents/2", 16, "a, b and the result do not fit"},
               {"/nodes/9/a/extents/1", 1, "not as many matrices"},
               {"/nodes/9/a", "t0", "matrices of as many dimensions"},
               {"/nodes/10/groups", 5, "the groups do not divide"},
               {"/nodes/10/groups", 0, "fewer than one group"},
               {"/nodes/10/eps", 0, "is not in 1e-30"},
               {"/nodes/10/weight", "head.scale", "'weight' is not 64 numbers"}};
  for (const auto& c : cases) {
    ordered_json graph = test::small_graph();
    graph["values"].push_back({{"name", "t9"}, {"type", "bf16"}, {"shape", {"B", 2, 17, 17}}});
    graph["values"].push_back({{"name", "t10"}, {"type", "bf16"}, {"shape", {"B", 17, 64}}});
    graph["nodes"].push_back(ordered_json::parse(R"json({"op": "matmul", "at": "", "scale": 0.2,
        "a": {"of": "t1", "extents": ["B", 2, 17, 32], "strides": [3264, 32, 192, 1]},
        "b": {"of": "t1", "offset": 64, "extents": ["B", 2, 32, 17], "strides": [3264, 32, 1, 192]},
        "out": "t9"})json"));
    graph["nodes"].push_back(ordered_json::parse(R"json({"op": "group_norm", "at": "", "groups": 4,
        "eps": 1e-6, "weight": "norm.weight",
        "x": {"of": "t0", "extents": ["B", 64, 17], "strides": [1088, 1, 64]},
        "out": {"of": "t10", "extents": ["B", 64, 17], "strides": [1088, 1, 64]}})json"));
    if (*c.pointer != '\0') graph[ordered_json::json_pointer(c.pointer)] = c.value;
    const std::string refusal = refusal_of(graph);
    EXPECT_THAT(refusal, HasSubstr(c.why)) << c.pointer;
    EXPECT_EQ(refusal.empty(), *c.why == '\0') << c.pointer << " " << refusal;
  }
}

TEST(ModelGraphTest, NamesOfAFileMakeNoSentenceLong) {
  const auto length = [](const char* pointer, const ordered_json& value) {
    const std::string refusal = refusal_of(patched(pointer, value));
    EXPECT_NE(refusal, "") << pointer;
    // A name is cut between two characters: what is left is UTF-8.
    EXPECT_NO_THROW(ordered_json(refusal).dump()) << pointer;
    return refusal.size();
  };
  std::string name = "x";
  for (int i = 0; i < 400; ++i) name += "\u00e9";
  for (const char* pointer : {"/nodes/0/x", "/nodes/0/out", "/outputs/0/of", "/nodes/0/op",
                              "/nodes/0/act", "/values/8/name", "/inputs/0/type"}) {
    EXPECT_LT(length(pointer, name), 600u) << pointer;
  }
  ordered_json key = test::small_graph()["nodes"][0];
  key[name] = 1;
  key["at"] = name;
  EXPECT_LT(length("/nodes/0", key), 600u);
  key.erase(name);
  key["w"] = name;
  EXPECT_LT(length("/nodes/0", key), 600u);
}

TEST(ModelGraphTest, AGraphThatIsNoTreeOfThisDepthIsRefused) {
  for (const char* text : {"", "[", "7", "{\"nodes\":[[[[[[[[[[[1]]]]]]]]]]]}", "{\"a\":1,\"a\":1}",
                           "{\"a\":1e999}", "nul"}) {
    EXPECT_THROW(read_model_graph(text, "a file"), Error) << text;
  }
}

TEST(ModelGraphTest, NodesAskTheProblemsOfTheirOperators) {
  const test::ModelFolder folder;
  const ModelContainer file = load_model_file(folder.write(test::small_file()));
  const ModelGraph graph = read_model_graph(file.text("vitune.graph"), "a file");
  const BatchTensors tensors(file, graph, 2);
  std::vector<std::string> texts;
  for (const ModelNode& node : graph.nodes) {
    for (const ProblemPtr& problem : node_problems(tensors, node)) texts.push_back(problem->text());
  }
  EXPECT_THAT(
      texts, ElementsAre("linear bf16 m=32 n=64 k=48 bias params=fp32 residual period=16 rows=16+1",
                         "norm bf16 m=34 d=64 weight bias eps=1e-06",
                         "linear bf16 m=34 n=192 k=64 bias act=gelu",
                         "attention bf16 b=2 h=2 nq=17 nk=17 d=32 layout=packed scale=0.125 "
                         "bias=bf16:1x2x17x17",
                         "norm bf16 m=34 d=64 rms weight residual sum eps=1e-05",
                         "linear bf16 m=32 n=192 k=64",
                         "window_attention bf16 b=2 image=4x4 window=2x2 shift=1x1 h=2 d=32",
                         "linear bf16 m=2 n=8 k=64 scale params=fp32"));
}

TEST(ModelGraphTest, SizesBeyondThoseOfAKernelAreSaidWithTheNode) {
  ordered_json graph = test::small_graph();
  graph["values"][0]["shape"] = {"B", 17, 64};
  for (auto& [key, operand] : graph["nodes"][3].items()) {
    if (operand.is_object() && operand.contains("extents") && key != "bias") {
      operand["extents"] = {"B", 4, 17, 16};
      operand["strides"][1] = 16;
    }
  }
  graph["nodes"][3].erase("bias");
  EXPECT_EQ(refusal_of(graph), "");
  for (auto& [key, operand] : graph["nodes"][3].items()) {
    if (operand.is_object() && operand.contains("extents")) {
      operand["extents"] = {"B", 16, 17, 4};
      operand["strides"][1] = 4;
    }
  }
  EXPECT_THAT(refusal_of(graph), HasSubstr("attention in attn: "));
}

TEST(ModelGraphTest, ExpressionsAreReadAndNothingElse) {
  for (const char* text : {"a", "1", "-0.5", "add(a,b)", "where(lt(a,0),b,mul(a,1e-05))",
                           "gelu_tanh(h)", "mul(a,3.4028234663852886e+38)"}) {
    EXPECT_EQ(expression_fault(text, "abcdefgh"), "") << text;
  }
  std::string deep = "a", long_one = "a";
  for (int i = 0; i < 32; ++i) deep = "neg(" + deep + ")";
  for (int i = 0; i < 33; ++i) long_one = "neg(" + long_one + ")";
  EXPECT_EQ(expression_fault(deep, "a"), "");
  for (const std::string& text : {std::string(),
                                  std::string("add(a)"),
                                  std::string("add(a,b,c)"),
                                  std::string("add a,b"),
                                  std::string("add(a,b"),
                                  std::string("i"),
                                  std::string("inf"),
                                  std::string("nan"),
                                  std::string("1e999"),
                                  std::string("a b"),
                                  std::string("a)"),
                                  std::string("__import__(a)"),
                                  std::string("0x10"),
                                  std::string("-"),
                                  std::string("1.e5"),
                                  std::string("1."),
                                  std::string("1E5"),
                                  std::string("1e"),
                                  std::string(".5"),
                                  std::string("1.2.3"),
                                  std::string("add(a,,b)"),
                                  long_one,
                                  std::string(1000, '(')}) {
    EXPECT_NE(expression_fault(text, "abcdefgh"), "") << text;
  }
  EXPECT_EQ(expression_letters("add(h,mul(1e5,add(b,max(b,2.5e-3))))", "abcdefgh"), "bh");
}

// The cover's answer for a piece, with no limit on comparisons.
std::string written(WriteCover& cover, std::int64_t offset,
                    const std::vector<std::int64_t>& extents,
                    const std::vector<std::int64_t>& strides) {
  std::int64_t comparisons = kMaxPieceComparisons;
  return cover.add(offset, extents, strides, comparisons);
}

TEST(WriteCoverTest, BoxesThatDoNotMeetFillATensor) {
  WriteCover cover({4, 6, 8});
  EXPECT_EQ(written(cover, 0, {4, 6, 4}, {48, 8, 2}), "");  // even columns
  EXPECT_FALSE(cover.is_whole());
  EXPECT_EQ(written(cover, 1, {2, 2, 6, 4}, {96, 48, 8, 2}), "");  // odd ones, a dimension in two
  EXPECT_TRUE(cover.is_whole());
  EXPECT_NE(written(cover, 5, {1}, {1}), "");
  WriteCover rows({2, 2, 2, 7, 7, 32});  // written as windows of rows
  EXPECT_EQ(written(rows, 0, {8, 49, 32}, {1568, 32, 1}), "");
  EXPECT_TRUE(rows.is_whole());
}

TEST(WriteCoverTest, WhatIsNoBoxOrIsWrittenTwiceIsSaid) {
  const struct {
    std::int64_t offset;
    std::vector<std::int64_t> extents, strides;
  } cases[] = {{0, {2, 8}, {0, 1}},         // twice
               {0, {8, 2}, {1, 1}},         // overlaps itself
               {4, {8}, {1}},               // across the end of a row
               {0, {3, 8}, {12, 1}},        // in steps across rows
               {0, {2, 2, 8}, {24, 8, 1}},  // gaps of two dimensions
               {0, {4, 6, 8}, {48, 1, 6}}};
  for (const auto& c : cases) {
    WriteCover cover({4, 6, 8});
    EXPECT_NE(written(cover, c.offset, c.extents, c.strides), "") << c.offset;
  }
}

TEST(WriteCoverTest, PiecesAreHeldAgainstEachOtherSoOftenAndNoMore) {
  WriteCover cover({1 << 20});
  std::int64_t comparisons = 3;
  EXPECT_EQ(cover.add(0, {1}, {1}, comparisons), "");
  EXPECT_EQ(cover.add(1, {1}, {1}, comparisons), "");
  EXPECT_EQ(cover.add(2, {1}, {1}, comparisons), "");
  EXPECT_EQ(comparisons, 0);
  EXPECT_NE(cover.add(3, {1}, {1}, comparisons), "");
}

TEST(WriteCoverTest, AGraphOfThousandsOfPiecesIsRefusedSoon) {
  ordered_json graph = test::tiny_graph();
  graph["values"].push_back({{"name", "p"}, {"type", "bf16"}, {"shape", {4096}}});
  for (int i = 0; i < 4096; ++i) {
    graph["nodes"].push_back(
        {{"op", "map"},
         {"at", ""},
         {"x", "1"},
         {"out", {{"of", "p"}, {"offset", i}, {"extents", {1}}, {"strides", {1}}}}});
  }
  const test::ModelFolder folder;
  const auto header = test::tiny_header(graph);
  const auto path = folder.write(test::bytes_of(header.dump(), test::data_of(header)));
  try {
    test::read_all(path, 1);
    ADD_FAILURE() << "4096 pieces of a tensor were taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("in more pieces than a graph may have"));
  }
}

}  // namespace
}  // namespace vitune
