// tests/runtime/c_api_pointer_test.cpp -- Pointers of a call: null, misaligned, overlapping,
// foreign.
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "generator/attention/facts.h"
#include "runtime/context/pointer_check.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

constexpr const char* kBiased =
    "bf16 b=2 h=4 n=56 d=64 layout=bnhd bias=fp32:1x4x56x56 mask=bool:2x1x56x56 lse";
constexpr const char* kPlain = "bf16 b=2 h=4 n=56 d=64 layout=bnhd";

template <typename T>
T* moved(T* pointer, std::int64_t bytes) {
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(pointer));
  return reinterpret_cast<T*>(address + bytes);
}

class CApiPointerTest : public RuntimeTest {
 protected:
  // A context that can serve any problem of these tests at any alignment.
  void SetUp() override {
    RuntimeTest::SetUp();
    if (mock_ == nullptr) return;
    unsigned seed = 1;
    for (const char* text : {kBiased, kPlain}) {
      for (const std::int64_t alignment : {16, 8, 4, 2}) {
        AttentionProblem problem = AttentionProblem::parse(text);
        problem.alignment = alignment;
        const Config config = default_attention_config(problem, mock_device());
        put_binary(database(), make_kernel(problem, config, seed++));
      }
    }
    context_.emplace(options());
  }
  void TearDown() override {
    context_.reset();
    RuntimeTest::TearDown();
  }

  vitune_status call(const char* text, const Tensors& t) {
    return forward(*context_, desc_of(text), t);
  }

  std::optional<Context> context_;
};

TEST_F(CApiPointerTest, EachTensorIsNeeded) {
  struct Case {
    const char* name;
    void (*drop)(Tensors&);
  };
  const std::array cases = {Case{"q", [](Tensors& t) { t.q = nullptr; }},
                            Case{"k", [](Tensors& t) { t.k = nullptr; }},
                            Case{"v", [](Tensors& t) { t.v = nullptr; }},
                            Case{"out", [](Tensors& t) { t.out = nullptr; }},
                            Case{"bias", [](Tensors& t) { t.bias = nullptr; }},
                            Case{"mask", [](Tensors& t) { t.mask = nullptr; }},
                            Case{"lse", [](Tensors& t) { t.lse = nullptr; }}};
  const Tensors whole = tensors_of(kBiased);
  ASSERT_STATUS(VITUNE_OK, call(kBiased, whole));
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Tensors t = whole;
    c.drop(t);
    mock_->clear_log();
    EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, call(kBiased, t), c.name);
    EXPECT_EQ(calls_of("cuLaunchKernel"), 0);
  }
}

TEST_F(CApiPointerTest, WhatIsNotDescribedMustNotBeGiven) {
  const Tensors whole = tensors_of(kBiased);
  Tensors t = tensors_of(kPlain);
  ASSERT_STATUS(VITUNE_OK, call(kPlain, t));
  t.bias = whole.bias;
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, call(kPlain, t), "bias");
  t.bias = nullptr;
  t.mask = whole.mask;
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, call(kPlain, t), "mask");
  t.mask = nullptr;
  t.lse = whole.lse;
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, call(kPlain, t), "lse");
}

// Below the size of an element no kernel can read it.
TEST_F(CApiPointerTest, APointerBelowItsElementsAlignmentIsRefused) {
  struct Case {
    const char* name;
    std::vector<std::int64_t> by;
    void (*move)(Tensors&, std::int64_t);
  };
  const std::array cases = {
      Case{"q", {1, 15}, [](Tensors& t, std::int64_t by) { t.q = moved(t.q, by); }},
      Case{"k", {1, 3}, [](Tensors& t, std::int64_t by) { t.k = moved(t.k, by); }},
      Case{"v", {1, 15}, [](Tensors& t, std::int64_t by) { t.v = moved(t.v, by); }},
      Case{"out", {1, 3}, [](Tensors& t, std::int64_t by) { t.out = moved(t.out, by); }},
      Case{"bias", {1, 2, 3}, [](Tensors& t, std::int64_t by) { t.bias = moved(t.bias, by); }},
      Case{"lse", {1, 2, 3}, [](Tensors& t, std::int64_t by) { t.lse = moved(t.lse, by); }}};
  const Tensors whole = tensors_of(kBiased);
  for (const Case& c : cases) {
    for (const std::int64_t by : c.by) {
      SCOPED_TRACE(c.name + std::to_string(by));
      Tensors t = whole;
      c.move(t, by);
      EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, call(kBiased, t), c.name);
      EXPECT_THAT(vitune_last_error(), testing::ContainsRegex("align|multiple"));
    }
  }
}

// A pointer of less than 16 bytes gets a kernel whose accesses fit it.
TEST_F(CApiPointerTest, ALessAlignedPointerGetsAKernelThatReadsItRightly) {
  const AttentionProblem whole = AttentionProblem::parse(kBiased);
  struct Case {
    const char* name;
    void (*move)(Tensors&, std::int64_t);
  };
  const std::array cases = {
      Case{"q", [](Tensors& t, std::int64_t by) { t.q = moved(t.q, by); }},
      Case{"k", [](Tensors& t, std::int64_t by) { t.k = moved(t.k, by); }},
      Case{"v", [](Tensors& t, std::int64_t by) { t.v = moved(t.v, by); }},
      Case{"out", [](Tensors& t, std::int64_t by) { t.out = moved(t.out, by); }}};
  for (const Case& c : cases) {
    for (const std::int64_t by : {16, 8, 4, 2, 6, 24}) {
      SCOPED_TRACE(c.name + std::to_string(by));
      Tensors t = tensors_of(kBiased);
      c.move(t, by);
      mock_->clear_log();
      ASSERT_STATUS(VITUNE_OK, call(kBiased, t));
      AttentionProblem as_given = whole;
      as_given.alignment = std::min<std::int64_t>(by & -by, 16);
      const Config config = default_attention_config(as_given, mock_device());
      const auto launches = mock_->launches();
      ASSERT_EQ(launches.size(), 1u);
      const auto binary = Store::open(database(), Access::kReadOnly)
                              ->find_binary(make_kernel(as_given, config, 1).binary.kernel_key);
      ASSERT_TRUE(binary.has_value());
      EXPECT_EQ(launches[0].image, mock_image_id(binary->image.data(), binary->image.size()));
    }
  }
}

// The compiled kernel's widest access of bias and mask must fit their pointers.
TEST_F(CApiPointerTest, ABiasOrMaskIsNeverReadWiderThanItsPointerAllows) {
  const AttentionProblem whole = AttentionProblem::parse(kBiased);
  for (const bool of_mask : {false, true}) {
    for (const std::int64_t by : {8, 4, 12, 1, 2, 3}) {
      if (!of_mask && by % 4 != 0) continue;
      SCOPED_TRACE((of_mask ? "mask" : "bias") + std::to_string(by));
      Tensors t = tensors_of(kBiased);
      (of_mask ? t.mask : t.bias) = moved(of_mask ? t.mask : t.bias, by);
      mock_->clear_log();
      const vitune_status status = call(kBiased, t);
      if (of_mask && by % 2 != 0 && status == VITUNE_UNSUPPORTED) continue;
      ASSERT_EQ(status, VITUNE_OK) << vitune_last_error();
      const auto launches = mock_->launches();
      ASSERT_EQ(launches.size(), 1u);
      // Which of the stored kernels was it, and how wide does it read?
      bool found = false;
      for (const std::int64_t alignment : {16, 8, 4, 2}) {
        AttentionProblem candidate = whole;
        candidate.alignment = alignment;
        const Config config = default_attention_config(candidate, mock_device());
        const auto binary = Store::open(database(), Access::kReadOnly)
                                ->find_binary(make_kernel(candidate, config, 1).binary.kernel_key);
        ASSERT_TRUE(binary.has_value());
        if (mock_image_id(binary->image.data(), binary->image.size()) != launches[0].image) {
          continue;
        }
        found = true;
        const AttentionFacts facts = attention_facts(candidate);
        const std::int64_t width = of_mask ? facts.mask_vector : facts.bias_vector * 4;
        EXPECT_EQ(by % width, 0) << "reads " << width << " bytes at once";
        break;
      }
      EXPECT_TRUE(found);
    }
  }
}

TEST_F(CApiPointerTest, AnOutputThatTouchesAnythingElseIsRefused) {
  const std::int64_t bytes = 2 * 4 * 56 * 64 * 2;  // of q, k, v and out each
  const Tensors whole = tensors_of(kBiased);
  struct Case {
    const char* what;
    void (*move)(Tensors&, std::int64_t bytes);
  };
  const std::array cases = {
      Case{"out is q", [](Tensors& t, std::int64_t) { t.out = const_cast<void*>(t.q); }},
      Case{"out is v", [](Tensors& t, std::int64_t) { t.out = const_cast<void*>(t.v); }},
      Case{"out ends in k",
           [](Tensors& t, std::int64_t n) { t.out = const_cast<void*>(moved(t.k, 16 - n)); }},
      Case{"out begins in q's last bytes",
           [](Tensors& t, std::int64_t n) { t.out = const_cast<void*>(moved(t.q, n - 16)); }},
      Case{"out in the bias", [](Tensors& t, std::int64_t) { t.out = const_cast<void*>(t.bias); }},
      Case{"out in the mask", [](Tensors& t, std::int64_t) { t.out = const_cast<void*>(t.mask); }},
      Case{"lse in out", [](Tensors& t, std::int64_t) { t.lse = static_cast<float*>(t.out); }},
      Case{"lse in q",
           [](Tensors& t, std::int64_t n) {
             t.lse = static_cast<float*>(const_cast<void*>(moved(t.q, n / 2)));
           }},
      Case{
          "lse in the bias",
          [](Tensors& t, std::int64_t) { t.lse = static_cast<float*>(const_cast<void*>(t.bias)); }},
  };
  ASSERT_STATUS(VITUNE_OK, call(kBiased, whole));
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Tensors t = whole;
    c.move(t, bytes);
    EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, call(kBiased, t), "overlap|share memory");
  }
}

TEST_F(CApiPointerTest, NeighboursThatOnlyTouchAreFine) {
  const std::int64_t bytes = 2 * 4 * 56 * 64 * 2;
  Tensors t = tensors_of(kPlain);
  void* const block = buffer(8 * bytes);
  t.q = block;
  t.out = moved(block, bytes);
  t.k = t.v = moved(block, 2 * bytes);
  EXPECT_STATUS(VITUNE_OK, call(kPlain, t)) << "inputs may be one another";
}

// q, k, v and out as the four slices of one [b, n, 4, h, d] buffer interleave without a common
// byte.
TEST_F(CApiPointerTest, AnOutputThatIsASliceOfThePackedBufferIsFine) {
  AttentionProblem problem = AttentionProblem::parse(kPlain);
  const TensorStrides strides{.batch = 56 * 4 * 4 * 64, .head = 64, .row = 4 * 4 * 64};
  problem.q = problem.k = problem.v = problem.o = strides;
  problem.validate();
  put_binary(database(),
             make_kernel(problem, default_attention_config(problem, mock_device()), 90));
  const Context context = make_context();
  void* const block = buffer(2 * 56 * 4 * 4 * 64 * 2);
  const std::int64_t slice = 4 * 64 * 2;
  Tensors t{block,
            moved(block, slice),
            moved(block, 2 * slice),
            nullptr,
            nullptr,
            moved(block, 3 * slice),
            nullptr};
  EXPECT_STATUS(VITUNE_OK, forward(context, describe(problem), t));
  t.out = moved(block, slice);
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, forward(context, describe(problem), t),
                 "overlap|share memory");
  t.out = moved(block, 3 * slice - 16);
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, forward(context, describe(problem), t),
                 "overlap|share memory");
}

TEST_F(CApiPointerTest, AddressesAtTheEndOfTheSpaceDoNotWrapAround) {
  const Tensors whole = tensors_of(kPlain);
  Tensors t = whole;
  t.out = reinterpret_cast<void*>(~std::uintptr_t{0} - 15);
  EXPECT_EQ(call(kPlain, t), VITUNE_INVALID_ARGUMENT);
  t = whole;
  t.q = reinterpret_cast<void*>(~std::uintptr_t{0} - 31);
  EXPECT_EQ(call(kPlain, t), VITUNE_INVALID_ARGUMENT);
}

TEST_F(CApiPointerTest, AFirstCallWithAPointerOfAnotherDeviceOrOfTheHostIsRefused) {
  char on_host[64];
  struct Case {
    const char* what;
    const void* pointer;
    vitune_status status;
  };
  const std::array cases = {
      Case{"another device", buffer(1 << 20, 1), VITUNE_NO_DEVICE},
      Case{"pinned host memory", buffer(1 << 20, 0, 1), VITUNE_INVALID_ARGUMENT},
      Case{"the host", on_host, VITUNE_INVALID_ARGUMENT}};
  const Tensors whole = tensors_of(kPlain);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const Context context = make_context();
    Tensors t = whole;
    t.k = reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(c.pointer) &
                                        ~std::uintptr_t{15});
    EXPECT_REFUSED(c.status, forward(context, desc_of(kPlain), t), "k");
    EXPECT_EQ(calls_of("cuLaunchKernel"), 0);
    EXPECT_STATUS(VITUNE_OK, forward(context, desc_of(kPlain), whole))
        << "a bad pointer is a fault of the call, not of the problem";
    mock_->clear_log();
  }
}

TEST_F(CApiPointerTest, AWorkspaceIsAskedAboutAsTensorsAre) {
  const auto driver = CudaDriver::open();
  const Footprint no_tensors;
  const auto check = [&](const void* at) {
    return check_with_driver(*driver, 0, no_tensors, {}, reinterpret_cast<std::uintptr_t>(at));
  };
  char on_host[64];
  EXPECT_EQ(check(nullptr), VITUNE_OK);
  EXPECT_EQ(check(buffer(1 << 20)), VITUNE_OK);
  EXPECT_EQ(check(on_host), VITUNE_INVALID_ARGUMENT);
  EXPECT_EQ(check(buffer(1 << 20, 1)), VITUNE_NO_DEVICE);
}

TEST_F(CApiPointerTest, CheckedPointersAreAskedAboutOnEveryCall) {
  vitune_context_options strict = options();
  strict.check_pointers = 1;
  const Context context(strict);
  const Tensors whole = tensors_of(kPlain);
  for (int i = 0; i < 3; ++i) {
    mock_->clear_log();
    EXPECT_STATUS(VITUNE_OK, forward(context, desc_of(kPlain), whole));
    EXPECT_GE(calls_of("cuPointerGetAttribute"), 4);
  }
  Tensors t = whole;
  t.v = buffer(1 << 20, 1);
  EXPECT_REFUSED(VITUNE_NO_DEVICE, forward(context, desc_of(kPlain), t), "v");
}

TEST_F(CApiPointerTest, AFailedCallLaunchesNothingAndIsCounted) {
  const Tensors whole = tensors_of(kPlain);
  ASSERT_STATUS(VITUNE_OK, call(kPlain, whole));
  Tensors t = whole;
  t.q = nullptr;
  const std::uint64_t before = stats(*context_).failed_calls;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(call(kPlain, t), VITUNE_INVALID_ARGUMENT);
  EXPECT_EQ(stats(*context_).failed_calls, before + 5);
  EXPECT_EQ(stats(*context_).default_calls, 1u);
}

}  // namespace
}  // namespace vitune::test
