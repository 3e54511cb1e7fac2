// tests/runtime/c_api_upkeep_test.cpp -- Refreshes, misses, flushes, and what the environment says.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <thread>

#include "db/sqlite.h"
#include "tests/patience.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class CApiRefreshTest : public RuntimeTest {
 protected:
  std::int32_t refresh(const Context& context) {
    std::int32_t changed = -1;
    EXPECT_STATUS(VITUNE_OK, vitune_context_refresh(context.get(), &changed));
    return changed;
  }
  std::uint64_t image_run(const Context& context) {
    mock_->clear_log();
    EXPECT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), tensors_));
    return mock_->launches().at(0).image;
  }
  void SetUp() override {
    RuntimeTest::SetUp();
    if (mock_ != nullptr) tensors_ = tensors_of(kVitB);
  }

  StoredKernel first_ = make_kernel(kVitB, 1);
  StoredKernel second_ = make_kernel(first_.problem, other_config(first_.problem, 2), 2);
  StoredKernel standard_ = default_kernel(kVitB, 3);
  Tensors tensors_;
};

TEST_F(CApiRefreshTest, AWinnerThatAnotherProcessWritesIsTakenOver) {
  put_binary(database(), standard_);
  const Context context = make_context();
  EXPECT_EQ(image_run(context), standard_.image_id());
  EXPECT_EQ(refresh(context), 0);
  ASSERT_EQ(in_child([&] { return promote(database(), first_), 0; }), 0);
  EXPECT_EQ(image_run(context), standard_.image_id()) << "not before the refresh";
  EXPECT_EQ(refresh(context), 1);
  EXPECT_EQ(image_run(context), first_.image_id());
  EXPECT_EQ(query(context, desc_of(kVitB)).outcome, VITUNE_EXACT);
  promote(database(), second_, 5);
  EXPECT_EQ(refresh(context), 1);
  EXPECT_EQ(image_run(context), second_.image_id());
  mock_->clear_log();
  EXPECT_EQ(refresh(context), 0);
  EXPECT_EQ(calls_of("cuModuleLoadData"), 0);
}

TEST_F(CApiRefreshTest, RowsOfOtherProblemsChangeNothing) {
  promote(database(), first_);
  const Context context = make_context();
  EXPECT_EQ(image_run(context), first_.image_id());
  promote(database(), make_kernel("bf16 b=1 h=1 n=64 d=128", 9));
  mock_->clear_log();
  EXPECT_EQ(refresh(context), 0);
  EXPECT_EQ(calls_of("cuModuleLoadData"), 0);
}

TEST_F(CApiRefreshTest, AFileThatAppearsOrIsReplacedIsFound) {
  const std::string shipped_path = shipped().string();
  put_binary(shipped(), standard_);
  vitune_context_options layered = options();
  layered.shipped_database = shipped_path.c_str();
  const Context context(layered);
  EXPECT_EQ(image_run(context), standard_.image_id());
  promote(database(), first_);
  EXPECT_EQ(refresh(context), 1);
  EXPECT_EQ(image_run(context), first_.image_id());
  const fs::path other = directory_ / "other.db";
  promote(other, second_);
  fs::rename(other, database());
  EXPECT_EQ(refresh(context), 1);
  EXPECT_EQ(image_run(context), second_.image_id());
}

TEST_F(CApiRefreshTest, AnOutcomeThatFailedIsTriedAgain) {
  const Context context = make_context();
  EXPECT_NE(forward(context, desc_of(kVitB), tensors_), VITUNE_OK);
  promote(database(), first_);
  EXPECT_NE(forward(context, desc_of(kVitB), tensors_), VITUNE_OK) << "remembered";
  refresh(context);
  EXPECT_EQ(image_run(context), first_.image_id());
}

TEST_F(CApiRefreshTest, ANewWinnerThatCannotBeLoadedLeavesTheOldKernel) {
  promote(database(), first_);
  const Context context = make_context();
  EXPECT_EQ(image_run(context), first_.image_id());
  second_.binary.image[0] ^= std::byte{1};
  promote(database(), second_, 5);
  refresh(context);
  mock_->clear_log();
  EXPECT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), tensors_));
  EXPECT_NE(mock_->launches().at(0).image, second_.image_id());
}

TEST_F(CApiRefreshTest, ADatabaseThatIsDamagedMeanwhileLeavesWhatIsLoaded) {
  promote(database(), first_);
  const Context context = make_context();
  EXPECT_EQ(image_run(context), first_.image_id());
  write_bytes(database(), std::string(20000, 'x'));
  std::int32_t changed = 0;
  const vitune_status status = vitune_context_refresh(context.get(), &changed);
  EXPECT_TRUE(status == VITUNE_OK || status == VITUNE_DATABASE) << vitune_last_error();
  EXPECT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), tensors_));
}

TEST_F(CApiRefreshTest, AContextThatRefreshesItselfFindsNewWinners) {
  put_binary(database(), standard_);
  vitune_context_options own = options();
  own.refresh_seconds = 1;
  const Context context(own);
  EXPECT_EQ(image_run(context), standard_.image_id());
  promote(database(), first_);
  EXPECT_TRUE(soon([&] { return image_run(context) == first_.image_id(); }));
}

// A pack that is replaced again and again under a context that refreshes and calls: what is served
// is one pack's kernel or the other's at every moment, and the last one's in the end.
TEST_F(CApiRefreshTest, APackThatIsReplacedUnderCallsIsNeverServedByHalf) {
  const fs::path pack = directory_ / "site.pack",
                 from[] = {directory_ / "1.db", directory_ / "2.db"};
  promote(from[0], first_);
  promote(from[1], second_);
  const auto put = [&](int which) {
    Store::open(from[which], Access::kReadOnly)->write_pack(pack, {"test", {}, {}});
  };
  put(0);
  setenv("VITUNE_DB", (":" + pack.string()).c_str(), 1);
  vitune_context_options layered = options();
  layered.database = nullptr;
  const Context context(layered);
  unsetenv("VITUNE_DB");
  EXPECT_EQ(image_run(context), first_.image_id());
  EXPECT_STREQ(query(context, desc_of(kVitB)).source, "site");
  constexpr int kReplacements = 40;
  std::atomic<int> done = 0;
  std::thread publisher([&] {
    for (int i = 1; i <= kReplacements; ++i) {
      put(i % 2);
      done = i;
    }
  });
  while (done < kReplacements) {
    refresh(context);
    const std::uint64_t image = image_run(context);
    ASSERT_TRUE(image == first_.image_id() || image == second_.image_id());
  }
  publisher.join();
  put(1);
  refresh(context);
  EXPECT_EQ(image_run(context), second_.image_id());
  EXPECT_EQ(log_.count(VITUNE_LOG_WARNING, ""), 0) << "nothing half was ever met";
}

TEST_F(CApiRefreshTest, APackThatIsCutShortIsNotServed) {
  const fs::path pack = directory_ / "site.pack", from = directory_ / "from.db";
  promote(from, first_);
  Store::open(from, Access::kReadOnly)->write_pack(pack, {"test", {}, {}});
  const std::string whole = read_bytes(pack);
  put_binary(database(), standard_);
  setenv("VITUNE_DB", (database().string() + ":" + pack.string()).c_str(), 1);
  const Context context = make_context();
  EXPECT_EQ(image_run(context), first_.image_id());
  const fs::path part = directory_ / "part";
  write_bytes(part, whole.substr(0, whole.size() * 2 / 3));
  fs::rename(part, pack);
  refresh(context);
  const Context later = make_context();
  EXPECT_EQ(image_run(later), standard_.image_id()) << "a default kernel, and no half of the pack";
  EXPECT_GT(log_.count(VITUNE_LOG_WARNING, pack.string()), 0);
  write_bytes(part, whole);
  fs::rename(part, pack);
  refresh(later);
  unsetenv("VITUNE_DB");
  EXPECT_EQ(image_run(later), first_.image_id());
}

TEST_F(CApiRefreshTest, DestroyDoesNotWaitForTheNextRefresh) {
  vitune_context_options slow = options();
  slow.refresh_seconds = 3600;
  EXPECT_TRUE(is_prompt(10s, [&] { const Context context(slow); }));
}

class CApiMissTest : public CApiRefreshTest {
 protected:
  void SetUp() override {
    CApiRefreshTest::SetUp();
    if (mock_ != nullptr) put_binary(database(), standard_);
  }
  // Calls that the database knows of for kVitB; 0 without a request.
  std::int64_t calls_written() {
    const auto store = Store::open(database(), Access::kReadOnly);
    std::int64_t calls = 0;
    for (const ProblemRequest& request : store->requests()) {
      EXPECT_EQ(request.operator_name, "attention");
      EXPECT_GE(request.total_us, 0);
      if (request.problem == first_.problem.canonical().text()) calls += request.calls;
    }
    return calls;
  }
  void call(const Context& context, int times) {
    for (int i = 0; i < times; ++i) {
      ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), tensors_));
    }
  }
};

TEST_F(CApiMissTest, CallsWithoutAWinnerOfTheirOwnAreWrittenDown) {
  {
    const Context context = make_context();
    call(context, 5);
    ASSERT_STATUS(VITUNE_OK, vitune_context_flush(context.get()));
    EXPECT_EQ(calls_written(), 5);
    ASSERT_STATUS(VITUNE_OK, vitune_context_flush(context.get()));
    EXPECT_EQ(calls_written(), 5) << "a flush writes what is new only";
    call(context, 2);
  }
  EXPECT_EQ(calls_written(), 7) << "destroy flushes";
}

TEST_F(CApiMissTest, AMissIsWrittenDownWhenItIsFirstSeen) {
  const Context context = make_context();
  call(context, 1);
  const auto store = Store::open(database(), Access::kReadOnly);
  EXPECT_EQ(store->requests().size(), 1u) << "a program that is killed has said what it lacked";
}

TEST_F(CApiMissTest, TwoContextsAndTwoProcessesAddUp) {
  const Context one = make_context(), two = make_context();
  call(one, 3);
  call(two, 4);
  ASSERT_STATUS(VITUNE_OK, vitune_context_flush(one.get()));
  ASSERT_STATUS(VITUNE_OK, vitune_context_flush(two.get()));
  EXPECT_EQ(calls_written(), 7);
  const int status = in_child([&] {
    const Context child = make_context();
    for (int i = 0; i < 10; ++i) {
      if (forward(child, desc_of(kVitB), tensors_) != VITUNE_OK) return 1;
    }
    return vitune_context_flush(child.get()) == VITUNE_OK ? 0 : 2;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(calls_written(), 17);
}

TEST_F(CApiMissTest, ATunedProblemIsNoMiss) {
  promote(database(), first_);
  {
    const Context context = make_context();
    call(context, 5);
  }
  EXPECT_TRUE(Store::open(database(), Access::kReadOnly)->requests().empty());
}

TEST_F(CApiMissTest, OneTextAtTwoAlignmentsIsCountedByWhatWasAsked) {
  AttentionProblem narrow = first_.problem;
  narrow.alignment = 2;
  put_binary(database(), make_kernel(narrow, default_attention_config(narrow, mock_device()), 7));
  const Context context = make_context();
  call(context, 2);
  Tensors t = tensors_;
  t.q = reinterpret_cast<const char*>(t.q) + 2;
  ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), t));
  ASSERT_STATUS(VITUNE_OK, vitune_context_flush(context.get()));
  EXPECT_EQ(calls_written(), 2);
  EXPECT_EQ(Store::open(database(), Access::kReadOnly)->requests().size(), 2u);
}

TEST_F(CApiMissTest, AReadOnlyContextWritesNothing) {
  const std::string before = read_bytes(database());
  const auto time = fs::last_write_time(database());
  {
    vitune_context_options quiet = options();
    quiet.read_only = 1;
    const Context context(quiet);
    call(context, 5);
    EXPECT_STATUS(VITUNE_OK, vitune_context_flush(context.get()));
  }
  EXPECT_EQ(read_bytes(database()), before);
  EXPECT_EQ(fs::last_write_time(database()), time);
}

TEST_F(CApiMissTest, WhatCannotBeWrittenNowIsWrittenLater) {
  const Context context = make_context();
  call(context, 1);
  int calls = 1;
  {
    Connection writer(database(), Connection::Mode::kReadWrite);
    writer.execute("BEGIN IMMEDIATE");
    EXPECT_TRUE(is_prompt(5s, [&] {
      call(context, 4);
      calls += 4;
      EXPECT_REFUSED(VITUNE_DATABASE, vitune_context_flush(context.get()), "locked|busy");
    }));
    writer.execute("ROLLBACK");
  }
  EXPECT_STATUS(VITUNE_OK, vitune_context_flush(context.get()));
  EXPECT_EQ(calls_written(), calls);
}

TEST_F(CApiMissTest, AnExclusiveLockElsewhereDelaysNoCallForLong) {
  Connection writer(database(), Connection::Mode::kReadWrite);
  writer.execute("BEGIN EXCLUSIVE");
  EXPECT_TRUE(is_prompt(8s, [&] {
    const Context context = make_context();
    forward(context, desc_of(kVitB), tensors_);
  }));
  writer.execute("ROLLBACK");
}

class CApiEnvironmentTest : public CApiRefreshTest {};

TEST_F(CApiEnvironmentTest, DisableStopsCallsAndNothingElse) {
  promote(database(), first_);
  setenv("VITUNE_DISABLE", "1", 1);
  const Context context = make_context();
  const vitune_attention_desc desc = desc_of(kVitB);
  EXPECT_REFUSED(VITUNE_DISABLED, forward(context, desc, tensors_), "VITUNE_DISABLE");
  EXPECT_REFUSED(VITUNE_DISABLED, vitune_prepare(context.get(), &desc), "VITUNE_DISABLE");
  EXPECT_EQ(calls_of("cuModuleLoadData") + calls_of("cuLaunchKernel"), 0);
  EXPECT_EQ(query(context, desc).outcome, VITUNE_EXACT);
}

TEST_F(CApiEnvironmentTest, CaptureWritesEachNewProblemOnce) {
  const fs::path file = directory_ / "seen.jsonl";
  setenv("VITUNE_CAPTURE", file.c_str(), 1);
  promote(database(), first_);
  const Context context = make_context();
  for (int i = 0; i < 3; ++i) {
    ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), tensors_));
  }
  const std::string written = read_bytes(file);
  EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), 1);
  EXPECT_THAT(written, HasSubstr(first_.problem.canonical().text()));
}

TEST_F(CApiEnvironmentTest, TheCommandForEachNewProblemIsPrintedOnce) {
  setenv("VITUNE_LOG_CMD", "1", 1);
  promote(database(), first_);
  vitune_context_options plain = options();
  plain.log = nullptr;
  testing::internal::CaptureStderr();
  {
    const Context context(plain);
    for (int i = 0; i < 3; ++i) {
      ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), tensors_));
    }
  }
  const std::string said = testing::internal::GetCapturedStderr();
  const std::string command = "vitune bench \"" + first_.problem.canonical().text() + "\"\n";
  const std::size_t place = said.find(command);
  ASSERT_NE(place, std::string::npos) << said;
  EXPECT_EQ(said.find("vitune bench", place + 1), std::string::npos) << said;
}

TEST_F(CApiEnvironmentTest, TheDatabaseIsWhereTheEnvironmentSays) {
  promote(database(), first_);
  setenv("VITUNE_DB", database().c_str(), 1);
  vitune_context_options plain = options();
  plain.database = nullptr;
  EXPECT_EQ(image_run(Context(plain)), first_.image_id());
  const fs::path home = directory_ / ".cache" / "vitune";
  fs::create_directories(home);
  fs::permissions(home, fs::perms::owner_all);
  fs::copy(database(), home / "vitune.db");
  fs::permissions(home / "vitune.db", fs::perms::owner_read | fs::perms::owner_write);
  unsetenv("VITUNE_DB");
  EXPECT_EQ(image_run(Context(plain)), first_.image_id());
}

TEST_F(CApiEnvironmentTest, WithoutACallbackWarningsGoToStderr) {
  write_bytes(database(), std::string(8192, 'x'));
  vitune_context_options plain = options();
  plain.log = nullptr;
  testing::internal::CaptureStderr();
  { const Context context(plain); }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("vitune: "));
  EXPECT_THAT(said, HasSubstr("user.db"));
  setenv("VITUNE_LOG_LEVEL", "error", 1);
  testing::internal::CaptureStderr();
  { const Context context(plain); }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(CApiEnvironmentTest, TheCallbackReceivesOneMessageAtATime) {
  struct Watch {
    std::atomic<int> inside{0}, worst{0}, messages{0};
  } watch;
  vitune_context_options watched = options();
  watched.log_user = &watch;
  watched.log = [](void* user, int32_t, const char*) {
    auto* w = static_cast<Watch*>(user);
    const int now = ++w->inside;
    if (now > w->worst) w->worst = now;
    ++w->messages;
    std::this_thread::sleep_for(1ms);
    --w->inside;
  };
  const Context context(watched);
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 8; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < 4; ++i) {
          const int tokens = 30 + thread * 4 + i;
          const auto desc = desc_of("bf16 b=1 h=1 n=" + std::to_string(tokens) + " d=32");
          static_cast<void>(vitune_prepare(context.get(), &desc));
        }
      });
    }
  }
  EXPECT_GT(watch.messages, 0);
  EXPECT_LE(watch.worst, 1);
}

}  // namespace
}  // namespace vitune::test
