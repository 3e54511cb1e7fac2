// tests/db/process_test.cpp -- Many processes on one file, killed writers, full disks.
// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <ctime>
#include <thread>

#include "db/attempt_owner.h"
#include "tests/db/test_support.h"

namespace vitune {
namespace {

using test::sample_device;
using test::sample_problem;
using test::sample_trial;
using test::sample_winner;
using test::fs::path;

// Scale these up for a soak.
constexpr int kProcesses = 8;
constexpr int kWritesEach = 200;
constexpr int kKills = 60;

TEST(Processes, ATrialEndsTheAttemptsOfThisProcessAndOfThoseThatAreGoneOnly) {
  const auto store = Store::in_memory();
  const Trial trial = sample_trial(1);
  const auto device = sample_device();
  const auto problem = sample_problem();
  const auto open_after = [&](const auto& end) {
    const pid_t other = ::fork();
    if (other == 0) {
      for (;;) ::pause();
    }
    store->begin_attempt(device, problem, trial.config);
    store->begin_attempt(device, problem, trial.config, other);
    end();
    EXPECT_TRUE(store->open_attempts(device).empty());  // it still runs
    ::kill(other, SIGKILL);
    ::waitpid(other, nullptr, 0);
    const std::size_t open = store->open_attempts(device).size();
    end();
    EXPECT_TRUE(store->open_attempts(device).empty());
    return open;
  };
  EXPECT_EQ(open_after([&] { store->put_trial(device, problem, trial); }), 1U);
  EXPECT_EQ(open_after([&] { store->withdraw_attempt(device, problem, trial.config); }), 1U);
}

TEST(Processes, ReadModifyWritesOfManyProcessesLoseNothing) {
  test::TempDir dir;
  const path file = dir / "v.db";
  const std::string text = sample_problem().text;
  std::vector<pid_t> children;
  // The file does not exist yet: its creation is part of the race.
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        auto store = Store::open(file, Access::kReadWrite);
        for (int i = 0; i < kWritesEach; ++i) store->add_requests({{"attention", text, 1, 0.5}});
        ::_exit(0);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "child: %s\n", error.what());
        ::_exit(1);
      }
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  auto store = Store::open(file, Access::kReadOnly);
  ASSERT_EQ(store->requests().size(), 1U);
  EXPECT_EQ(store->requests()[0].calls, kProcesses * kWritesEach);
  EXPECT_EQ(store->requests()[0].total_us, 0.5 * kProcesses * kWritesEach);
  EXPECT_TRUE(store->check().integrity_ok);
}

// Writes trials and winners until it is killed; each number goes down the pipe after its commit.
[[noreturn]] void write_for_ever(const path& file, int pipe, int first) {
  try {
    auto store = Store::open(file, Access::kReadWrite);
    for (int n = first;; ++n) {
      store->put_trial(sample_device(), sample_problem(), sample_trial(n));
      if (n % 5 == 0) {
        const Binary binary = test::sample_binary(n, 20000);
        store->promote(sample_device(), sample_problem(n), sample_winner(n), &binary);
      }
      if (::write(pipe, &n, sizeof n) != sizeof n) ::_exit(2);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "writer: %s\n", error.what());
  }
  ::_exit(1);
}

TEST(Processes, AWriterKilledAtAnyMomentLosesNoCommittedRow) {
  test::TempDir dir;
  const path file = dir / "v.db";
  std::mt19937 random(60);
  std::vector<int> committed;
  for (int round = 0; round < kKills; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const int first = 1000 * round;
    const pid_t child = ::fork();
    if (child == 0) write_for_ever(file, ends[1], first);
    ::close(ends[1]);
    int n = 0;
    // Three rounds of four let it get going, so that the kill falls into a commit; the others may
    // hit the opening.
    if (round % 4 != 0 && ::read(ends[0], &n, sizeof n) == sizeof n) committed.push_back(n);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself";
    while (::read(ends[0], &n, sizeof n) == sizeof n) committed.push_back(n);
    ::close(ends[0]);

    auto store = Store::open(file, Access::kReadWrite);
    const CheckReport report = store->check();
    ASSERT_TRUE(report.integrity_ok) << "round " << round;
    ASSERT_EQ(report.bad_rows, 0) << "round " << round;
    for (const int number : committed) {
      const Trial expected = sample_trial(number);
      ASSERT_EQ(store->find_trial(sample_device(), sample_problem(), expected.config), expected);
      if (number % 5 != 0) continue;
      // One transaction: whoever sees the winner sees its binary.
      ASSERT_EQ(store->find_winner(sample_device(), sample_problem(number), Objective::kCold),
                test::with_image(sample_winner(number), number, 20000));
      ASSERT_TRUE(store->find_binary(test::sample_key(number)));
    }
  }
  EXPECT_GT(committed.size(), static_cast<std::size_t>(kKills) / 2)
      << "the writers hardly wrote; the test proves nothing";
}

TEST(FullDisk, AWriteThatDoesNotFitIsAnErrorAndWhatWasThereStays) {
  test::TempDir dir;
  const path file = dir / "v.db";
  test::fill(*Store::open(file, Access::kReadWrite));
  const int status = test::in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);  // as the command does; the library leaves handlers alone
    const rlim_t size = static_cast<rlim_t>(test::fs::file_size(file)) + 40000;
    const ::rlimit limit{size, size};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    auto store = Store::open(file, Access::kReadWrite);
    int stored = 0;
    try {
      for (; stored < 100; ++stored) store->put_binary(test::sample_binary(5000 + stored, 10000));
      return 3;
    } catch (const DatabaseError& error) {
      if (error.fault() != DatabaseFault::kFull) return 4;
      if (std::string(error.what()).find("cannot be written") == std::string::npos) return 5;
    }
    // The same store goes on serving, and takes what still fits.
    if (store->winners().size() != 6) return 6;
    if (store->stats().binaries != 3 + stored) return 7;
    return store->check().integrity_ok ? 0 : 8;
  });
  EXPECT_EQ(status, 0);
  auto store = Store::open(file, Access::kReadWrite);
  EXPECT_EQ(store->winners().size(), 6U);
  EXPECT_EQ(store->all_trials().size(), 60U);
  EXPECT_TRUE(store->check().integrity_ok);
  store->put_trial(sample_device(), sample_problem(1025), sample_trial(1));
}

TEST(FullDisk, ANewDatabaseThatDoesNotFitIsAnErrorAndTheNextTryWorks) {
  test::TempDir dir;
  const path file = dir / "v.db";
  const int status = test::in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const ::rlimit limit{8192, 8192};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    try {
      Store::open(file, Access::kReadWrite);
    } catch (const Error& error) {
      return error.code() == ErrorCode::kDatabase ? 0 : 3;
    }
    return 4;
  });
  EXPECT_EQ(status, 0);
  auto store = Store::open(file, Access::kReadWrite);
  test::fill(*store);
  EXPECT_TRUE(store->check().integrity_ok);
}

TEST(Processes, AReaderTellsOfAJournalThatItMayNotPlayBack) {
  test::TempDir dir;
  const path file = dir / "v.db";
  test::fill(*Store::open(file, Access::kReadWrite));
  // Dies in mid transaction after its pages have reached the file.
  test::in_child([&] {
    Connection raw(file, Connection::Mode::kReadWrite);
    raw.use_truncate_journal();
    raw.execute("PRAGMA cache_size = 2");
    raw.execute("BEGIN IMMEDIATE");
    raw.execute("UPDATE trial SET reason = 'half done ' || hex(zeroblob(300))");
    ::kill(::getpid(), SIGKILL);
    return 0;
  });
  ASSERT_GT(test::fs::file_size(file.string() + "-journal"), 0U);
  try {
    Store::open(file, Access::kReadOnly);
    ADD_FAILURE() << "a half-written file was served";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("-journal"), std::string::npos) << error.what();
  }
  { auto writer = Store::open(file, Access::kReadWrite); }
  auto store = Store::open(file, Access::kReadOnly);
  EXPECT_EQ(store->all_trials().size(), 60U);
  EXPECT_EQ(store->check().bad_rows, 0);
}

TEST(Processes, AnAttemptCountsOnceItsProcessIsGone) {
  auto store = Store::in_memory();
  const Config config = test::sample_config(1);
  const auto open = [&] { return store->open_attempts(sample_device()); };
  for (int deaths = 0; deaths < 3; ++deaths) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) ::pause();
    }
    store->begin_attempt(sample_device(), sample_problem(), config, child);
    store->begin_attempt(sample_device(), sample_problem(), config, child);
    EXPECT_EQ(open().empty() ? 0 : open()[0].count, deaths);  // it is at work
    ::kill(child, SIGKILL);
    siginfo_t ended{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
    ASSERT_EQ(open().size(), 1U);  // nobody has reaped it yet
    EXPECT_EQ(open()[0].count, deaths + 1);
    ::waitpid(child, nullptr, 0);
    EXPECT_EQ(open()[0].count, deaths + 1);
  }
}

TEST(Processes, AnAttemptOfAnOlderVersionIsOneOfAProcessThatIsGone) {
  const AttemptOwner older = unpacked_owner(1'780'000'000);
  EXPECT_EQ(older.pid, 0);
  EXPECT_EQ(older.started, 1'780'000'000);
  EXPECT_FALSE(is_alive(older));
  for (const AttemptOwner& owner : {AttemptOwner{4'194'304, 1'780'000'000}, AttemptOwner{1, 0}}) {
    EXPECT_EQ(unpacked_owner(packed(owner)).pid, owner.pid);
    EXPECT_EQ(unpacked_owner(packed(owner)).started, owner.started);
  }
}

TEST(Processes, AProcessThatGotTheNumberOfAnAttemptsLaterIsNotItsOwner) {
  const std::int64_t now = std::time(nullptr);
  EXPECT_TRUE(is_alive({::getpid(), now}));
  EXPECT_FALSE(is_alive({::getpid(), now - 10 * 365 * 86400}));
}

}  // namespace
}  // namespace vitune
