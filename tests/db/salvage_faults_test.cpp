// tests/db/salvage_faults_test.cpp -- A salvage that dies or fails: nobody is locked out, no row is
// lost, and what it leaves goes with the next one.
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>

#include "tests/db/failing_calls.h"
#include "tests/db/test_support.h"

namespace vitune {
namespace {

using test::Call;
using test::FailingCall;
using test::fs::path;

constexpr int kKill = 0;

class SalvageFaults : public ::testing::Test {
 protected:
  SalvageFaults() { make(); }

  void make() {
    for (const path& name : names()) test::fs::remove(name);
    test::fill(*Store::open(file_, Access::kReadWrite));
    rows_ = Store::open(file_, Access::kReadOnly)->check().rows;
    bytes_ = test::read_bytes(file_);
  }

  std::vector<path> names() const {
    std::vector<path> found;
    for (const auto& entry : test::fs::directory_iterator(dir_.path())) found.push_back(entry);
    std::sort(found.begin(), found.end());
    return found;
  }

  bool some_file_has_the_old_bytes() const {
    const auto found = names();
    return std::any_of(found.begin(), found.end(),
                       [&](const path& name) { return test::read_bytes(name) == bytes_; });
  }

  // Gives what the salvage threw, empty if nothing.
  std::string error_of_salvage() const {
    try {
      Store::salvage(file_);
    } catch (const Error& error) {
      EXPECT_EQ(exit_status(error.code()), 5);
      return error.what();
    }
    return "";
  }

  void expect_a_writer_and_a_salvage_work(const std::string& what) const {
    SCOPED_TRACE(what);
    EXPECT_TRUE(some_file_has_the_old_bytes());
    const auto rows = [&](Access access) { return Store::open(file_, access)->check().rows; };
    EXPECT_EQ(rows(Access::kReadWrite), rows_);
    EXPECT_EQ(Store::salvage(file_), rows_);
    EXPECT_EQ(rows(Access::kReadWrite), rows_);
    for (const path& name : names())
      EXPECT_EQ(name.string().find(".salvage-"), std::string::npos) << name;
  }

  test::TempDir dir_;
  path file_ = dir_ / "v.db";
  std::int64_t rows_ = 0;
  std::string bytes_;
};

// Each call of the replacement, and whether the file system can exchange names.
struct Step {
  Call call;
  bool exchanges;
};
constexpr Step kSteps[] = {{Call::kRename, true},  {Call::kExchange, true}, {Call::kFsync, true},
                           {Call::kRename, false}, {Call::kLink, false},    {Call::kFsync, false}};

TEST_F(SalvageFaults, KilledAtAnyStepItLocksNobodyOutAndLosesNothing) {
  int kills = 0;
  for (const Step& step : kSteps) {
    for (int n = 1; n < 100; ++n) {
      make();
      const int status = test::in_child([&] {
        std::optional<test::NoExchange> without;
        if (!step.exchanges) without.emplace();
        const FailingCall kill(step.call, n, kKill);
        Store::salvage(file_);
        return 0;
      });
      expect_a_writer_and_a_salvage_work("call " + std::to_string(static_cast<int>(step.call)) +
                                         ", time " + std::to_string(n));
      if (status == 0) break;
      ASSERT_EQ(status, 128 + SIGKILL);
      ++kills;
    }
  }
  EXPECT_GE(kills, 8);
}

TEST_F(SalvageFaults, FailingAtAnyStepItLeavesEveryNameAsItWas) {
  int failures = 0;
  for (const Step& step : kSteps) {
    for (int n = 1; n < 100; ++n) {
      const auto before = names();
      std::optional<test::NoExchange> without;
      if (!step.exchanges) without.emplace();
      std::string error;
      bool happened = false;
      {
        const FailingCall failing(step.call, n, EIO);
        error = error_of_salvage();
        happened = failing.happened();
      }
      if (!happened) break;
      if (error.empty()) {  // it went another way
        make();
        continue;
      }
      ++failures;
      EXPECT_EQ(names(), before) << error;
      EXPECT_EQ(test::read_bytes(file_), bytes_) << error;
    }
    make();
  }
  EXPECT_GE(failures, 6);
}

TEST_F(SalvageFaults, WithoutLinksAndExchangesItRenames) {
  const test::NoExchange without;
  const FailingCall failing(Call::kLink, 1, EPERM, true);
  EXPECT_EQ(Store::salvage(file_), rows_);
  EXPECT_TRUE(failing.happened());
  expect_a_writer_and_a_salvage_work("renamed");
}

// As versions before left it.
TEST_F(SalvageFaults, AFileWhoseSecondNameASalvageGaveItIsUsed) {
  test::fs::create_hard_link(file_, file_.string() + ".corrupt-20260101T000000Z");
  expect_a_writer_and_a_salvage_work("second name");
  make();
  test::fs::create_hard_link(file_, file_.string() + ".corrupt-20260101T000000Z");
  test::fs::create_hard_link(file_, dir_ / "another");
  EXPECT_THROW(Store::open(file_, Access::kReadWrite), DatabaseError);
  EXPECT_THROW(Store::salvage(file_), DatabaseError);
}

TEST_F(SalvageFaults, AReadErrorStopsItAndChangesNothing) {
  const auto before = names();
  const int pages = static_cast<int>(bytes_.size() / 4096);
  for (const bool for_ever : {false, true}) {
    for (int n = 1; n <= pages; ++n) {
      const FailingCall failing(Call::kPread, n, EIO, for_ever);
      const std::string error = error_of_salvage();
      EXPECT_NE(error.find("nothing was changed"), std::string::npos) << "read " << n;
    }
  }
  EXPECT_EQ(names(), before);
  EXPECT_EQ(test::read_bytes(file_), bytes_);
}

TEST_F(SalvageFaults, AnInterruptedReadIsTriedAgain) {
  const FailingCall failing(Call::kPread, 3, EINTR);
  EXPECT_EQ(Store::salvage(file_), rows_);
}

TEST_F(SalvageFaults, WhatDeadSalvagesLeftGoesAndWhatLivingOnesWriteStays) {
  const std::string stem = file_.string() + ".salvage-20260101T000000Z-";
  const std::string dead = stem + std::to_string(test::ended_process());
  const std::string living = stem + std::to_string(::getpid());
  const std::string users = file_.string() + ".salvage-notes";
  for (const std::string& name : {dead, dead + "-journal", dead + "-2", living, users})
    test::write_bytes(name, "x");
  Store::salvage(file_);
  for (const std::string& name : {dead, dead + "-journal", dead + "-2"})
    EXPECT_FALSE(test::fs::exists(name)) << name;
  EXPECT_TRUE(test::fs::exists(living));
  EXPECT_TRUE(test::fs::exists(users));
}

}  // namespace
}  // namespace vitune
