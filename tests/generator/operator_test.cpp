// tests/generator/operator_test.cpp -- The interface that everything but an operator's own rooms
// goes by.
// SPDX-License-Identifier: Apache-2.0
#include "generator/operator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <set>

#include "core/error.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/operator.h"
#include "generator/config_family.h"
#include "tests/devices.h"

namespace vitune {
namespace {

constexpr const char* kTexts[] = {
    "attention bf16 b=2 h=3 nq=17 nk=33 d=64 layout=bnhd",
    "attention bf16 b=2 h=12 nq=197 nk=197 d=64 layout=packed",
    "attention fp16 b=4 h=6 hkv=2 nq=50 nk=49 d=32 layout=bhnd causal lse align=8",
    "attention bf16 b=8 h=4 nq=49 nk=49 d=32 layout=packed bias=bf16:1x4x49x49 mask=bool:2x1x49x49",
    "group_norm bf16 n=2 c=320 l=4096 g=32 nhwc weight bias silu",
    "group_norm fp32 n=3 c=21 l=35 g=7 weight mish eps=0.001 align=8",
    "attention_backward fp16 b=4 h=4 hkv=2 nq=9 nk=16 d=40 layout=bnhd causal scale=0.5 "
    "bias=fp32:2x4x9x16 mask=bool:1x1x1x16 align=8 do=bhnd dk=@1920,40,120 dbias=bf16",
    "group_norm fp16 n=1 c=512 l=65536 g=32 bias params=fp32",
    "linear bf16 m=392 n=768 k=588 bias act=gelu scale params=fp32 x=@592 w=@600 residual=@776 "
    "period=196 out=fp32@800 rows=196+1 aux=@784 align=8",
    "window_attention fp16 b=2 image=50x53 window=7x5 shift=3x2 h=3 d=40 layout=interleaved "
    "padding "
    "pad_first scale=0.5 bias=fp32:88x3x35x35",
    "window_attention_backward fp16 b=2 image=20x23 window=7x5 shift=3x2 h=3 d=40 "
    "layout=interleaved padding pad_first scale=0.5 bias=fp32:15x3x35x35 dbias=1x3x35x35",
    "packed_attention fp16 tokens=20 longest=17 sequences=2 tokens_k=70 longest_k=64 h=4 hkv=2 "
    "d=40 q=240x80 causal lse scale=0.5 lengths=3,17 lengths_k=64,6",
    "linear fp16 m=64 n=768 k=3072 norm=layer bias wt residual",
    "linear_weight_grad fp16 m=170 n=100 k=83 bias scale params=fp32 add dy=@104 x=@88 out=fp32 "
    "align=8",
    "linear_weight_grad bf16 m=12608 n=3072 k=768 bias",
    "map n=6304x768 a=bf16@2304x1 b=u8@0x1 h=fp32@1x0 x=where(b,mul(a,h),0) out=bf16 "
    "align=8",
    "map n=9 over=5x7 c=bool@0+7x1 e=fp32@35+1x5 x=where(c,e,-1e+30) softmax y=mul(r,2) "
    "out=fp32@35+1x5",
    "map n=32x768 over=196 a=bf16@151296x1+768 x=a mean out=fp16 align=4",
    "norm bf16 m=197 d=768 weight bias",
    "norm fp32 m=5 d=197 rms weight params=bf16 x=@200 residual=@199 out=bf16@256 sum "
    "second=fp16@201 "
    "stats eps=0.001 align=4",
    "norm_backward bf16 m=12608 d=768 weight bias params=fp32 x=fp32 residual second=bf16 "
    "factor=197 stats",
    "norm_backward fp16 m=6 d=197 rms weight frozen bias params=bf16 dy=@200 x=fp32@201 "
    "residual=@202 dx=@203 second=bf16@204 factor=2 eps=0.001 align=4",
};

// A problem of each operator there is, and these.
std::vector<ProblemPtr> all_problems() {
  std::vector<ProblemPtr> problems;
  for (const Operator* each : operators()) problems.push_back(each->parse(each->example()));
  for (const char* const text : kTexts) problems.push_back(parse_problem(text));
  return problems;
}

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
  for (const char* const text : kTexts) EXPECT_EQ(parse_problem(text)->text(), text);
  for (const ProblemPtr& problem : all_problems()) {
    EXPECT_TRUE(problem->text().starts_with(problem->operator_name() + ' ')) << problem->text();
    EXPECT_TRUE(is_same(*parse_problem(problem->text()), *problem)) << problem->text();
    EXPECT_EQ(&parse_problem(problem->text())->op(), &problem->op());
  }
  EXPECT_THROW(parse_problem(""), Error);
  EXPECT_THROW(parse_problem("convolution b=1"), Error);
}

TEST(OperatorTest, ATextOfNoOperatorIsToldWhichThereAre) {
  const auto said = [](const char* text) {
    try {
      parse_problem(text);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  constexpr char kNames[] = "begins with its operator's name: attention, ";
  for (const char* const text : {"layer_norm bf16 m=100 d=768", "conv", "bf16 norm m=100 d=768"}) {
    EXPECT_THAT(said(text), testing::HasSubstr(kNames)) << text;
  }
  for (const char* const text : {"bf16 b=1 h=1 n=0 d=64", "b=1 h=1 n=8", "norm bf16 m=1", ""}) {
    EXPECT_THAT(said(text), testing::Not(testing::HasSubstr(kNames))) << text;
    EXPECT_NE(said(text), "");
  }
  for (const Operator* each : operators()) {
    const std::string name(each->name());
    EXPECT_THAT(said(name.c_str()), testing::StartsWith("'" + name + "' alone is no problem"));
  }
}

TEST(OperatorTest, AProblemIsLikeItself) {
  const DeviceInfo device = testing_support::h200_device();
  for (const ProblemPtr& problem : all_problems()) {
    const Operator& op = problem->op();
    const ProblemPtr same = parse_problem(problem->text());
    EXPECT_EQ(op.kernel_class(*problem), op.kernel_class(*same)) << problem->text();
    EXPECT_EQ(op.distance(*problem, *same), 0) << problem->text();
    EXPECT_TRUE(op.is_load_alike(*problem, *same, device)) << problem->text();
    EXPECT_FALSE(op.is_before(*problem, *same)) << problem->text();
    EXPECT_EQ(op.work_form(*problem), op.work_form(*same)) << problem->text();
    EXPECT_EQ(op.work_hash(*problem), op.work_hash(*same)) << problem->text();
    EXPECT_GT(op.flops(*problem), 0) << problem->text();
    EXPECT_GT(op.min_bytes(*problem), 0) << problem->text();
    EXPECT_TRUE(floor_of(op.demand(*problem, device), device, Residency::kCold));
  }
}

TEST(OperatorTest, DefaultsAreInTheSpaceAndHaveASourceWithTheirKernels) {
  const DeviceInfo device = testing_support::h200_device();
  for (const ProblemPtr& problem : all_problems()) {
    const Operator& op = problem->op();
    const ParameterSpace space = op.space(*problem, device);
    const std::vector<Config> defaults = op.defaults(*problem, device, space);
    ASSERT_FALSE(defaults.empty()) << problem->text();
    for (const Config& config : defaults) {
      EXPECT_EQ(space.explain(config), std::nullopt) << problem->text() << ' ' << config.text();
      EXPECT_EQ(space.explain(op.carried(config, *problem, *problem, space)), std::nullopt);
      const CompileRequest request = op.request(*problem, config, device.arch());
      EXPECT_EQ(request.source.main, op.source(*problem, config));
      const auto kernels = op.kernels(*problem, config);
      ASSERT_FALSE(kernels.empty());
      EXPECT_EQ(request.entry, kernels.front().entry);
      for (const KernelNeeds& kernel : kernels) {
        EXPECT_NE(request.source.main.find(kernel.entry), std::string::npos) << kernel.entry;
        EXPECT_GT(kernel.threads, 0);
        EXPECT_LE(kernel.shared_bytes, device.shared_per_block);
      }
    }
  }
}

// A recording that names the digest of these files is of these kernels: whatever the config, and
// whichever file changed.
TEST(OperatorTest, TemplatesAreAllThatKernelsOfAnyConfigInclude) {
  const DeviceInfo device = testing_support::h200_device();
  for (const ProblemPtr& problem : all_problems()) {
    const Operator& op = problem->op();
    std::set<std::string_view> covered;
    for (const EmbeddedFile& file : op.templates().headers) covered.insert(file.path);
    for (const EmbeddedFile& file : embedded_templates()) {
      const bool is_own = file.path.starts_with(std::string(op.name()) + '/');
      EXPECT_TRUE(!is_own || covered.contains(file.path)) << op.name() << ": " << file.path;
    }
    const std::vector<Config> configs = op.space(*problem, device).enumerate();
    for (std::size_t i = 0; i < configs.size(); i += configs.size() / 40 + 1) {
      for (const EmbeddedFile& file : op.request(*problem, configs[i], "sm_90").source.headers) {
        EXPECT_TRUE(covered.contains(file.path)) << configs[i].text() << ": " << file.path;
      }
    }
  }
}

TEST(OperatorTest, TheDigestOfTheTemplatesSeesEachOfTheirFiles) {
  for (const Operator* op : operators()) {
    const Source source = op->templates();
    for (std::size_t i = 0; i < source.headers.size(); ++i) {
      Source changed = source;
      changed.headers[i].text = "// another\n";
      EXPECT_NE(changed.digest(), source.digest()) << source.headers[i].path;
    }
  }
}

TEST(OperatorTest, TensorsReachAsFarAsTheProblemSays) {
  for (const char* const text : kTexts) {
    if (&parse_problem(text)->op() != &attention()) continue;
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
  for (const ProblemPtr& problem : all_problems()) {
    const Operator& op = problem->op();
    const Config config = default_config(*problem, device);
    const auto kernels = op.kernels(*problem, config);
    const std::vector<int> resident(kernels.size(), 1);
    const LaunchPlan plan = op.plan(*problem, config, device, resident);
    const auto tensors = op.tensors(*problem);
    std::set<int> open;
    for (const KernelLaunch& launch : plan.kernels) {
      ASSERT_LT(launch.kernel, kernels.size());
      EXPECT_EQ(launch.shape.block[0], static_cast<unsigned>(kernels[launch.kernel].threads));
      EXPECT_EQ(launch.shape.shared_bytes, kernels[launch.kernel].shared_bytes);
      for (const PointerSlot& slot : launch.pointers) {
        ASSERT_LE(slot.at + sizeof(void*), launch.params.size());
        ASSERT_LT(slot.tensor, static_cast<int>(tensors.size()));
        std::uintptr_t held = 1;
        std::memcpy(&held, launch.params.data() + slot.at, sizeof(held));
        EXPECT_EQ(held, 0u) << problem->text();
        open.insert(slot.tensor);
      }
      for (const TensorMapSlot& map : launch.maps) EXPECT_LE(map.at + 128, launch.map_bytes);
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_TRUE(!tensors[i].given || open.contains(static_cast<int>(i))) << problem->text();
    }
  }
}

TEST(OperatorTest, TheLastCaseIsTheProblemItselfWithNormalInputs) {
  const DeviceInfo device = testing_support::h200_device();
  for (const ProblemPtr& problem : all_problems()) {
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

TEST(OperatorTest, ConfigsOfAClassAreTriedOnTheSameCases) {
  for (const DeviceInfo& device : {testing_support::h200_device(), *architecture_limits("sm_80")}) {
    for (const ProblemPtr& problem : all_problems()) {
      const Operator& op = problem->op();
      std::map<std::int64_t, std::vector<std::string>> first;
      std::set<std::vector<std::string>> lists;
      const std::vector<Config> configs = op.space(*problem, device).enumerate();
      for (std::size_t i = 0; i < configs.size(); i += configs.size() / 60 + 1) {
        const auto of_class = op.cases_class(*problem, configs[i], device);
        if (!of_class) continue;
        std::vector<std::string> list;
        for (const JudgeCase& each : op.cases(*problem, configs[i], device)) {
          list.push_back(each.problem->text() + ' ' + each.draw);
        }
        EXPECT_EQ(first.try_emplace(*of_class, list).first->second, list) << configs[i].text();
        lists.insert(list);
      }
      EXPECT_LE(lists.size(), first.size());
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

// Answers go to what the judge compares; outputs are written where the problem has them.
TEST(OperatorTest, AnswerPlansReachEveryOutput) {
  for (const ProblemPtr& problem : all_problems()) {
    const Operator& op = problem->op();
    const auto tensors = op.tensors(*problem);
    const int count = static_cast<int>(tensors.size());
    const auto slots = [&](Precision precision) {
      std::set<int> reached;
      for (const KernelLaunch& launch : op.answer(*problem, precision).kernels) {
        EXPECT_LT(launch.kernel, op.judge_entries().size());
        for (const PointerSlot& slot : launch.pointers) reached.insert(slot.tensor);
      }
      return reached;
    };
    const std::set<int> exact = slots(Precision::kExact), plain = slots(Precision::kPlain);
    for (const int place : op.answers(*problem)) {
      EXPECT_TRUE(exact.contains(count + place)) << problem->text();
    }
    for (int i = 0; i < count; ++i) {
      const TensorSpec& tensor = tensors[static_cast<std::size_t>(i)];
      const bool is_output = tensor.given && tensor.role == Role::kOutput;
      EXPECT_TRUE(!is_output || plain.contains(i)) << problem->text() << ": " << tensor.name;
    }
  }
}

TEST(OperatorTest, EachConfigIsOfOneFamilyWhichTellsItsNameAndDefaults) {
  const DeviceInfo device = testing_support::h200_device();
  for (const ProblemPtr& problem : all_problems()) {
    const Operator& op = problem->op();
    const ParameterSpace space = op.space(*problem, device);
    std::set<Config> all;
    for (const Family* family : op.families()) {
      for (const Config& config : space.enumerate(family->name())) {
        EXPECT_TRUE(all.insert(config).second) << config.text();
        const auto owners =
            std::ranges::count_if(op.families(), [&](auto* each) { return each->owns(config); });
        EXPECT_EQ(owners, 1) << config.text();
        EXPECT_EQ(&op.family_of(config), family) << config.text();
      }
      if (family->refusal(*problem, device)) continue;
      for (const Config& config : family->defaults(*problem, device, space)) {
        EXPECT_EQ(&op.family_of(config), family) << config.text();
        EXPECT_EQ(space.explain(config), std::nullopt) << config.text();
      }
    }
    EXPECT_EQ(all.size(), space.enumerate().size()) << problem->text();
  }
}

TEST(OperatorTest, ShownConfigsBeginWithTheirFamilyAndReadBackAsTheyAreStored) {
  const DeviceInfo device = testing_support::h200_device();
  for (const ProblemPtr& problem : all_problems()) {
    const Operator& op = problem->op();
    const std::vector<Config> configs = op.space(*problem, device).enumerate();
    for (std::size_t i = 0; i < configs.size(); i += configs.size() / 60 + 1) {
      const Config& config = configs[i];
      const std::string shown = shown_text(op, config);
      EXPECT_EQ(shown, "family=" + op.family(config) + ' ' + config.text());
      EXPECT_EQ(config_from_text(op, shown).text(), config.text());
      EXPECT_EQ(config_from_text(op, config.text()).text(), config.text());
      EXPECT_THROW(config_from_text(op, "family=of_none " + config.text()), Error) << shown;
    }
  }
}

// The family is what the source includes, and whether keys stay.
TEST(OperatorTest, AttentionsFamiliesAreItsTemplatesWithTheirSchedules) {
  const DeviceInfo device = testing_support::h200_device();
  std::set<std::string> families;
  for (const char* const text : {"attention bf16 b=64 h=12 nq=197 nk=197 d=64 layout=packed",
                                 "attention bf16 b=2 h=12 nq=197 nk=197 d=64 layout=packed",
                                 "attention bf16 b=2048 h=3 nq=49 nk=49 d=32 layout=packed"}) {
    const ProblemPtr problem = parse_problem(text);
    for (const Config& config : attention().space(*problem, device).enumerate()) {
      const std::string family = attention().family(config);
      if (!families.insert(family).second) continue;
      const std::string name = family.substr(0, family.find('.'));
      const std::string included = "#include \"attention/forward_" + name + ".cuh\"";
      EXPECT_NE(attention().source(*problem, config).find(included), std::string::npos) << family;
      EXPECT_EQ(family.substr(name.size()), config.at("kResident") ? ".resident" : ".streaming");
    }
  }
  EXPECT_EQ(families, (std::set<std::string>{"sm80.resident", "sm80.streaming", "sm90.resident",
                                             "sm90.streaming", "sm90_pipelined.resident",
                                             "sm90_pipelined.streaming"}));
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
