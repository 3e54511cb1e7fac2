// tests/emulator/pass_check_test.cpp -- Passes of model files, run, timed and judged step by step:
// mistakes that are put into one are found where they are.
// SPDX-License-Identifier: Apache-2.0
#include "cli/passes/pass_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/images/npy.h"
#include "cli/passes/judge_tools.h"
#include "cli/passes/pass_times.h"
#include "core/env.h"
#include "runtime/context/settings.h"
#include "tests/cli/command_fixture.h"
#include "tests/model/model_files.h"

namespace vitune::testing::pass_check_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr std::int64_t kBatch = 2;
constexpr std::uint16_t kSixteen = 0x4180;  // in bf16
const std::atomic<bool> kGoOn{false};

class PassCheckTest : public CommandTest {
 protected:
  PassCheckTest() : path_(folder_.write(test::drawn_small_file())) {
    Environment environment = read_environment();
    environment.database = (directory() / "kernels.db").string();
    context_ =
        std::make_unique<RuntimeContext>(read_settings(nullptr, environment, VITUNE_COMMAND));
    model_ = std::make_unique<LoadedModel>(*context_, path_);
    tools_.emplace(0, std::vector<std::string>{VITUNE_COMMAND, "--worker=compile"});
  }

  // A session whose operators have their judges.
  std::unique_ptr<ModelSession> session(const MemoryPlanner& planner = plan_memory) {
    auto session = std::make_unique<ModelSession>(*model_, kBatch, false, planner);
    std::set<const Operator*> judges;
    for (const ModelStep& step : session->bound().steps) judges.insert(&step.problem->op());
    tools_->add_judges({judges.begin(), judges.end()});
    return session;
  }
  // The first step of a module, or that many behind it.
  static std::size_t step_at(const ModelSession& session, const std::string& at) {
    const auto& steps = session.bound().steps;
    const auto found = std::ranges::find_if(
        steps, [&](const ModelStep& step) { return step.at == at && !step.is_copy; });
    return static_cast<std::size_t>(found - steps.begin());
  }
  // Where a tensor of the step lies.
  static CuPointer tensor(const ModelSession& session, std::size_t step, const std::string& name) {
    const Problem& problem = *session.bound().steps[step].problem;
    const std::vector<TensorSpec> specs = problem.op().tensors(problem);
    const auto found = std::ranges::find(specs, name, &TensorSpec::name);
    return reinterpret_cast<CuPointer>(
        session.tensors(step)[static_cast<std::size_t>(found - specs.begin())]);
  }
  // The pass, where `mistake` is made behind the step of that module.
  template <typename Mistake>
  PassVerdict with_mistake(ModelSession& session, std::size_t at, const Mistake& mistake) {
    const auto launch = [&](std::size_t step, CuStreamTag* stream) {
      session.launch_step(step, stream);
      if (step == at) mistake(stream);
    };
    return PassCheck(session, tools_->tools(), launch).check(1, kGoOn);
  }
  void write(CuPointer address, std::uint16_t bits) const {
    tools_->tools().stream.synchronize();
    const CudaDriver& driver = context_->driver();
    driver.check(driver.api().memcpy_htod(address, &bits, sizeof(bits)), "cuMemcpyHtoD");
  }
  std::uint16_t read(CuPointer address) const {
    tools_->tools().stream.synchronize();
    std::uint16_t bits = 0;
    const CudaDriver& driver = context_->driver();
    driver.check(driver.api().memcpy_dtoh(&bits, address, sizeof(bits)), "cuMemcpyDtoH");
    return bits;
  }
  // The steps that are wrong.
  static std::vector<std::size_t> wrong(const PassVerdict& verdict) {
    std::vector<std::size_t> steps;
    for (const StepVerdict& each : verdict.steps) {
      if (!each.why.empty()) steps.push_back(each.step);
    }
    return steps;
  }

  test::ModelFolder folder_;
  const fs::path path_;
  std::unique_ptr<RuntimeContext> context_;
  std::unique_ptr<LoadedModel> model_;
  std::optional<JudgeTools> tools_;
};

TEST_F(PassCheckTest, ARightPassIsFoundRightAndItsErrorsAreBelowTheirBounds) {
  const auto pass = session();
  const PassVerdict verdict = PassCheck(*pass, tools_->tools()).check(1, kGoOn);
  EXPECT_TRUE(verdict.is_right()) << verdict.whole;
  ASSERT_EQ(verdict.steps.size(), pass->bound().steps.size());
  for (const StepVerdict& step : verdict.steps) EXPECT_LE(step.part_of_bound(), 1) << step.step;
  EXPECT_GT(verdict.steps[step_at(*pass, "qkv")].error.max_bound, 0);
}

TEST_F(PassCheckTest, AWrongResultIsFoundAtItsStepAndNotAtThoseBehindIt) {
  const auto pass = session();
  const std::size_t attn = step_at(*pass, "attn");
  const PassVerdict verdict =
      with_mistake(*pass, attn, [&](CuStreamTag*) { write(tensor(*pass, attn, "out"), kSixteen); });
  EXPECT_EQ(wrong(verdict), std::vector{attn});
  EXPECT_THAT(verdict.steps[attn].why, HasSubstr("erred by"));
  EXPECT_GT(verdict.steps[attn].part_of_bound(), 1);
}

TEST_F(PassCheckTest, AStepThatWritesNothingIsFoundThoughThePassBeforeLeftItsResults) {
  const auto pass = session();
  const std::size_t attn = step_at(*pass, "attn");
  const auto launch = [&](std::size_t step, CuStreamTag* stream) {
    if (step != attn) pass->launch_step(step, stream);
  };
  const PassVerdict verdict = PassCheck(*pass, tools_->tools(), launch).check(1, kGoOn);
  ASSERT_FALSE(verdict.is_right());
  EXPECT_EQ(wrong(verdict).front(), attn);
  EXPECT_THAT(verdict.steps[attn].why, HasSubstr("unwritten"));
}

TEST_F(PassCheckTest, AWriteIntoAValueThatIsNeededLaterIsFoundAtTheStepThatMakesIt) {
  const auto pass = session();
  const std::size_t attn = step_at(*pass, "attn"), embed = step_at(*pass, "embed");
  const PassVerdict verdict = with_mistake(
      *pass, attn, [&](CuStreamTag*) { write(tensor(*pass, embed, "out"), kSixteen); });
  EXPECT_EQ(wrong(verdict), std::vector{attn});
  EXPECT_THAT(verdict.steps[attn].why, HasSubstr("which is needed later"));
}

TEST_F(PassCheckTest, AWriteIntoTheCallersInputIsFound) {
  const auto pass = session();
  const std::size_t head = step_at(*pass, "head");
  const PassVerdict verdict =
      with_mistake(*pass, head, [&](CuStreamTag*) { write(pass->address(0), kSixteen); });
  EXPECT_EQ(wrong(verdict), std::vector{head});
  EXPECT_THAT(verdict.steps[head].why, HasSubstr("bytes of the input 'pixels'"));
}

TEST_F(PassCheckTest, APlanThatPutsAResultOntoAValueThatIsNeededIsFound) {
  const MemoryPlanner overlapping = [](const BoundModel& bound,
                                       const std::vector<std::int64_t>& scratch_bytes) {
    MemoryPlan plan = plan_memory(bound, scratch_bytes);
    const auto place = [&](const std::string& name) -> std::optional<std::int64_t>& {
      const auto found = std::ranges::find(bound.buffers, name, &ModelBuffer::name);
      return plan.buffers[static_cast<std::size_t>(found - bound.buffers.begin())];
    };
    place("t2") = place("t0");  // attention's result; the residual of the norm behind it
    return plan;
  };
  const auto pass = session(overlapping);
  const std::size_t attn = step_at(*pass, "attn");
  const PassVerdict verdict = PassCheck(*pass, tools_->tools()).check(1, kGoOn);
  ASSERT_FALSE(verdict.is_right());
  EXPECT_EQ(wrong(verdict).front(), attn);
  EXPECT_THAT(verdict.steps[attn].why, HasSubstr("which is needed later"));
}

TEST_F(PassCheckTest, AGraphThatGivesOtherBitsThanItsStepsIsFound) {
  const auto pass = session();
  const std::size_t head = step_at(*pass, "head");
  const PassVerdict verdict = with_mistake(*pass, head, [&](CuStreamTag*) {
    const CuPointer out = tensor(*pass, head, "out");
    write(out, read(out) ^ 1u);  // less than a rounding
  });
  EXPECT_EQ(wrong(verdict), std::vector<std::size_t>{});
  EXPECT_THAT(verdict.whole, HasSubstr("other bits"));
}

TEST_F(PassCheckTest, AWriteIntoWeightsIsFound) {
  const auto pass = session();
  const std::size_t head = step_at(*pass, "head"), embed = step_at(*pass, "embed");
  const PassVerdict verdict =
      with_mistake(*pass, head, [&](CuStreamTag*) { write(tensor(*pass, embed, "w"), kSixteen); });
  EXPECT_EQ(wrong(verdict), std::vector<std::size_t>{});
  EXPECT_THAT(verdict.whole, HasSubstr("weights"));
}

TEST_F(PassCheckTest, APassAndItsStepsAreTimed) {
  const auto pass = session();
  const PassTimes times = time_pass(*pass, kGoOn);
  EXPECT_GE(times.pass.samples, 7);
  EXPECT_GT(times.pass.low_us, 0);
  EXPECT_GT(times.host_us, 0);
  ASSERT_EQ(times.steps_us.size(), pass->bound().steps.size());
  EXPECT_GT(std::ranges::min(times.steps_us), 0);
}

TEST_F(PassCheckTest, TheCommandTimesAFileAndSaysWhatItsTimeIsSpentWith) {
  const CommandResult result = run({"bench", path_.string(), "--batch", "1,3", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.json()["command"], "model_bench");
  EXPECT_EQ(result.json()["device"]["name"], tools_->tools().device.name);
  const auto passes = result.json()["passes"];
  ASSERT_EQ(passes.size(), 2u);
  EXPECT_EQ(passes[1]["batch"], 3);
  EXPECT_EQ(passes[1]["winner_share"], 0);
  EXPECT_GT(passes[1]["arena_bytes"], passes[0]["arena_bytes"]);
  EXPECT_EQ(passes[0]["steps"].size(), 11u);
  EXPECT_GE(passes[0]["steps"][0]["us"], passes[0]["steps"][1]["us"]);
}

TEST_F(PassCheckTest, TheCommandChecksAFileAndNamesTheWorstNode) {
  const CommandResult result = run({"verify", "--model", path_.string(), "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto pass = result.json()["passes"][0];
  EXPECT_EQ(pass["batch"], 1);
  EXPECT_EQ(pass["right"], true);
  EXPECT_EQ(pass["checked"].size(), 11u);
  EXPECT_NE(pass["worst"], "");
  EXPECT_THAT(result.err, HasSubstr("11 steps checked, 0 wrong"));
}

TEST_F(PassCheckTest, TheCommandTunesWhatAFileAsksAndServesItThen) {
  const CommandResult tuned = run({"tune", "--model", path_.string(), "--batch", "1", "--operator",
                                   "norm", "--budget", "1", "-j", "1", "--json"});
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_EQ(tuned.json()["results"].size(), 2u);
  const auto shown = run({"models", path_.string(), "--json"}).json();
  for (const auto& problem : shown["problems"]) {
    const bool is_norm = problem["operator"] == "norm";
    EXPECT_EQ(problem["served"], is_norm ? "exact" : problem["served"]);
  }
  const CommandResult bench = run({"bench", path_.string(), "--batch", "1", "--json"});
  EXPECT_GT(bench.json()["passes"][0]["winner_share"], 0);
}

TEST_F(PassCheckTest, TheCommandRunsAFileAndSaysWhatWasWaitedFor) {
  const std::string given = (directory() / "images.npy").string();
  NpyWriter images(given, {3, 16, 16});
  for (int i = 0; i < 5; ++i) images.add(std::vector<float>(3 * 16 * 16, 0.1f * float(i)));
  images.finish();
  const std::vector<std::string> arguments = {"run", path_.string(), given, "--batch",
                                              "2",   "--top",        "3"};
  const CommandResult plain = run(arguments);
  ASSERT_EQ(plain.status, 0) << plain.err;
  EXPECT_THAT(plain.err, HasSubstr("5 of 5, "));
  EXPECT_THAT(plain.err, ContainsRegex("images/s; waited for inputs [0-9]+ %, copies [0-9]+ %, "
                                       "the GPU [0-9]+ %"));

  folder_.write(test::drawn_small_file(R"(["ant", "bee", "cat", "dog", "eel", "fox"])"));
  std::vector<std::string> with_json = arguments;
  with_json.push_back("--json");
  const auto document = run(with_json).json();
  ASSERT_EQ(document["results"].size(), 5u);
  const std::vector<std::string> names = {"ant", "bee", "cat", "dog", "eel", "fox", "6", "7"};
  for (const auto& result : document["results"]) {
    ASSERT_EQ(result["largest"].size(), 3u);
    for (const auto& each : result["largest"]) {
      EXPECT_EQ(each["label"], names.at(each["place"].get<std::size_t>()));
    }
  }
  EXPECT_GT(document["images_s"], 0);
  EXPECT_GT(document["seconds"]["gpu"], 0);
}

TEST_F(PassCheckTest, WhatDoesNotGoWithAFileIsRefused) {
  const std::string file = path_.string();
  const struct {
    std::vector<std::string> arguments;
    std::string said;
  } cases[] = {
      {{"bench", file, "--dtype", "fp16"}, "--dtype does not go with a model file"},
      {{"bench", file, file}, "name one model file"},
      {{"bench", file, "--device", "0,1"}, "--device of a model file"},
      {{"bench", file, "--batch", "0"}, "--batch"},
      {{"verify", file, "--objective", "warm"}, "--objective does not go with a model file"},
      {{"verify", "--model", file, "bf16 b=1 h=1 n=21 d=16"}, "name one model file"},
      {{"verify", (directory() / "none.safetensors").string()}, "none.safetensors"},
      {{"tune", file, "--as", "drop-in"}, "--as does not go with a model file"},
      {{"tune", file, "--operator", "group_norm"}, "no call of"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(::testing::PrintToString(c.arguments));
    const CommandResult result = run(c.arguments);
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.err, HasSubstr(c.said));
  }
}

}  // namespace
}  // namespace vitune::testing::pass_check_test
