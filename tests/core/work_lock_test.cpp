// tests/core/work_lock_test.cpp -- Who gets a piece of work, and that nobody waits for the dead.
// SPDX-License-Identifier: Apache-2.0
#include "core/work_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>

#include "tests/patience.h"
#include "tests/temporary_directory.h"

namespace vitune {
namespace {

using std::chrono::milliseconds;

class WorkLockTest : public ::testing::Test {
 protected:
  WorkLock lock(const std::string& work = "a kernel") { return {file_, sha256(work)}; }

  test::TemporaryDirectory directory_;
  const std::filesystem::path file_ = work_lock_file(directory_ / "vitune.db");
};

// A child that takes the lock and keeps it for as long as it lives.
class Holder {
 public:
  explicit Holder(const std::filesystem::path& file) {
    std::array<int, 2> ready{};
    if (pipe(ready.data()) != 0) throw std::runtime_error("no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      WorkLock lock(file, sha256("a kernel"));
      const char taken = lock.try_now() == Turn::kMine ? 'y' : 'n';
      if (write(ready[1], &taken, 1) == 1) pause();
      _exit(0);
    }
    char taken = 'n';
    holds_ = read(ready[0], &taken, 1) == 1 && taken == 'y';
    close(ready[0]);
    close(ready[1]);
  }
  ~Holder() { end(); }
  bool holds() const { return holds_; }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  bool holds_ = false;
};

TEST_F(WorkLockTest, AWorkIsOnesUntilItsLockGoes) {
  WorkLock second = lock();
  {
    WorkLock first = lock();
    EXPECT_EQ(first.try_now(), Turn::kMine);
    EXPECT_EQ(first.try_now(), Turn::kMine) << "asking again changes nothing";
    EXPECT_EQ(second.try_now(), Turn::kBusy);
    EXPECT_EQ(second.wait(milliseconds(5)), Turn::kBusy);
  }
  EXPECT_EQ(second.wait(test::kPatience), Turn::kMine);
}

TEST_F(WorkLockTest, ALockThatNobodyTookFreesNothing) {
  WorkLock first = lock();
  ASSERT_EQ(first.try_now(), Turn::kMine);
  {
    WorkLock onlooker = lock();
    const WorkLock moved = std::move(onlooker);
  }
  EXPECT_EQ(lock().try_now(), Turn::kBusy);
}

TEST_F(WorkLockTest, WorksDoNotWaitForEachOther) {
  WorkLock first = lock("a kernel"), second = lock("another kernel");
  EXPECT_EQ(first.try_now(), Turn::kMine);
  EXPECT_EQ(second.try_now(), Turn::kMine);
}

TEST_F(WorkLockTest, AHolderThatIsKilledFreesTheOthers) {
  Holder holder(file_);
  ASSERT_TRUE(holder.holds());
  WorkLock mine = lock();
  EXPECT_EQ(mine.try_now(), Turn::kBusy);
  holder.end();
  EXPECT_EQ(mine.try_now(), Turn::kMine);
}

TEST_F(WorkLockTest, AChildOfTheHolderDoesNotKeepTheLock) {
  std::optional<WorkLock> first(lock());
  ASSERT_EQ(first->try_now(), Turn::kMine);
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  first.reset();
  EXPECT_EQ(lock().try_now(), Turn::kMine);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(WorkLockTest, AStopEndsTheWait) {
  WorkLock first = lock(), second = lock();
  ASSERT_EQ(first.try_now(), Turn::kMine);
  const std::atomic<bool> stop{true};
  EXPECT_EQ(second.wait(std::chrono::hours(1), &stop), Turn::kBusy);
}

TEST_F(WorkLockTest, TheFileIsEmptyItsOwnersAloneAndStays) {
  { EXPECT_EQ(lock().try_now(), Turn::kMine); }
  struct ::stat info {};
  ASSERT_EQ(::stat(file_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  EXPECT_EQ(info.st_size, 0);
}

TEST_F(WorkLockTest, WhereThereCanBeNoLockTheWorkIsDoneAlone) {
  const auto expect_alone = [](const std::filesystem::path& file) {
    WorkLock lock(file, sha256("a kernel"));
    EXPECT_EQ(lock.try_now(), Turn::kAlone) << file;
    EXPECT_EQ(lock.wait(test::kPatience), Turn::kAlone) << file;
    EXPECT_NE(lock.fault().find(file.string()), std::string::npos) << lock.fault();
  };
  expect_alone(directory_ / "missing" / "x.lock");
  expect_alone(directory_.path());
  std::filesystem::create_symlink(directory_ / "target", directory_ / "link.lock");
  expect_alone(directory_ / "link.lock");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "target"));
  ASSERT_EQ(::mkfifo((directory_ / "fifo.lock").c_str(), 0600), 0);
  expect_alone(directory_ / "fifo.lock");
  test::write_file(directory_ / "open.lock", "");
  ASSERT_EQ(::chmod((directory_ / "open.lock").c_str(), 0644), 0);
  expect_alone(directory_ / "open.lock");
  if (::geteuid() == 0) {
    test::write_file(directory_ / "foreign.lock", "");
    ASSERT_EQ(::chmod((directory_ / "foreign.lock").c_str(), 0600), 0);
    ASSERT_EQ(::chown((directory_ / "foreign.lock").c_str(), 65534, 65534), 0);
    expect_alone(directory_ / "foreign.lock");
  }
  EXPECT_EQ(WorkLock().try_now(), Turn::kAlone);
}

}  // namespace
}  // namespace vitune
