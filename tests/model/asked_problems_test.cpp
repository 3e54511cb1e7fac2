// tests/model/asked_problems_test.cpp -- What is to be tuned for a file: each form of its norms.
// SPDX-License-Identifier: Apache-2.0
#include "model/asked_problems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/model/model_files.h"

namespace vitune {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// A layer, and one with a norm in front that reads its result.
nlohmann::ordered_json two_layers() {
  return nlohmann::ordered_json::parse(R"json({
    "inputs": [{"name": "in", "type": "bf16", "shape": ["B", 8, 64]}],
    "outputs": [{"name": "out", "of": "t1"}],
    "values": [{"name": "t0", "type": "bf16", "shape": ["B", 8, 64]},
               {"name": "t1", "type": "bf16", "shape": ["B", 8, 32]}],
    "nodes": [{"op": "linear", "at": "a", "x": "in", "w": "a.weight", "out": "t0"},
              {"op": "linear", "at": "b", "x": "t0", "w": "b.weight", "out": "t1",
               "norm": {"kind": "layer", "weight": "norm.weight", "bias": "norm.bias", "eps": 1e-6}}]})json");
}

std::string file_of_two_layers() {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"vitune.format", "1"}, {"vitune.graph", two_layers().dump()}};
  std::int64_t end = 0;
  const auto add = [&](const char* name, std::vector<std::int64_t> shape) {
    std::int64_t bytes = 2;
    for (const std::int64_t extent : shape) bytes *= extent;
    header[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  };
  add("a.weight", {64, 64});
  add("b.weight", {32, 64});
  add("norm.weight", {64});
  add("norm.bias", {64});
  return test::bytes_of(header.dump(), test::data_of(header));
}

class AskedProblemsTest : public ::testing::Test {
 protected:
  AskedProblemsTest()
      : file_(load_model_file(folder_.write(file_of_two_layers()))),
        graph_(read_model_graph(file_.text("vitune.graph"), "a test")) {
    require_sound(file_, graph_, 1);
  }
  // The texts of first choices, or of second ones.
  std::vector<std::string> texts(std::int64_t batch, bool is_second) const {
    std::vector<std::string> found;
    for (const AskedProblem& each : session_problems(file_, graph_, batch)) {
      EXPECT_EQ(each.calls, 1) << each.problem->text();
      if (each.is_second == is_second) found.push_back(each.problem->text());
    }
    return found;
  }

  test::ModelFolder folder_;
  const ModelContainer file_;
  const ModelGraph graph_;
};

TEST_F(AskedProblemsTest, BothFormsOfANormAreAskedTheOneThatIsTakenUntunedFirst) {
  for (const std::int64_t batch : {1, 1000}) {
    SCOPED_TRACE(batch);
    const bool is_folded_first = batch == 1;  // few rows
    const auto folded = texts(batch, !is_folded_first), apart = texts(batch, is_folded_first);
    EXPECT_EQ(folded.size(), 2u);
    EXPECT_THAT(folded, Contains(HasSubstr("norm=moments")));
    EXPECT_EQ(apart.size(), 3u);
    EXPECT_THAT(apart, Contains(HasSubstr("norm bf16")));
  }
}

TEST_F(AskedProblemsTest, ABatchThatTheGraphDoesNotTakeIsRefused) {
  EXPECT_THROW(session_problems(file_, graph_, 0), Error);
}

TEST(CountedProblemsTest, EachIsThereOnceInTheOrderOfItsFirstCall) {
  const ProblemPtr one = parse_problem("norm bf16 m=8 d=64"),
                   other = parse_problem("norm bf16 m=9 d=64");
  const auto counted = counted_problems({one, other, one});
  ASSERT_EQ(counted.size(), 2u);
  EXPECT_EQ(counted[0].problem->text(), one->text());
  EXPECT_EQ(counted[0].calls, 2);
  EXPECT_EQ(counted[1].calls, 1);
}

}  // namespace
}  // namespace vitune
