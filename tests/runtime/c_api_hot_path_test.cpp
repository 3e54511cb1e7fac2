// tests/runtime/c_api_hot_path_test.cpp -- What a prepared call must not do, and that nothing
// grows.
// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>

#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

class CApiHotPathTest : public RuntimeTest {
 protected:
  // The work of this thread in `count` calls after a few to warm up.
  template <typename Call>
  static CallCounts counts_of(Call&& call, int count = 1000) {
    for (int i = 0; i < 20; ++i) call();
    start_counting();
    for (int i = 0; i < count; ++i) call();
    return stop_counting();
  }
  static void expect_nothing(const CallCounts& counts) {
    EXPECT_EQ(counts.allocations, 0u);
    EXPECT_EQ(counts.locks, 0u);
    EXPECT_EQ(counts.variables, 0u);
    EXPECT_EQ(counts.system_calls, 0u);
  }
};

// The counters themselves: a test that counts nothing could not fail.
TEST_F(CApiHotPathTest, TheCountersSeeWhatTheLibraryDoes) {
  if (!counting_works()) GTEST_SKIP() << "a sanitizer has taken the place of malloc";
  promote(database(), make_kernel(kVitB, 1));
  const Context context = make_context();
  const vitune_attention_desc desc = desc_of(kVitB);
  start_counting();
  ASSERT_STATUS(VITUNE_OK, vitune_prepare(context.get(), &desc));
  const CallCounts counts = stop_counting();
  EXPECT_GT(counts.allocations, 10u);
  EXPECT_GT(counts.locks, 0u);
  start_counting();
  const Context another = make_context();
  EXPECT_GT(stop_counting().variables, 0u);
}

TEST_F(CApiHotPathTest, APreparedCallAllocatesNothingAndTakesNoLock) {
  if (!counting_works()) GTEST_SKIP() << "a sanitizer has taken the place of malloc";
  const char* const untuned = "bf16 b=2 h=3 n=50 d=32";
  promote(database(), make_kernel(kVitB, 1));
  put_binary(database(), default_kernel(untuned, 2));
  const Context context = make_context();
  for (const char* text : {kVitB, untuned}) {
    SCOPED_TRACE(text);
    const vitune_attention_desc desc = desc_of(text);
    const Tensors t = tensors_of(text);
    ASSERT_STATUS(VITUNE_OK, forward(context, desc, t));
    mock_->set_recording(false);
    for (CuContextTag* current : {mock_->primary(0), static_cast<CuContextTag*>(nullptr)}) {
      mock_->set_current(current);
      expect_nothing(counts_of([&] { forward(context, desc, t); }));
    }
  }
}

TEST_F(CApiHotPathTest, ARefusedCallAllocatesNothingEither) {
  if (!counting_works()) GTEST_SKIP() << "a sanitizer has taken the place of malloc";
  promote(database(), make_kernel(kVitB, 1));
  const Context context = make_context();
  const vitune_attention_desc desc = desc_of(kVitB);
  Tensors t = tensors_of(kVitB);
  ASSERT_STATUS(VITUNE_OK, forward(context, desc, t));
  mock_->set_recording(false);
  t.q = nullptr;
  expect_nothing(counts_of([&] { EXPECT_EQ(forward(context, desc, t), VITUNE_INVALID_ARGUMENT); }));
}

// A problem that cannot be served is refused again at the cost of a hit.
TEST_F(CApiHotPathTest, AFailureThatIsRememberedCostsNoMoreThanAHit) {
  if (!counting_works()) GTEST_SKIP() << "a sanitizer has taken the place of malloc";
  const Context context = make_context();
  const vitune_attention_desc desc = desc_of(kVitB);
  const Tensors t = tensors_of(kVitB);
  ASSERT_NE(forward(context, desc, t), VITUNE_OK);
  mock_->set_recording(false);
  mock_->set_current(mock_->primary(0));
  const CallCounts counts = counts_of([&] { forward(context, desc, t); });
  EXPECT_EQ(counts.allocations, 0u);
  EXPECT_EQ(counts.system_calls, 0u);
}

TEST_F(CApiHotPathTest, AKnownProblemInACaptureAllocatesNothing) {
  if (!counting_works()) GTEST_SKIP() << "a sanitizer has taken the place of malloc";
  promote(database(), make_kernel(kVitB, 1));
  const Context context = make_context();
  const vitune_attention_desc desc = desc_of(kVitB);
  const Tensors t = tensors_of(kVitB);
  ASSERT_STATUS(VITUNE_OK, forward(context, desc, t));
  mock_->set_capturing(kStream, true);
  mock_->set_recording(false);
  expect_nothing(counts_of([&] { forward(context, desc, t); }));
}

// Bytes in use by the allocator of this process.
std::size_t bytes_in_use() { return mallinfo2().uordblks; }

TEST_F(CApiHotPathTest, NothingGrowsWithCalls) {
  if (!counting_works()) GTEST_SKIP() << "a sanitizer has taken the place of malloc";
  const char* const untuned = "bf16 b=2 h=3 n=50 d=32";
  promote(database(), make_kernel(kVitB, 1));
  put_binary(database(), default_kernel(untuned, 2));
  const Context context = make_context();
  mock_->set_recording(false);
  const auto round = [&] {
    for (const char* text : {kVitB, untuned}) {
      const vitune_attention_desc desc = desc_of(text);
      const Tensors t{reinterpret_cast<void*>(0x7f0000000000),
                      reinterpret_cast<void*>(0x7f0100000000),
                      reinterpret_cast<void*>(0x7f0200000000),
                      nullptr,
                      nullptr,
                      reinterpret_cast<void*>(0x7f0300000000),
                      nullptr};
      forward(context, desc, t);
      EXPECT_EQ(vitune_prepare(context.get(), &desc), VITUNE_OK);
    }
  };
  const auto upkeep = [&] {
    query(context, desc_of(kVitB));
    EXPECT_EQ(vitune_context_refresh(context.get(), nullptr), VITUNE_OK);
    EXPECT_EQ(vitune_context_flush(context.get()), VITUNE_OK);
  };
  buffer(1);
  mock_->add_range(0x7f0000000000, std::size_t{1} << 40, 0, 2);
  for (int i = 0; i < 20; ++i) round(), upkeep();
  const std::size_t before = bytes_in_use();
  for (int i = 0; i < 10000; ++i) round();
  for (int i = 0; i < 200; ++i) upkeep();
  const std::size_t after = bytes_in_use();
  EXPECT_LE(after, before + 16384) << "20,000 launches and 200 refreshes";
}

}  // namespace
}  // namespace vitune::test
