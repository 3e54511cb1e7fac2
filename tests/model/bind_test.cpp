// tests/model/bind_test.cpp -- From nodes to steps: problems, copies, constants, and one arena.
// SPDX-License-Identifier: Apache-2.0
#include "model/bind.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <random>
#include <stdexcept>

#include "core/error.h"
#include "core/half.h"
#include "generator/operator.h"
#include "model/constants.h"
#include "model/memory_plan.h"
#include "tests/model/model_files.h"

namespace vitune {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

class BindTest : public testing::Test {
 protected:
  ModelContainer open(const ordered_json& graph, const std::string& data = "") const {
    const auto header = test::small_header(graph);
    std::string bytes = test::bytes_of(header.dump(), test::data_of(header));
    bytes.replace(bytes.size() - data.size(), data.size(), data);
    return load_model_file(folder_.write(bytes));
  }
  BoundModel bind(const ordered_json& json, std::int64_t batch, const FormFacts& facts = {}) const {
    const ModelContainer file = open(json);
    const ModelGraph graph = read_model_graph(file.text("vitune.graph"), "a file");
    require_sound(file, graph, batch);
    return bind_model(BatchTensors(file, graph, batch), graph, file, facts);
  }
  static std::vector<std::string> texts(const BoundModel& model) {
    std::vector<std::string> texts;
    for (const ModelStep& step : model.steps) texts.push_back(step.problem->text());
    return texts;
  }
  static std::size_t copies(const BoundModel& model) {
    return static_cast<std::size_t>(
        std::count_if(model.steps.begin(), model.steps.end(),
                      [](const ModelStep& step) { return step.is_copy; }));
  }

  const test::ModelFolder folder_;
};

ordered_json changed(const char* pointer, const ordered_json& value) {
  ordered_json graph = test::small_graph();
  graph[ordered_json::json_pointer(pointer)] = value;
  return graph;
}

TEST_F(BindTest, EveryNodeIsAProblemAndPatchesAreGatheredFirst) {
  const BoundModel model = bind(test::small_graph(), 3);
  // Nine nodes; a norm before a layer; copies of the patches and of rows without the first token.
  EXPECT_EQ(model.steps.size(), 12u);
  EXPECT_EQ(copies(model), 2u);
  EXPECT_TRUE(model.steps.front().is_copy);
  EXPECT_THAT(texts(model)[0], HasSubstr("map n=3x4x4x3x4x4 a=bf16@768x64x4x256x16x1"));
  EXPECT_THAT(texts(model), testing::Contains(HasSubstr("attention bf16 b=3")));
  for (const ModelStep& step : model.steps) {
    const std::vector<TensorSpec> specs = step.problem->op().tensors(*step.problem);
    ASSERT_EQ(step.tensors.size(), specs.size());
    for (std::size_t i = 0; i < specs.size(); ++i) {
      ASSERT_EQ(step.tensors[i].has_value(), specs[i].given);
      if (!specs[i].given) continue;
      const ModelBuffer& buffer = model.buffers[step.tensors[i]->buffer];
      EXPECT_LE(step.tensors[i]->offset + specs[i].bytes(), buffer.bytes()) << step.problem->text();
      EXPECT_EQ(step.tensors[i]->offset % specs[i].alignment, 0) << step.problem->text();
    }
  }
}

TEST_F(BindTest, AResultThatIsPartOfAValueIsCopiedToItsOwn) {
  ordered_json graph = test::small_graph();
  graph["outputs"][0]["of"] = {{"of", "t3"}, {"extents", {"B", 64}}, {"strides", {1088, 1}}};
  const BoundModel model = bind(graph, 2);
  EXPECT_TRUE(model.steps.back().is_copy);
  EXPECT_EQ(model.buffers[model.outputs[0]].elements, 2 * 64);
}

TEST_F(BindTest, TwoNamesOfOneResultAreTwoBuffers) {
  ordered_json graph = test::small_graph();
  graph["outputs"].push_back({{"name", "again"}, {"of", "t7"}});
  const BoundModel model = bind(graph, 2);
  EXPECT_NE(model.outputs[0], model.outputs[1]);
}

TEST_F(BindTest, ATensorOfTheFileThatNoKernelReadsAsItLiesIsMadeOnce) {
  // Every second row of the positions, for two layers.
  const ordered_json residual = {{"of", "pos"}, {"extents", {"B", 16, 64}}, {"strides", {0, 0, 1}}};
  const BoundModel model = bind(changed("/nodes/0/residual", residual), 2);
  const auto constants =
      std::count_if(model.buffers.begin(), model.buffers.end(),
                    [](const ModelBuffer& buffer) { return buffer.kind == BufferKind::kConstant; });
  EXPECT_EQ(constants, 1);
  EXPECT_EQ(copies(model), 2u);  // those of the small graph
}

TEST_F(BindTest, ConstantsAreGatheredAndWidened) {
  std::string data;  // the last tensors of the file: head.weight as bf16, head.scale
  for (int i = 0; i < 8 * 64; ++i) {
    const auto bits = static_cast<std::uint16_t>(0x3f80 + i);
    data += static_cast<char>(bits & 0xff);
    data += static_cast<char>(bits >> 8);
  }
  data += std::string(8 * 4, '\0');
  const ModelContainer file = open(test::small_graph(), data);
  ModelBuffer buffer{BufferKind::kConstant, "head.weight", "fp32", 4, {}};
  buffer.from = {"head.weight", "bf16", 2, {2, 2}, {64, 3}};
  const std::vector<std::byte> bytes = weight_bytes(file, buffer);
  std::vector<float> values(4);
  ASSERT_EQ(bytes.size(), sizeof(float) * values.size());
  std::memcpy(values.data(), bytes.data(), bytes.size());
  const auto number = [](int i) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(0x3f80 + i) << 16);
  };
  EXPECT_THAT(values, testing::ElementsAre(number(2), number(5), number(66), number(69)));
  buffer.type = "fp16";
  EXPECT_THROW(weight_bytes(file, buffer), Error);
}

TEST_F(BindTest, AConstantThatWouldBeFarLargerThanItsTensorIsRefused) {
  const ordered_json residual = {{"of", "pos"}, {"extents", {"B", 16, 64}}, {"strides", {0, 0, 1}}};
  EXPECT_NO_THROW(bind(changed("/nodes/0/residual", residual), 100));
  try {
    bind(changed("/nodes/0/residual", residual), 200'000);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("would be needed"));
  }
}

TEST_F(BindTest, AnOperandThatBeginsAnywhereMakesAProblemOfThatAlignment) {
  const BoundModel model = bind(changed("/nodes/3/q/offset", 4), 2);
  EXPECT_THAT(texts(model),
              testing::Contains(testing::AllOf(HasSubstr("attention bf16"), HasSubstr("align=8"))));
}

TEST_F(BindTest, AResultThatNoKernelWritesIsRefused) {
  for (const char* type : {"fp32", "fp16"}) {
    try {
      bind(changed("/values/8/type", type), 2);
      ADD_FAILURE() << type;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("sum"));
    }
  }
}

TEST_F(BindTest, AReductionToOneNumberIsOfOneResult) {
  ordered_json graph = test::small_graph();
  graph["values"].push_back({{"name", "t9"}, {"type", "bf16"}, {"shape", ordered_json::array()}});
  graph["nodes"].push_back({{"op", "map"},
                            {"at", "all"},
                            {"x", "a"},
                            {"by", "sum"},
                            {"over", 2},
                            {"a", "t6"},
                            {"out", "t9"}});
  EXPECT_THAT(texts(bind(graph, 2)), testing::Contains(HasSubstr("map n=1 over=128")));
}

TEST_F(BindTest, GroupNormsReadChannelsSecondOrLastAsTheyLie) {
  const struct {
    const char* problem;
    std::vector<int> strides;
  } cases[] = {{"group_norm bf16 n=2 c=64 l=16 g=2", {1024, 16, 1}},
               {"group_norm bf16 n=2 c=64 l=16 g=2 nhwc", {1024, 1, 64}}};
  for (const auto& c : cases) {
    ordered_json graph = test::small_graph();
    graph["values"].push_back({{"name", "t9"}, {"type", "bf16"}, {"shape", {"B", 1024}}});
    const auto view = [&](const char* of) {
      return ordered_json{{"of", of}, {"extents", {"B", 64, 16}}, {"strides", c.strides}};
    };
    graph["nodes"].push_back({{"op", "group_norm"},
                              {"at", "groups"},
                              {"groups", 2},
                              {"eps", 1e-5},
                              {"x", view("t5")},
                              {"out", view("t9")}});
    const BoundModel model = bind(graph, 2);
    EXPECT_EQ(model.steps.back().problem->text(), c.problem);
    EXPECT_EQ(copies(model), 2u);  // those of the small graph
  }
}

TEST_F(BindTest, AProductWithOneMatrixIsALayerAndOneOfSeveralIsAMap) {
  ordered_json graph = test::small_graph();
  graph["values"].push_back({{"name", "t9"}, {"type", "bf16"}, {"shape", {"B", 17, 8}}});
  graph["values"].push_back({{"name", "t10"}, {"type", "fp32"}, {"shape", {"B", 17, 17}}});
  const auto view = [](const char* of, std::vector<ordered_json> extents,
                       std::vector<int> strides) {
    return ordered_json{{"of", of}, {"extents", extents}, {"strides", strides}};
  };
  graph["nodes"].push_back({{"op", "matmul"},
                            {"at", "one"},
                            {"a", "t3"},
                            {"b", view("head.weight", {"B", 64, 8}, {0, 1, 64})},
                            {"out", "t9"}});
  graph["nodes"].push_back({{"op", "matmul"},
                            {"at", "many"},
                            {"scale", 0.25},
                            {"a", "t3"},
                            {"b", view("t3", {"B", 64, 17}, {1088, 1, 64})},
                            {"out", "t10"}});
  EXPECT_THAT(texts(bind(graph, 2)),
              testing::AllOf(testing::Contains("linear bf16 m=34 n=8 k=64"),
                             testing::Contains("map n=2x17x17 over=64 a=bf16@1088x64x0+1 "
                                               "b=bf16@1088x0x64+1 x=mul(a,b) sum y=mul(r,0.25) "
                                               "out=fp32")));
}

TEST_F(BindTest, AMapOfConstantsReadsANumberThatDoesNotCount) {
  ordered_json graph = test::small_graph();
  graph["nodes"][1]["x"] = "0.5";
  graph["nodes"][1].erase("a");
  graph["nodes"][1].erase("b");
  EXPECT_THAT(texts(bind(graph, 2)), testing::Contains(HasSubstr("x=where(lt(a,a),a,0.5)")));
}

TEST_F(BindTest, WhatNoKernelServesIsSaidWithTheNode) {
  ordered_json graph = test::small_graph();
  graph["nodes"][1]["x"] = "add(a,mul(b,add(a,1)))";
  EXPECT_NO_THROW(bind(graph, 2));
  for (auto& each : graph["nodes"]) {
    if (each["op"] == "attention") each["scale"] = 1e300;
  }
  try {
    bind(graph, 2);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("attn"));
  }
}

// A projection whose result a norm and a layer read, twice: as rows of a transformer.
ordered_json chain(const char* norm, int columns = 64) {
  ordered_json graph = test::small_graph();
  graph["values"].push_back({{"name", "t9"}, {"type", "bf16"}, {"shape", {"B", 17, columns}}});
  graph["values"].push_back({{"name", "t10"}, {"type", "bf16"}, {"shape", {"B", 17, 192}}});
  graph["nodes"].push_back(
      {{"op", "linear"},
       {"at", "proj"},
       {"x", "t3"},
       {"w", {{"of", "qkv.weight"}, {"extents", {columns, 64}}, {"strides", {64, 1}}}},
       {"residual", "t0"},
       {"out", "t9"}});
  graph["nodes"].push_back(
      {{"op", "linear"},
       {"at", "fc1"},
       {"x", "t9"},
       {"w", "qkv.weight"},
       {"act", "gelu"},
       {"norm", {{"kind", norm}, {"weight", "norm.weight"}, {"bias", "norm.bias"}, {"eps", 1e-6}}},
       {"out", "t10"}});
  return graph;
}

std::vector<std::string> last(std::vector<std::string> texts, std::size_t count) {
  texts.erase(texts.begin(), texts.end() - static_cast<std::ptrdiff_t>(count));
  return texts;
}

constexpr const char* kMomentsOfProjection = "linear bf16 m=34 n=64 k=64 residual moments=32";
constexpr const char* kLayerOfMoments =
    "linear bf16 m=34 n=192 k=64 norm=moments:32 eps=1e-06 bias act=gelu params=fp32";
constexpr const char* kProjection = "linear bf16 m=34 n=64 k=64 residual";
constexpr const char* kNorm = "norm bf16 m=34 d=64 weight bias eps=1e-06";
constexpr const char* kLayer = "linear bf16 m=34 n=192 k=64 act=gelu";

TEST_F(BindTest, ALayerNormOfALayersRowsIsFoldedIntoTheNextByTheirMoments) {
  const BoundModel model = bind(chain("layer"), 2);
  EXPECT_THAT(last(texts(model), 2), testing::ElementsAre(kMomentsOfProjection, kLayerOfMoments));
  const auto tensor = [&](std::size_t step, const char* name) {
    const auto specs = model.steps[step].problem->op().tensors(*model.steps[step].problem);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].name == name) return *model.steps[step].tensors[i];
    }
    throw std::runtime_error(name);
  };
  const std::size_t steps = model.steps.size();
  EXPECT_EQ(tensor(steps - 2, "out_moments").buffer, tensor(steps - 1, "moments").buffer);
  EXPECT_EQ(model.buffers[tensor(steps - 1, "moments").buffer].elements, 34 * 2 * 2);
  EXPECT_EQ(model.buffers[tensor(steps - 1, "w").buffer].part, FoldedPart::kWeight);
  EXPECT_EQ(model.buffers[tensor(steps - 1, "bias").buffer].part, FoldedPart::kBias);
  EXPECT_EQ(model.buffers[tensor(steps - 1, "weight_sums").buffer].part, FoldedPart::kSums);
}

TEST_F(BindTest, AnRmsNormIsFoldedByOneMapOfItsRows) {
  EXPECT_THAT(
      last(texts(bind(chain("rms"), 2)), 3),
      testing::ElementsAre(kProjection,
                           "map n=34 over=64 a=bf16 x=mul(a,a) mean y=rsqrt(add(r,1e-06)) out=fp32",
                           "linear bf16 m=34 n=192 k=64 norm=rms bias act=gelu params=fp32"));
}

TEST_F(BindTest, ManyRowsAreNotFoldedUnlessWinnersSaySo) {
  EXPECT_THAT(last(texts(bind(chain("layer"), 121)), 3),
              testing::ElementsAre("linear bf16 m=2057 n=64 k=64 residual",
                                   "norm bf16 m=2057 d=64 weight bias eps=1e-06",
                                   "linear bf16 m=2057 n=192 k=64 act=gelu"));
  EXPECT_THAT(texts(bind(chain("layer"), 120)), testing::Contains(HasSubstr("moments:32")));
  EXPECT_THAT(texts(bind(chain("layer"), 121)),
              testing::Not(testing::Contains(HasSubstr("moments"))));
}

TEST_F(BindTest, WinnersDecideBetweenAFoldedNormAndOneApart) {
  using Times = std::map<std::string, double>;
  const Times apart = {{kProjection, 4}, {kLayer, 5}};
  const Times slow = {{kMomentsOfProjection, 5}, {kLayerOfMoments, 6}};
  const Times fast = {{kMomentsOfProjection, 4.5}, {kLayerOfMoments, 5.5}};
  const auto both = [](Times a, const Times& b) {
    a.insert(b.begin(), b.end());
    return a;
  };
  const struct {
    const char* what;
    Times winners;
    double floor;
    bool has_kernel, is_folded;
  } cases[] = {
      {"folded is faster by the norm's floor", both(apart, fast), 1.5, true, true},
      {"a floor of nothing decides for apart", both(apart, fast), 0, true, false},
      {"folded is slower", both(apart, slow), 1.5, true, false},
      {"the norm's own winner counts", both(both(apart, slow), {{kNorm, 3}}), 0, true, true},
      {"apart alone is tuned", apart, 1.5, true, false},
      {"folded alone is tuned", slow, 1.5, true, true},
      {"half of each is tuned: few rows",
       {{kProjection, 4}, {kLayerOfMoments, 9}},
       1.5,
       true,
       true},
      {"no kernels of moments", both(apart, fast), 1.5, false, false},
  };
  for (const auto& c : cases) {
    FormFacts facts;
    facts.outlook = [&](const ProblemPtr& problem) {
      const auto found = c.winners.find(problem->text());
      const bool of_moments = problem->text().find("moments") != std::string::npos;
      return ProblemOutlook{c.has_kernel || !of_moments,
                            found == c.winners.end() ? std::nullopt : std::optional(found->second),
                            c.floor};
    };
    const std::vector<std::string> found = texts(bind(chain("layer"), 2, facts));
    EXPECT_EQ(found.back() == kLayerOfMoments, c.is_folded) << c.what;
    EXPECT_EQ(found.back() == kLayer, !c.is_folded) << c.what;
  }
}

TEST_F(BindTest, WhatCannotBeFoldedStaysApart) {
  const auto is_folded = [&](const ordered_json& graph, const FormFacts& facts = {}) {
    return texts(bind(graph, 2, facts)).back().find("norm=") != std::string::npos;
  };
  ASSERT_TRUE(is_folded(chain("layer")));
  FormFacts large;
  large.fits = [](const LayerFold&) { return false; };
  EXPECT_FALSE(is_folded(chain("layer"), large));
  const std::size_t fc1 = test::small_graph()["nodes"].size() + 1;
  ordered_json graph = chain("layer");  // a bias of the pass
  graph["nodes"][fc1]["bias"] = {{"of", "t1"}, {"extents", {192}}, {"strides", {1}}};
  EXPECT_FALSE(is_folded(graph));
  graph = chain("layer");  // rows without the first token
  graph["nodes"][fc1]["x"] = {
      {"of", "t9"}, {"offset", 64}, {"extents", {"B", 16, 64}}, {"strides", {1088, 64, 1}}};
  graph["values"].back()["shape"] = {"B", 16, 192};
  EXPECT_FALSE(is_folded(graph));
  graph = chain("layer");  // rows that two nodes write
  graph["nodes"][fc1 - 1]["x"] = {
      {"of", "t3"}, {"extents", {"B", 16, 64}}, {"strides", {1088, 64, 1}}};
  graph["nodes"][fc1 - 1].erase("residual");
  graph["nodes"][fc1 - 1]["out"] = {
      {"of", "t9"}, {"extents", {"B", 16, 64}}, {"strides", {1088, 64, 1}}};
  ordered_json rest = {{"op", "map"}, {"at", ""}, {"x", "a"}};
  rest["a"] = {{"of", "cls"}, {"extents", {"B", 64}}, {"strides", {0, 1}}};
  rest["out"] = {{"of", "t9"}, {"offset", 1024}, {"extents", {"B", 64}}, {"strides", {1088, 1}}};
  graph["nodes"].insert(graph["nodes"].begin() + static_cast<std::ptrdiff_t>(fc1), rest);
  EXPECT_FALSE(is_folded(graph));
}

TEST_F(BindTest, FoldedWeightsAreTheLayersTimesTheNorms) {
  // w = [[1, 2], [-3, 0.5]], bias 10 and 20, the norm's weight 0.5 and 1.5, its bias 2 and 4.
  const std::vector<float> numbers = {1, 2, -3, 0.5F, 10, 20, 0.5F, 1.5F, 2, 4};
  for (const char* type : {"bf16", "fp16"}) {
    std::string data;
    for (const float number : numbers) {
      const std::uint16_t bits =
          std::string(type) == "bf16" ? rounded_bf16(number) : rounded_fp16(number);
      data += static_cast<char>(bits & 0xff);
      data += static_cast<char>(bits >> 8);
    }
    data += std::string(8 * 4, '\0');
    const ModelContainer file = open(test::small_graph(), data);
    // head.weight is the last tensor but one; the views begin where the numbers do.
    const std::int64_t start = 8 * 64 - 10;
    const auto view = [&](std::int64_t at, std::vector<std::int64_t> extents,
                          std::vector<std::int64_t> strides) {
      return BatchView{"head.weight", type, start + at, std::move(extents), std::move(strides)};
    };
    const LayerFold fold{view(0, {2, 2}, {2, 1}), view(4, {2}, {1}), view(6, {2}, {1}),
                         view(8, {2}, {1})};
    const FoldedWeights made = fold_weights(file, fold);
    const auto floats = [](const std::vector<std::byte>& bytes) {
      std::vector<float> values(bytes.size() / sizeof(float));
      std::memcpy(values.data(), bytes.data(), bytes.size());
      return values;
    };
    EXPECT_THAT(floats(made.bias), testing::ElementsAre(10 + 1 * 2 + 2 * 4, 20 - 3 * 2 + 0.5F * 4));
    EXPECT_THAT(floats(made.sums), testing::ElementsAre(0.5F + 3, -1.5F + 0.75F));
    std::vector<std::uint16_t> weight(4);
    ASSERT_EQ(made.weight.size(), 8u);
    std::memcpy(weight.data(), made.weight.data(), 8);
    const auto wide = std::string(type) == "bf16" ? widened_bf16 : widened_fp16;
    EXPECT_THAT(
        (std::vector<float>{wide(weight[0]), wide(weight[1]), wide(weight[2]), wide(weight[3])}),
        testing::ElementsAre(0.5F, 3, -1.5F, 0.75F));
    EXPECT_TRUE(made.fits);
  }
}

TEST_F(BindTest, FoldedWeightsBeyondFp16AreNotFinite) {
  std::string data;  // twice 60,000 and 60,000
  for (int i = 0; i < 4; ++i) {
    const std::uint16_t bits = rounded_fp16(60'000);
    data += static_cast<char>(bits & 0xff);
    data += static_cast<char>(bits >> 8);
  }
  data += std::string(8 * 4, '\0');
  const ModelContainer file = open(test::small_graph(), data);
  const std::int64_t start = 8 * 64 - 4;
  const BatchView w{"head.weight", "fp16", start, {1, 2}, {2, 1}};
  const BatchView gain{"head.weight", "fp16", start + 2, {2}, {1}};
  EXPECT_TRUE(fold_weights(file, {w, {}, {}, {}}).fits);
  EXPECT_FALSE(fold_weights(file, {w, {}, gain, {}}).fits);
}

// Below 2^-14 numbers of fp16 have fewer and fewer digits; bf16 has as many everywhere.
TEST_F(BindTest, FoldedWeightsThatLoseDigitsInFp16DoNotFit) {
  for (const bool is_bf16 : {false, true}) {
    const auto rounded = is_bf16 ? rounded_bf16 : rounded_fp16;
    std::string data;
    for (const float number : {0.0011F, 0.0013F, 0.0017F, 0.0019F}) {
      const std::uint16_t bits = rounded(number);
      data += static_cast<char>(bits & 0xff);
      data += static_cast<char>(bits >> 8);
    }
    data += std::string(8 * 4, '\0');
    const ModelContainer file = open(test::small_graph(), data);
    const char* const type = is_bf16 ? "bf16" : "fp16";
    const std::int64_t start = 8 * 64 - 4;
    const BatchView w{"head.weight", type, start, {1, 2}, {2, 1}};
    const BatchView gain{"head.weight", type, start + 2, {2}, {1}};
    EXPECT_EQ(fold_weights(file, {w, {}, gain, {}}).fits, is_bf16);
  }
}

// The first and last step of each buffer, worked out anew.
struct Range {
  std::size_t first = SIZE_MAX, last = 0;
};
std::vector<Range> ranges_of(const BoundModel& model) {
  std::vector<Range> ranges(model.buffers.size());
  const auto use = [&](std::size_t buffer, std::size_t step) {
    ranges[buffer].first = std::min(ranges[buffer].first, step);
    ranges[buffer].last = std::max(ranges[buffer].last, step);
  };
  for (std::size_t i = 0; i < model.steps.size(); ++i) {
    for (const auto& tensor : model.steps[i].tensors) {
      if (tensor) use(tensor->buffer, i);
    }
  }
  for (const auto* ends : {&model.inputs, &model.outputs}) {
    for (const std::size_t buffer : *ends) {
      use(buffer, 0);
      use(buffer, model.steps.size());
    }
  }
  return ranges;
}

TEST_F(BindTest, NothingInTheArenaMeetsWhatIsNeededAtTheSameTime) {
  for (const std::int64_t batch : {1, 3, 17}) {
    const BoundModel model = bind(test::small_graph(), batch);
    std::mt19937 random(static_cast<unsigned>(batch));
    std::vector<std::int64_t> scratch;
    for (std::size_t i = 0; i < model.steps.size(); ++i) {
      scratch.push_back(i % 3 == 0 ? 0 : static_cast<std::int64_t>(random() % 9000));
    }
    const MemoryPlan plan = plan_memory(model, scratch);
    const std::vector<Range> ranges = ranges_of(model);
    std::int64_t sum = 0;
    const auto apart = [](std::int64_t a, std::int64_t bytes_a, std::int64_t b,
                          std::int64_t bytes_b) { return a + bytes_a <= b || b + bytes_b <= a; };
    for (std::size_t i = 0; i < model.buffers.size(); ++i) {
      if (!plan.buffers[i]) continue;
      const std::int64_t at = *plan.buffers[i], bytes = model.buffers[i].bytes();
      EXPECT_EQ(at % kArenaAlignment, 0);
      EXPECT_LE(at + bytes, plan.bytes);
      sum += bytes;
      for (std::size_t step = 0; step < scratch.size(); ++step) {
        if (scratch[step] == 0 || step < ranges[i].first || step > ranges[i].last) continue;
        EXPECT_TRUE(apart(at, bytes, plan.scratch[step], scratch[step])) << i << ' ' << step;
      }
      for (std::size_t j = 0; j < i; ++j) {
        if (!plan.buffers[j]) continue;
        // One may end where the other begins: then the operator lets it be replaced.
        const bool meet = ranges[i].first < ranges[j].last && ranges[j].first < ranges[i].last;
        if (meet) {
          EXPECT_TRUE(apart(at, bytes, *plan.buffers[j], model.buffers[j].bytes()))
              << i << ' ' << j;
        }
      }
    }
    EXPECT_LT(plan.bytes, sum + 20'000);
  }
}

TEST_F(BindTest, ABufferThatEndsIsReplacedOnlyWhereTheOperatorAllowsIt) {
  const BoundModel model = bind(test::small_graph(), 2);
  const MemoryPlan plan = plan_memory(model, std::vector<std::int64_t>(model.steps.size(), 0));
  for (std::size_t i = 0; i < model.steps.size(); ++i) {
    const std::vector<TensorSpec> specs =
        model.steps[i].problem->op().tensors(*model.steps[i].problem);
    for (std::size_t out = 0; out < specs.size(); ++out) {
      if (!specs[out].given || specs[out].role != Role::kOutput) continue;
      const StepTensor& written = *model.steps[i].tensors[out];
      for (std::size_t in = 0; in < specs.size(); ++in) {
        if (!specs[in].given || in == out) continue;
        const StepTensor& other = *model.steps[i].tensors[in];
        if (!plan.buffers[other.buffer] || other.buffer == written.buffer) continue;
        const std::int64_t a = *plan.buffers[written.buffer], b = *plan.buffers[other.buffer];
        const bool apart = a + model.buffers[written.buffer].bytes() <= b ||
                           b + model.buffers[other.buffer].bytes() <= a;
        const auto& allowed = specs[out].may_replace;
        const bool may =
            std::find(allowed.begin(), allowed.end(), static_cast<int>(in)) != allowed.end();
        EXPECT_TRUE(apart || may) << model.steps[i].problem->text();
      }
    }
  }
}

}  // namespace
}  // namespace vitune
