// tests/runtime/c_api_threads_test.cpp -- Many threads on one context: one load, no waiting on
// hits.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>
#include <barrier>
#include <future>

#include "tests/patience.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

using namespace std::chrono_literals;

class CApiThreadsTest : public RuntimeTest {
 protected:
  void wait_for_load() {
    ASSERT_TRUE(soon([this] { return mock_->loads_waiting() > 0; }));
    ASSERT_EQ(mock_->loads_waiting(), 1);
  }
};

TEST_F(CApiThreadsTest, AllThreadsOnOneNewProblemLoadItOnce) {
  constexpr int kThreads = 256;
  promote(database(), make_kernel(kVitB, 1));
  const Context context = make_context();
  const vitune_attention_desc desc = desc_of(kVitB);
  const Tensors t = tensors_of(kVitB);
  mock_->set_load_delay(50ms);
  EXPECT_THAT(calls_at_once(context, desc, t, kThreads), testing::Each(VITUNE_OK));
  EXPECT_EQ(calls_of("cuModuleLoadData"), 1);
  EXPECT_EQ(calls_of("cuLaunchKernel"), kThreads);
  EXPECT_EQ(stats(context).exact_calls, static_cast<std::uint64_t>(kThreads));
  EXPECT_EQ(stats(context).kernels_loaded, 1u);
  EXPECT_EQ(stats(context).problems, 1u);
}

TEST_F(CApiThreadsTest, AFailingLoadIsTriedOnceForAllThatWait) {
  constexpr int kThreads = 64;
  promote(database(), make_kernel(kVitB, 1));
  const Context context = make_context();
  const vitune_attention_desc desc = desc_of(kVitB);
  const Tensors t = tensors_of(kVitB);
  mock_->set_load_delay(20ms);
  mock_->fail("cuModuleLoadData", 1, 209, 1000);
  EXPECT_THAT(calls_at_once(context, desc, t, kThreads), testing::Each(testing::Ne(VITUNE_OK)));
  EXPECT_EQ(calls_of("cuModuleLoadData"), 1);
  EXPECT_EQ(stats(context).failed_calls, static_cast<std::uint64_t>(kThreads));
}

TEST_F(CApiThreadsTest, AHitDoesNotWaitForALoadThatHangs) {
  const char* const other = "bf16 b=2 h=12 n=257 d=64";
  promote(database(), make_kernel(kVitB, 1));
  promote(database(), make_kernel(other, 2));
  const Context context = make_context();
  const Tensors t = tensors_of(kVitB), u = tensors_of(other);
  ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), t));
  mock_->hold_loads(true);
  std::jthread stuck([&] { EXPECT_STATUS(VITUNE_OK, forward(context, desc_of(other), u)); });
  wait_for_load();
  auto hits = std::async(std::launch::async, [&] {
    for (int i = 0; i < 1000; ++i) {
      if (forward(context, desc_of(kVitB), t) != VITUNE_OK) return false;
    }
    return vitune_prepare(context.get(), std::array{desc_of(kVitB)}.data()) == VITUNE_OK &&
           stats(context).exact_calls >= 1000;
  });
  const bool done = hits.wait_for(kPatience) == std::future_status::ready;
  mock_->hold_loads(false);
  EXPECT_TRUE(done) << "a hit waited for another problem's load";
  EXPECT_TRUE(hits.get());
}

TEST_F(CApiThreadsTest, WhileOneLoadsTheOthersAreServedByTheDefaultIfAsked) {
  const char* const smaller = "bf16 b=2 h=11 n=197 d=64";
  const StoredKernel exact = make_kernel(kVitB, 1), standard = default_kernel(kVitB, 2);
  ASSERT_EQ(standard.binary.kernel_key, default_kernel(smaller, 2).binary.kernel_key)
      << "the default kernel is the same for both numbers of heads";
  promote(database(), exact);
  put_binary(database(), standard);
  vitune_context_options impatient = options();
  impatient.on_busy = VITUNE_ON_BUSY_DEFAULT;
  impatient.on_miss = VITUNE_ON_MISS_DEFAULT;
  const Context context(impatient);
  ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(smaller), tensors_of(smaller)));
  mock_->hold_loads(true);
  const Tensors t = tensors_of(kVitB);
  std::jthread loader([&] { EXPECT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), t)); });
  wait_for_load();
  mock_->clear_log();
  auto served = std::async(std::launch::async, [&] { return forward(context, desc_of(kVitB), t); });
  const bool done = served.wait_for(kPatience) == std::future_status::ready;
  const auto meanwhile = mock_->launches();
  mock_->hold_loads(false);
  EXPECT_TRUE(done) << "waited although it was told not to";
  EXPECT_STATUS(VITUNE_OK, served.get());
  ASSERT_EQ(meanwhile.size(), 1u);
  EXPECT_EQ(meanwhile[0].image, standard.image_id());
  EXPECT_EQ(meanwhile[0].params.batch, 2);
  loader.join();
  mock_->clear_log();
  ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), t));
  EXPECT_EQ(mock_->launches()[0].image, exact.image_id());
}

TEST_F(CApiThreadsTest, EachOfManyNewProblemsIsLoadedOnceWhoeverAsksFirst) {
  constexpr unsigned kProblems = 24;
  std::vector<StoredKernel> kernels;
  for (unsigned i = 0; i < kProblems; ++i) {
    kernels.push_back(own_kernel(
        AttentionProblem::parse("bf16 b=2 h=3 n=" + std::to_string(40 + i) + " d=32"), i + 1));
    promote(database(), kernels.back());
  }
  std::vector<Tensors> tensors;
  for (const StoredKernel& kernel : kernels) tensors.push_back(tensors_of(kernel.problem));
  const Context context = make_context();
  std::barrier start(8);
  {
    std::vector<std::jthread> threads;
    for (unsigned thread = 0; thread < 8; ++thread) {
      threads.emplace_back([&, thread] {
        start.arrive_and_wait();
        for (unsigned i = 0; i < 4 * kProblems; ++i) {
          const unsigned which = (i * 7 + thread * 5) % kProblems;
          EXPECT_STATUS(VITUNE_OK,
                        forward(context, describe(kernels[which].problem), tensors[which]));
        }
      });
    }
  }
  std::map<std::uint64_t, std::int64_t> keys_of_image;
  for (const StoredKernel& kernel : kernels) keys_of_image[kernel.image_id()] = kernel.problem.nk;
  for (const MockLaunch& launch : mock_->launches()) {
    EXPECT_EQ(keys_of_image.at(launch.image), launch.params.keys);
  }
  EXPECT_EQ(calls_of("cuModuleLoadData"), kProblems);
  EXPECT_EQ(stats(context).exact_calls, 8u * 4 * kProblems);
}

// Everything at once, for the thread sanitizer: calls, new problems, queries, refreshes, flushes,
// and another process's new winners.
TEST_F(CApiThreadsTest, CallsRefreshesQueriesAndFlushesGoTogether) {
  std::vector<AttentionProblem> problems;
  std::vector<Tensors> tensors;
  for (int i = 0; i < 12; ++i) {
    problems.push_back(
        AttentionProblem::parse("bf16 b=2 h=3 n=" + std::to_string(60 + i) + " d=32"));
    tensors.push_back(tensors_of(problems.back()));
    put_binary(database(), make_kernel(problems.back(),
                                       default_attention_config(problems.back(), mock_device()),
                                       static_cast<unsigned>(i + 1)));
  }
  vitune_context_options busy = options();
  busy.refresh_seconds = 1;
  const Context context(busy);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> launched{0};
  std::vector<std::jthread> threads;
  for (unsigned thread = 0; thread < 6; ++thread) {
    threads.emplace_back([&, thread] {
      for (unsigned i = thread; !stop; ++i) {
        const std::size_t which = i % problems.size();
        EXPECT_STATUS(VITUNE_OK, forward(context, describe(problems[which]), tensors[which]));
        ++launched;
        if (i % 50 == 0) query(context, describe(problems[which]));
      }
    });
  }
  for (unsigned i = 0; i < problems.size(); ++i) {
    promote(database(), make_kernel(problems[i], other_config(problems[i]), 100 + i));
    EXPECT_STATUS(VITUNE_OK, vitune_context_refresh(context.get(), nullptr));
    if (i % 3 == 0) {
      EXPECT_STATUS(VITUNE_OK, vitune_context_flush(context.get()));
    }
    mock_->clear_log();
  }
  stop = true;
  threads.clear();
  const vitune_stats total = stats(context);
  EXPECT_EQ(total.exact_calls + total.nearest_calls + total.default_calls, launched);
  EXPECT_EQ(total.failed_calls, 0u);
  for (const AttentionProblem& problem : problems) {
    EXPECT_EQ(query(context, describe(problem)).outcome, VITUNE_EXACT);
  }
}

}  // namespace
}  // namespace vitune::test
