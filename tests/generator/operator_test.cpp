// tests/generator/operator_test.cpp -- The interface that everything but an operator's own rooms
// goes by.
#include "generator/operator.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cstring>
#include <set>

#include "core/error.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/operator.h"
#include "tests/devices.h"

namespace vitune {
namespace {

constexpr const char* kTexts[] = {
    "attention bf16 b=2 h=3 nq=17 nk=33 d=64 layout=bnhd",
    "attention bf16 b=2 h=12 nq=197 nk=197 d=64 layout=packed",
    "attention fp16 b=4 h=6 hkv=2 nq=50 nk=49 d=32 layout=bhnd causal lse align=8",
    "attention bf16 b=8 h=4 nq=49 nk=49 d=32 layout=packed bias=bf16:1x4x49x49 mask=bool:2x1x49x49",
};

TEST(OperatorTest, EachIsFoundByTheFirstWordOfItsProblems) {
  std::set<std::string_view> names;
  for (const Operator* each : operators()) {
    EXPECT_TRUE(names.insert(each->name()).second) << each->name();
    EXPECT_EQ(find_operator(each->name()), each);
    for (const char c : each->name()) EXPECT_TRUE(std::islower(c) || c == '_') << each->name();
  }
  EXPECT_EQ(find_operator("no_operator"), nullptr);
}

TEST(OperatorTest, TextsNameTheirOperatorAndParseBack) {
  for (const char* const text : kTexts) {
    const ProblemPtr problem = parse_problem(text);
    EXPECT_EQ(problem->text(), text);
    EXPECT_EQ(&problem->op(), &attention());
    EXPECT_EQ(parse_problem(problem->text())->text(), text);
  }
  EXPECT_THROW(parse_problem(""), Error);
  EXPECT_THROW(parse_problem("convolution b=1"), Error);
}

TEST(OperatorTest, TensorsReachAsFarAsTheProblemSays) {
  for (const char* const text : kTexts) {
    const AttentionProblem p = AttentionProblem::parse(text);
    const auto tensors = attention().tensors(*ProblemPtr(p));
    ASSERT_EQ(tensors.size(), std::size_t{kAttentionTensors});
    EXPECT_EQ(tensors[kTensorQ].span(), p.q_extent());
    EXPECT_EQ(tensors[kTensorK].span(), p.k_extent());
    EXPECT_EQ(tensors[kTensorV].span(), p.v_extent());
    EXPECT_EQ(tensors[kTensorBias].span(), p.bias_extent());
    EXPECT_EQ(tensors[kTensorMask].span(), p.mask_extent());
    EXPECT_EQ(tensors[kTensorOut].span(), p.o_extent());
    EXPECT_EQ(tensors[kTensorLse].bytes(), p.lse ? 4 * p.batch * p.heads * p.nq : 0);
  }
}

// Every plan leaves exactly the pointers of the given tensors open.
TEST(OperatorTest, PlansLeaveTheirPointersOpen) {
  const DeviceInfo device = testing_support::h200_device();
  for (const Operator* each : operators()) {
    for (const char* const text : kTexts) {
      const ProblemPtr problem = parse_problem(text);
      if (&problem->op() != each) continue;
      const Config config = default_config(*problem, device);
      const auto kernels = each->kernels(*problem, config);
      const std::vector<int> resident(kernels.size(), 1);
      const LaunchPlan plan = each->plan(*problem, config, device, resident);
      const auto tensors = each->tensors(*problem);
      std::set<int> open;
      for (const KernelLaunch& launch : plan.kernels) {
        ASSERT_LT(launch.kernel, kernels.size());
        EXPECT_EQ(launch.shape.block[0], static_cast<unsigned>(kernels[launch.kernel].threads));
        EXPECT_EQ(launch.shape.shared_bytes, kernels[launch.kernel].shared_bytes);
        for (const PointerSlot& slot : launch.pointers) {
          ASSERT_LE(slot.at + sizeof(void*), launch.params.size());
          std::uintptr_t held = 1;
          std::memcpy(&held, launch.params.data() + slot.at, sizeof(held));
          EXPECT_EQ(held, 0u) << text;
          open.insert(slot.tensor);
        }
        for (const TensorMapSlot& map : launch.maps) EXPECT_LE(map.at + 128, launch.map_bytes);
      }
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_TRUE(!tensors[i].given || open.contains(static_cast<int>(i))) << text;
      }
    }
  }
}

TEST(OperatorTest, TheLastCaseIsTheProblemItselfWithNormalInputs) {
  const DeviceInfo device = testing_support::h200_device();
  for (const char* const text : kTexts) {
    const ProblemPtr problem = parse_problem(text);
    const Operator& op = problem->op();
    const auto cases = op.cases(*problem, default_config(*problem, device), device);
    ASSERT_FALSE(cases.empty());
    EXPECT_EQ(cases.back().problem->text(), problem->text());
    EXPECT_EQ(cases.back().draw, kNormalDraw);
    for (const JudgeCase& each : cases) {
      const auto tensors = op.tensors(*each.problem);
      std::set<int> filled;
      for (const Fill& fill : op.inputs(*each.problem, each.draw)) filled.insert(fill.tensor);
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const bool is_input = tensors[i].given && tensors[i].role == Role::kInput;
        EXPECT_EQ(filled.contains(static_cast<int>(i)), is_input)
            << each.problem->text() << ": " << tensors[i].name;
      }
    }
  }
}

TEST(OperatorTest, AnswersAreMadeForEachOutputAndForWhatEmptiesRows) {
  const ProblemPtr plain = parse_problem(kTexts[0]), with_lse = parse_problem(kTexts[2]);
  EXPECT_EQ(attention().answers(*plain), (std::vector<int>{kTensorOut, kTensorLse}));
  EXPECT_EQ(attention().answers(*with_lse), (std::vector<int>{kTensorOut, kTensorLse}));
  for (const Precision precision : {Precision::kExact, Precision::kPlain}) {
    const LaunchPlan plan = attention().answer(*plain, precision);
    ASSERT_EQ(plan.kernels.size(), 1u);
    EXPECT_LT(plan.kernels[0].kernel, attention().judge_entries().size());
  }
}

TEST(OperatorTest, AConfigOfBeforeATunableDoesWithoutIt) {
  const DeviceInfo device = testing_support::h200_device();
  const ProblemPtr problem = parse_problem(kTexts[1]);
  const ParameterSpace space = attention().space(*problem, device);
  Config old;
  for (const auto& [name, value] : Config{{"kWarps", 4}, {"kConstantKeys", 1}, {"kBlockN", 64}}) {
    old.set(name, value);
  }
  const Config whole = space.completed(old);
  EXPECT_EQ(whole.at("kResident"), 0);
  EXPECT_EQ(whole.at("kWarps"), 4);
  EXPECT_FALSE(space.completed(Config{}).find("kWarps"));
}

}  // namespace
}  // namespace vitune
