// tests/model/bind_test.cpp -- From nodes to steps: problems, copies, constants, and one arena.
// SPDX-License-Identifier: Apache-2.0
#include "model/bind.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

#include "core/error.h"
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
  BoundModel bind(const ordered_json& json, std::int64_t batch) const {
    const ModelContainer file = open(json);
    const ModelGraph graph = read_model_graph(file.text("vitune.graph"), "a file");
    require_sound(file, graph, batch);
    return bind_model(BatchTensors(file, graph, batch), graph, file);
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

TEST_F(BindTest, AGroupNormIsRefusedAndAReductionToOneNumberIsNot) {
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
  graph["values"].push_back({{"name", "t10"}, {"type", "bf16"}, {"shape", {"B", 64, 16}}});
  graph["nodes"].push_back(
      {{"op", "group_norm"},
       {"at", "groups"},
       {"groups", 2},
       {"eps", 1e-5},
       {"x", {{"of", "t5"}, {"extents", {"B", 64, 16}}, {"strides", {1024, 1, 64}}}},
       {"out", "t10"}});
  try {
    bind(graph, 2);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no kernel for it"));
  }
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
