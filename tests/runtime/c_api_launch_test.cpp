// tests/runtime/c_api_launch_test.cpp -- What reaches the driver: parameters, shapes, captures.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "generator/attention/facts.h"
#include "generator/attention/tensor_maps.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

using testing::ElementsAre;

constexpr const char* kProblems[] = {
    "bf16 b=2 h=12 n=197 d=64",
    "fp16 b=3 h=5 nq=33 nk=77 d=80 layout=bhnd causal scale=0.25",
    "bf16 b=4 h=8 hkv=2 n=64 d=32 layout=packed lse",
    "bf16 b=8 h=3 n=49 d=32 bias=bf16:4x3x49x49",
    "fp16 b=6 h=2 n=50 d=48 layout=bnhd bias=fp32:1x2x50x50 mask=bool:3x1x50x50 lse",
    "bf16 b=64 h=16 nq=1 nk=729 d=72 layout=bnhd",
    "bf16 b=64 h=12 n=1025 d=64",
};

bool same_view(const AttentionView& a, const AttentionView& b) {
  return a.batch == b.batch && a.head == b.head && a.row == b.row;
}
bool same_view(const AttentionScoreView& a, const AttentionScoreView& b) {
  return a.batch == b.batch && a.head == b.head && a.row == b.row && a.key == b.key &&
         a.batches == b.batches;
}

void expect_same(const AttentionParams& a, const AttentionParams& b) {
  EXPECT_EQ(a.q, b.q);
  EXPECT_EQ(a.k, b.k);
  EXPECT_EQ(a.v, b.v);
  EXPECT_EQ(a.o, b.o);
  EXPECT_EQ(a.lse, b.lse);
  EXPECT_EQ(a.bias, b.bias);
  EXPECT_EQ(a.mask, b.mask);
  EXPECT_TRUE(same_view(a.q_view, b.q_view));
  EXPECT_TRUE(same_view(a.k_view, b.k_view));
  EXPECT_TRUE(same_view(a.v_view, b.v_view));
  EXPECT_TRUE(same_view(a.o_view, b.o_view));
  EXPECT_TRUE(same_view(a.bias_view, b.bias_view));
  EXPECT_TRUE(same_view(a.mask_view, b.mask_view));
  EXPECT_THAT((std::array{a.batch, a.heads, a.heads_per_kv, a.queries, a.keys, a.items}),
              ElementsAre(b.batch, b.heads, b.heads_per_kv, b.queries, b.keys, b.items));
  EXPECT_EQ(a.scale, b.scale);
}

CuPointer address(const void* pointer) { return reinterpret_cast<CuPointer>(pointer); }

CuPointer mapped_address(const unsigned char (&map)[sizeof(AttentionTensorMaps::q)]) {
  CuPointer address = 0;
  std::memcpy(&address, map, sizeof(address));
  return address;
}

// With as many threads as a mock kernel's registers leave room for.
Config mapped_config(const AttentionProblem& problem) {
  Config config = default_attention_config(problem, mock_device());
  config.set("kWarps", 8);
  config.set("kSpareRows", 0);
  return config;
}

class CApiLaunchTest : public RuntimeTest {
 protected:
  // A launch is what the generator says for this problem and config with these pointers.
  void expect_launch(const MockLaunch& launch, const StoredKernel& kernel, const Tensors& t,
                     int resident) {
    EXPECT_EQ(launch.image, kernel.image_id());
    const Config& config = kernel.config;
    const auto shape = attention_launch_shape(kernel.problem, config, mock_device(), resident);
    EXPECT_THAT(launch.shape.grid, testing::ElementsAreArray(shape.grid));
    EXPECT_THAT(launch.shape.block, testing::ElementsAreArray(shape.block));
    EXPECT_EQ(launch.shape.shared_bytes, shape.shared_bytes);
    EXPECT_EQ(launch.shape.waits_for_earlier, shape.waits_for_earlier);
    AttentionPointers pointers{address(t.q),   address(t.k),    address(t.v),   address(t.out),
                               address(t.lse), address(t.bias), address(t.mask)};
    expect_same(launch.params, attention_params(kernel.problem, config, pointers, shape));
    if (!reads_tensor_maps(config)) return;
    EXPECT_THAT((std::array{mapped_address(launch.maps.q), mapped_address(launch.maps.k),
                            mapped_address(launch.maps.v)}),
                ElementsAre(pointers.q, pointers.k, pointers.v));
    const bool biased = AttentionShape(kernel.problem, config).bias_boxes();
    EXPECT_TRUE(!biased || mapped_address(launch.maps.bias) == pointers.bias);
  }
};

TEST_F(CApiLaunchTest, ALaunchIsWhatTheGeneratorSays) {
  for (const int resident : {1, 2}) {
    mock_->set_resident_ctas(resident);
    unsigned seed = 1;
    for (const char* text : kProblems) {
      SCOPED_TRACE(text);
      const StoredKernel kernel = make_kernel(text, seed++);
      promote(database(), kernel);
      const Context context = make_context();
      for (int call = 0; call < 2; ++call) {
        const Tensors t = tensors_of(text);
        mock_->clear_log();
        ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(text), t));
        const auto launches = mock_->launches();
        ASSERT_EQ(launches.size(), 1u);
        EXPECT_EQ(launches[0].stream, kStream);
        expect_launch(launches[0], kernel, t, resident);
      }
    }
  }
}

// The config of a persistent kernel: its grid is what fits on the device at once.
TEST_F(CApiLaunchTest, APersistentKernelsGridFollowsFromTheDriversOccupancy) {
  const AttentionProblem problem = AttentionProblem::parse("bf16 b=512 h=3 n=49 d=32");
  std::optional<Config> persistent;
  for (const Config& config : attention_space(problem, mock_device()).enumerate()) {
    if (config.at("kPersistent") == 1) persistent = config;
  }
  ASSERT_TRUE(persistent.has_value());
  const StoredKernel kernel = make_kernel(problem, *persistent, 5);
  promote(database(), kernel);
  for (const int resident : {1, 3}) {
    mock_->set_resident_ctas(resident);
    mock_->clear_log();
    const Context context = make_context();
    const Tensors t = tensors_of(problem);
    ASSERT_STATUS(VITUNE_OK, forward(context, describe(problem), t));
    ASSERT_EQ(mock_->launches().size(), 1u);
    expect_launch(mock_->launches()[0], kernel, t, resident);
  }
}

// Tensor maps are made once, with the problem's plan; a call only says where its tensors are.
TEST_F(CApiLaunchTest, AKernelWithTensorMapsGetsThoseOfItsCallsTensors) {
  for (const char* text :
       {"bf16 b=64 h=12 n=197 d=64", "bf16 b=64 h=12 n=304 d=64 bias=bf16:1x12x304x304"}) {
    SCOPED_TRACE(text);
    mock_->clear_log();
    const AttentionProblem problem = AttentionProblem::parse(text);
    Config mapped = mapped_config(problem);
    if (problem.bias) mapped.set("kResident", 0);
    ASSERT_TRUE(reads_tensor_maps(mapped));
    ASSERT_EQ(AttentionShape(problem, mapped).bias_boxes(), problem.bias.has_value());
    const StoredKernel kernel = make_kernel(problem, mapped, 5);
    promote(database(), kernel);
    const Context context = make_context();
    const Tensors first = tensors_of(problem);
    Tensors second = first;
    std::swap(second.q, second.k);
    if (problem.bias) second.bias = first.q;
    ASSERT_STATUS(VITUNE_OK, forward(context, describe(problem), first));
    const auto encoded = calls_of("cuTensorMapEncodeTiled");
    ASSERT_STATUS(VITUNE_OK, forward(context, describe(problem), second));
    const auto launches = mock_->launches();
    ASSERT_EQ(launches.size(), 2u);
    expect_launch(launches[0], kernel, first, 1);
    expect_launch(launches[1], kernel, second, 1);
    EXPECT_EQ(calls_of("cuTensorMapEncodeTiled"), encoded);
  }
}

// The driver encodes only where a context is current; a thread of the caller's may have none.
TEST_F(CApiLaunchTest, TensorMapsAreMadeInThreadsWithoutAContext) {
  const AttentionProblem problem = AttentionProblem::parse("bf16 b=64 h=12 n=197 d=64");
  promote(database(), make_kernel(problem, mapped_config(problem), 5));
  const Context context = make_context();
  const auto desc = describe(problem);
  std::thread([&] { EXPECT_STATUS(VITUNE_OK, vitune_prepare(context.get(), &desc)); }).join();
  Config better = mapped_config(problem);
  better.set("kStages", better.at("kStages") == 2 ? 3 : 2);
  const StoredKernel kernel = make_kernel(problem, better, 4);
  promote(database(), kernel);
  std::int32_t changed = 0;
  std::thread([&] {
    EXPECT_STATUS(VITUNE_OK, vitune_context_refresh(context.get(), &changed));
  }).join();
  EXPECT_EQ(changed, 1);
  const Tensors t = tensors_of(problem);
  ASSERT_STATUS(VITUNE_OK, forward(context, desc, t));
  ASSERT_EQ(mock_->launches().size(), 1u);
  expect_launch(mock_->launches()[0], kernel, t, 1);
}

TEST_F(CApiLaunchTest, ATensorMapThatTheDriverRefusesLaunchesNothing) {
  const AttentionProblem problem = AttentionProblem::parse("bf16 b=64 h=12 n=197 d=64");
  promote(database(), make_kernel(problem, mapped_config(problem), 5));
  const Context context = make_context();
  const Tensors t = tensors_of(problem);
  ASSERT_STATUS(VITUNE_OK, forward(context, describe(problem), t));
  mock_->fail("cuTensorMapReplaceAddress", 1, 1);
  EXPECT_REFUSED(VITUNE_DEVICE_ERROR, forward(context, describe(problem), t),
                 "^cuTensorMapReplaceAddress failed with .*; look whether");
  EXPECT_EQ(mock_->launches().size(), 1u);
  ASSERT_STATUS(VITUNE_OK, forward(context, describe(problem), t));
}

TEST_F(CApiLaunchTest, AnyStreamIsPassedOn) {
  promote(database(), make_kernel(kVitB, 1));
  const Context context = make_context();
  const Tensors t = tensors_of(kVitB);
  for (const std::uintptr_t stream : {0u, 1u, 2u, 0x7000u}) {
    mock_->clear_log();
    ASSERT_STATUS(VITUNE_OK,
                  forward(context, desc_of(kVitB), t, reinterpret_cast<CuStreamTag*>(stream)));
    ASSERT_EQ(mock_->launches().size(), 1u);
    EXPECT_EQ(mock_->launches()[0].stream, reinterpret_cast<CuStreamTag*>(stream));
  }
}

TEST_F(CApiLaunchTest, APreparedCallIsOneLaunch) {
  promote(database(), make_kernel(kVitB, 1));
  const Context context = make_context();
  const Tensors t = tensors_of(kVitB);
  ASSERT_STATUS(VITUNE_OK, vitune_prepare(context.get(), std::array{desc_of(kVitB)}.data()));
  ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), t));
  for (int i = 0; i < 3; ++i) {
    mock_->set_current(mock_->primary(0));
    mock_->clear_log();
    ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), t));
    EXPECT_THAT(call_names(), ElementsAre("cuCtxGetCurrent", "cuLaunchKernel"));
  }
  for (CuContextTag* foreign : {static_cast<CuContextTag*>(nullptr), mock_->primary(1)}) {
    mock_->set_current(foreign);
    mock_->clear_log();
    ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), t));
    EXPECT_THAT(call_names(), ElementsAre("cuCtxGetCurrent", "cuCtxPushCurrent_v2",
                                          "cuLaunchKernel", "cuCtxPopCurrent_v2"));
    EXPECT_EQ(mock_->current(), foreign);
  }
}

// The same problem with its descriptor written in other words is no new problem.
TEST_F(CApiLaunchTest, AProblemIsKnownAgainHoweverItIsDescribed) {
  promote(database(), make_kernel(kVitB, 1));
  const Context context = make_context();
  const Tensors t = tensors_of(kVitB);
  vitune_attention_desc desc = desc_of(kVitB);
  ASSERT_STATUS(VITUNE_OK, forward(context, desc, t));
  mock_->clear_log();
  desc.kv_heads = 0;
  desc.dv = desc.d;
  desc.scale = 0;
  desc.q_bytes = 1 << 30;
  ASSERT_STATUS(VITUNE_OK, forward(context, desc, t));
  desc.alignment = 2;
  ASSERT_STATUS(VITUNE_OK, forward(context, desc, t)) << "a call looks at its pointers instead";
  EXPECT_EQ(calls_of("cuModuleLoadData"), 0);
  EXPECT_EQ(mock_->launches().size(), 2u);
  EXPECT_EQ(stats(context).exact_calls, 3u);
}

// Each description has a place of its own in the table of calls; a new winner must reach them all.
TEST_F(CApiLaunchTest, ANewWinnerServesEveryDescriptionOfItsProblem) {
  const StoredKernel standard = default_kernel(kVitB, 1), winner = make_kernel(kVitB, 2);
  put_binary(database(), standard);
  const Context context = make_context();
  const Tensors t = tensors_of(kVitB);
  const vitune_attention_desc spelled_out = desc_of(kVitB);
  vitune_attention_desc usual = spelled_out;
  usual.scale = 0;
  ASSERT_NE(spelled_out.scale, 0);
  const auto image_run = [&](const vitune_attention_desc& desc) {
    mock_->clear_log();
    EXPECT_STATUS(VITUNE_OK, forward(context, desc, t));
    return mock_->launches().at(0).image;
  };
  for (int call = 0; call < 2; ++call) {
    EXPECT_EQ(image_run(spelled_out), standard.image_id());
    EXPECT_EQ(image_run(usual), standard.image_id());
  }
  promote(database(), winner);
  std::int32_t changed = 0;
  ASSERT_STATUS(VITUNE_OK, vitune_context_refresh(context.get(), &changed));
  EXPECT_EQ(changed, 1);
  EXPECT_EQ(image_run(spelled_out), winner.image_id());
  EXPECT_EQ(image_run(usual), winner.image_id());
  EXPECT_EQ(calls_of("cuPointerGetAttribute"), 0) << "the pointers were asked about before";
}

// Rows of unused tensors' strides and neighbours in the table do not mix problems up.
TEST_F(CApiLaunchTest, ManyProblemsKeepTheirOwnParameters) {
  std::vector<StoredKernel> kernels;
  for (unsigned n = 1; n <= 60; ++n) {
    kernels.push_back(own_kernel(
        AttentionProblem::parse("bf16 b=2 h=3 n=" + std::to_string(n + 30) + " d=32"), n));
    promote(database(), kernels.back());
  }
  const Context context = make_context();
  for (int round = 0; round < 2; ++round) {
    for (const StoredKernel& kernel : kernels) {
      const Tensors t = tensors_of(kernel.problem);
      mock_->clear_log();
      ASSERT_STATUS(VITUNE_OK, forward(context, describe(kernel.problem), t));
      ASSERT_EQ(mock_->launches().size(), 1u);
      EXPECT_EQ(mock_->launches()[0].image, kernel.image_id());
      EXPECT_EQ(mock_->launches()[0].params.keys, kernel.problem.nk);
    }
  }
  EXPECT_EQ(stats(context).problems, 60u);
  EXPECT_EQ(stats(context).exact_calls, 120u);
}

class CApiCaptureTest : public RuntimeTest {};

TEST_F(CApiCaptureTest, WhileAStreamIsCapturedAPreparedProblemIsLaunchedAndNothingElse) {
  promote(database(), make_kernel(kVitB, 1));
  const Context context = make_context();
  const Tensors t = tensors_of(kVitB);
  const vitune_attention_desc desc = desc_of(kVitB);
  ASSERT_STATUS(VITUNE_OK, vitune_prepare(context.get(), &desc));
  mock_->set_current(mock_->primary(0));
  mock_->set_capturing(kStream, true);
  mock_->clear_log();
  // The very first call of the problem, so that its pointers were never looked at.
  ASSERT_STATUS(VITUNE_OK, forward(context, desc, t));
  ASSERT_STATUS(VITUNE_OK, forward(context, desc, t));
  for (const std::string& name : call_names()) {
    EXPECT_THAT(name, testing::AnyOf("cuCtxGetCurrent", "cuStreamIsCapturing", "cuLaunchKernel"));
  }
  EXPECT_EQ(calls_of("cuLaunchKernel"), 2);
  EXPECT_EQ(mock_->broken_captures(), 0);
}

TEST_F(CApiCaptureTest, AnUnpreparedProblemIsRefusedAndTheCaptureGoesOn) {
  promote(database(), make_kernel(kVitB, 1));
  const Context context = make_context();
  const Tensors t = tensors_of(kVitB);
  const vitune_attention_desc desc = desc_of(kVitB);
  for (const bool foreign : {false, true}) {
    mock_->set_current(foreign ? nullptr : mock_->primary(0));
    mock_->set_capturing(kStream, true);
    mock_->clear_log();
    EXPECT_REFUSED(VITUNE_NOT_PREPARED, forward(context, desc, t), "prepare");
    for (const std::string& name : call_names()) {
      EXPECT_THAT(name, testing::AnyOf("cuStreamIsCapturing", "cuCtxGetCurrent",
                                       "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"));
    }
    EXPECT_EQ(mock_->broken_captures(), 0);
    mock_->set_capturing(kStream, false);
  }
  EXPECT_STATUS(VITUNE_OK, forward(context, desc, t)) << "the refusal is not remembered";
}

// Another thread's capture in the default mode forbids loading to all, unless they ask for more.
TEST_F(CApiCaptureTest, PreparingBesideACaptureElsewhereDoesNotBreakIt) {
  promote(database(), make_kernel(kVitB, 1));
  Context context = make_context();
  const vitune_attention_desc desc = desc_of(kVitB);
  mock_->set_capturing(reinterpret_cast<CuStreamTag*>(0x6000), true);
  EXPECT_STATUS(VITUNE_OK, vitune_prepare(context.get(), &desc));
  EXPECT_STATUS(VITUNE_OK, forward(context, desc, tensors_of(kVitB)));
  EXPECT_EQ(query(context, desc).outcome, VITUNE_EXACT);
  EXPECT_EQ(mock_->broken_captures(), 0);
  EXPECT_EQ(mock_->capture_mode(), 0);
  mock_->set_capturing(reinterpret_cast<CuStreamTag*>(0x6000), false);
}

TEST_F(CApiCaptureTest, CheckedPointersDoNotDisturbACapture) {
  promote(database(), make_kernel(kVitB, 1));
  vitune_context_options strict = options();
  strict.check_pointers = 1;
  const Context context(strict);
  const vitune_attention_desc desc = desc_of(kVitB);
  ASSERT_STATUS(VITUNE_OK, vitune_prepare(context.get(), &desc));
  mock_->set_capturing(kStream, true);
  EXPECT_STATUS(VITUNE_OK, forward(context, desc, tensors_of(kVitB)));
  EXPECT_EQ(mock_->broken_captures(), 0);
}

// A broken capture is the caller's; the library must not load into it either.
TEST_F(CApiCaptureTest, AStreamThatCannotSayIsNotLoadedInto) {
  promote(database(), make_kernel(kVitB, 1));
  const Context context = make_context();
  mock_->fail("cuStreamIsCapturing", 1, 906);
  EXPECT_NE(forward(context, desc_of(kVitB), tensors_of(kVitB)), VITUNE_OK);
  EXPECT_EQ(calls_of("cuModuleLoadData"), 0);
}

TEST_F(CApiCaptureTest, KernelsStayLoadedForGraphsUntilDestroy) {
  promote(database(), make_kernel(kVitB, 1), 20);
  Context context = make_context();
  const Tensors t = tensors_of(kVitB);
  ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), t));
  StoredKernel better = make_kernel(kVitB, 2);
  better.config = other_config(better.problem, 3);
  better = make_kernel(better.problem, better.config, 2);
  promote(database(), better, 10);
  std::int32_t changed = -1;
  ASSERT_STATUS(VITUNE_OK, vitune_context_refresh(context.get(), &changed));
  EXPECT_EQ(changed, 1);
  EXPECT_EQ(mock_->live().modules, 2);
  EXPECT_EQ(calls_of("cuModuleUnload"), 0);
  context.destroy();
  EXPECT_EQ(mock_->live().modules, 0);
}

}  // namespace
}  // namespace vitune::test
