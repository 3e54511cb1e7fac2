// tests/runtime/databases_test.cpp -- Databases that come, go, change and cannot be used.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/databases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "db/sqlite.h"
#include "tests/db/failing_calls.h"
#include "tests/db/test_support.h"
#include "tests/faked_looks.h"
#include "tests/patience.h"

namespace vitune::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DatabasesTest : public testing::Test {
 protected:
  fs::path user() const { return directory_ / "user.db"; }
  fs::path shipped() const { return directory_ / "shipped.db"; }
  LogSink sink() {
    return [this](LogLevel level, std::string_view text) {
      if (level >= LogLevel::kWarning) warnings_.emplace_back(text);
    };
  }
  static void add_request(const fs::path& file) {
    Store::open(file, Access::kReadWrite)->add_requests({{"attention", "text", 1, 2}});
  }

  TempDir directory_;
  std::vector<std::string> warnings_;
};

TEST_F(DatabasesTest, AMissingFileIsEmptyUntilItAppears) {
  Databases databases({user(), std::nullopt, false}, sink());
  EXPECT_EQ(databases.read([](LayeredStore& s) { return s.user().requests().size(); }), 0U);
  EXPECT_FALSE(databases.refresh());
  add_request(user());
  EXPECT_TRUE(databases.refresh());
  EXPECT_EQ(databases.read([](LayeredStore& s) { return s.user().requests().size(); }), 1U);
  EXPECT_FALSE(databases.refresh()) << "nothing has changed since";
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(DatabasesTest, RefreshNoticesACommitOfAnotherConnectionAndAReplacedFile) {
  add_request(user());
  Databases databases({user(), std::nullopt, false}, sink());
  EXPECT_FALSE(databases.refresh());
  add_request(user());
  EXPECT_TRUE(databases.refresh());
  EXPECT_FALSE(databases.refresh());
  fs::rename(user(), directory_ / "old.db");
  EXPECT_TRUE(databases.refresh()) << "the file has gone";
  add_request(user());
  EXPECT_TRUE(databases.refresh()) << "another file has its name";
}

TEST_F(DatabasesTest, AForeignFileIsOneWarningAndLeftAsItIs) {
  std::ofstream(user()) << "this is no database";
  std::ofstream(shipped()) << "nor is this";
  Databases databases({user(), shipped(), false}, sink());
  EXPECT_EQ(databases.read([](LayeredStore& s) { return s.shipped() == nullptr; }), true);
  EXPECT_THAT(warnings_, testing::SizeIs(2));
  EXPECT_FALSE(databases.refresh());
  EXPECT_THAT(warnings_, testing::SizeIs(2)) << "it was said before";
  EXPECT_TRUE(databases.write("something", [](Store&) {}).has_value());
  EXPECT_THAT(warnings_.back(), HasSubstr("something cannot be kept"));
  std::string content;
  std::getline(std::ifstream(user()) >> std::ws, content);
  EXPECT_EQ(content, "this is no database");
}

TEST_F(DatabasesTest, AReadOnlyContextWritesNothing) {
  Databases databases({user(), std::nullopt, true}, sink());
  bool called = false;
  EXPECT_TRUE(databases.write("x", [&](Store&) { called = true; }).has_value());
  EXPECT_FALSE(called);
  EXPECT_FALSE(fs::exists(user()));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(DatabasesTest, AWriterThatHoldsTheFileCostsAQuarterOfASecondAndOneWarning) {
  add_request(user());
  Databases databases({user(), std::nullopt, false}, sink());
  Connection blocker(fs::canonical(user()), Connection::Mode::kReadWrite);
  EXPECT_TRUE(test::is_prompt(std::chrono::seconds(5), [&] {
    const Transaction held(blocker);
    const auto add = [](Store& s) { s.add_requests({{"attention", "text", 1, 2}}); };
    EXPECT_TRUE(databases.write("the list", add).has_value());
    EXPECT_TRUE(databases.write("the list", add).has_value());
  }));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("locked")));
}

TEST_F(DatabasesTest, AListThatIsLockedOnceItsFileIsOpenIsALostOneUntilItCanBeRead) {
  add_request(user());
  Connection blocker(fs::canonical(user()), Connection::Mode::kReadWrite);
  bool locks = false;
  // The missing database of the site is told of once the user's is open, before its list is read.
  const LogSink locking = [&](LogLevel level, std::string_view text) {
    sink()(level, text);
    if (std::exchange(locks, false)) blocker.execute("BEGIN EXCLUSIVE");
  };
  const fs::path site = directory_ / "site.db";
  Databases databases({user(), std::nullopt, false, std::chrono::milliseconds(1), {}, {}, {site}},
                      locking);
  const auto only_defaults = [&] {
    return databases.read([](LayeredStore& s) { return s.serves_defaults_only(); });
  };
  EXPECT_FALSE(only_defaults());
  add_request(user());
  locks = true;
  EXPECT_TRUE(databases.refresh());
  EXPECT_FALSE(locks) << "the lock came while databases were opened";
  EXPECT_TRUE(only_defaults());
  EXPECT_THAT(warnings_.back(), HasSubstr("serving default kernels only"));
  EXPECT_FALSE(databases.refresh()) << "it is locked still";
  EXPECT_TRUE(only_defaults());
  blocker.execute("COMMIT");
  EXPECT_TRUE(databases.refresh());
  EXPECT_FALSE(only_defaults());
}

TEST_F(DatabasesTest, CompilerVersionsOfBothLayersAreListedOnce) {
  const auto put = [](const fs::path& file, std::uint8_t number, const char* version) {
    Binary binary;
    binary.kernel_key.bytes[0] = number;
    binary.arch = "sm_90";
    binary.compiler_version = version;
    binary.entry = "entry";
    binary.image.resize(16);
    Store::open(file, Access::kReadWrite)->put_binary(binary);
  };
  put(user(), 1, "nvrtc 13.0 a");
  put(user(), 2, "nvrtc 13.0 a");
  put(user(), 3, "nvrtc 12.4 b");
  put(shipped(), 4, "nvrtc 13.0 a");
  put(shipped(), 5, "nvrtc 12.0 c");
  Databases databases({user(), shipped(), false}, sink());
  EXPECT_THAT(databases.compiler_versions(),
              ElementsAre("nvrtc 12.0 c", "nvrtc 12.4 b", "nvrtc 13.0 a"));
}

// --- the block list: what cannot be read lets nothing run that could be on it

TEST_F(DatabasesTest, AUsersFileThatCannotBeReadLeavesDefaultsOnlyUntilItCan) {
  fill(*Store::open(user(), Access::kReadWrite));
  fill(*Store::open(shipped(), Access::kReadWrite));
  const std::string whole = read_bytes(user());
  const auto winners = [](Databases& databases) {
    return databases.read([](LayeredStore& s) {
      return s.find_winners(sample_device(), sample_problem(), Objective::kCold).size();
    });
  };
  const std::string newer = [&] {
    Connection(user(), Connection::Mode::kReadWrite).execute("PRAGMA user_version = 999");
    return read_bytes(user());
  }();
  for (const std::string& unreadable : {whole.substr(0, whole.size() / 2), newer}) {
    write_bytes(user(), unreadable);
    warnings_.clear();
    Databases databases({user(), shipped(), false}, sink());
    EXPECT_EQ(winners(databases), 0U) << "nothing says what is blocked";
    EXPECT_EQ(databases.openings_without_blocks(), 1U);
    ASSERT_THAT(warnings_, testing::SizeIs(1));
    EXPECT_THAT(warnings_[0], HasSubstr("default kernels only"));
    fs::remove(user());
    write_bytes(user(), whole);
    EXPECT_TRUE(databases.refresh());
    EXPECT_EQ(winners(databases), 2U);
    EXPECT_EQ(databases.openings_without_blocks(), 1U);
  }
}

constexpr int kLookErrors[] = {EIO,   ESTALE,    ENOTCONN, ETIMEDOUT, ENOMEM,
                               ELOOP, EHOSTDOWN, EACCES,   EOVERFLOW};

// A user's file with a block list and no winner, above a shipped one with a winner.
class LostLookTest : public DatabasesTest {
 protected:
  void SetUp() override {
    Store::open(user(), Access::kReadWrite)->block(sample_block(1));
    fill(*Store::open(shipped(), Access::kReadWrite));
  }
  Databases::Places places() const { return {user(), shipped(), false}; }
  static std::size_t winners(Databases& databases) {
    return databases.read([](LayeredStore& s) {
      return s.find_winners(sample_device(), sample_problem(), Objective::kCold).size();
    });
  }
};

TEST_F(LostLookTest, AFileThatCannotBeLookedAtLeavesDefaultsOnlyUntilItCan) {
  for (const int error : kLookErrors) {
    SCOPED_TRACE(::strerrorname_np(error));
    warnings_.clear();
    std::optional<FailingLook> lost(std::in_place, user(), error);
    Databases databases(places(), sink());
    EXPECT_EQ(winners(databases), 0U) << "nothing says what is blocked";
    EXPECT_FALSE(databases.refresh()) << "it is as it was";
    EXPECT_EQ(winners(databases), 0U);
    EXPECT_GE(databases.openings_without_blocks(), 1U);
    ASSERT_THAT(warnings_, testing::SizeIs(1)) << "said once";
    EXPECT_THAT(warnings_[0], HasSubstr("default kernels only"));
    lost.reset();
    EXPECT_TRUE(databases.refresh());
    EXPECT_EQ(winners(databases), 1U);
  }
}

TEST_F(LostLookTest, AFileThatCannotBeLookedAtAtARefreshLeavesDefaultsOnly) {
  for (const int error : kLookErrors) {
    SCOPED_TRACE(::strerrorname_np(error));
    warnings_.clear();
    Databases databases(places(), sink());
    EXPECT_EQ(winners(databases), 1U);
    EXPECT_EQ(databases.openings_without_blocks(), 0U);
    const FailingLook lost(user(), error);
    EXPECT_TRUE(databases.refresh());
    EXPECT_EQ(winners(databases), 0U) << "a server must not unblock a kernel by a hiccup";
    EXPECT_EQ(databases.openings_without_blocks(), 1U);
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("default kernels only")));
  }
}

// From absent to lost nothing else changes.
TEST_F(LostLookTest, APlaceThatWasEmptyAndCannotBeLookedAtAnyMoreIsLost) {
  fs::remove(user());
  Databases databases(places(), sink());
  EXPECT_EQ(winners(databases), 1U);
  const FailingLook lost(user(), ESTALE);
  EXPECT_TRUE(databases.refresh());
  EXPECT_EQ(winners(databases), 0U);
}

TEST_F(LostLookTest, ALayerOfTheSitesThatCannotBeLookedAtLeavesDefaultsOnly) {
  Databases::Places of_site{directory_ / "none.db", shipped(), false};
  of_site.sites = {user()};
  for (const int error : kLookErrors) {
    warnings_.clear();
    Databases databases(of_site, sink());
    EXPECT_EQ(winners(databases), 1U);
    const FailingLook lost(user(), error);
    EXPECT_TRUE(databases.refresh());
    EXPECT_EQ(winners(databases), 0U) << ::strerrorname_np(error);
    Databases later(of_site, sink());
    EXPECT_EQ(winners(later), 0U) << ::strerrorname_np(error);
    EXPECT_EQ(later.openings_without_blocks(), 1U);
  }
}

TEST_F(LostLookTest, AnEmptyFileIsAnAbsentOne) {
  write_bytes(user(), "");
  Databases databases(places(), sink());
  EXPECT_EQ(winners(databases), 1U) << "it holds no block list";
  EXPECT_EQ(databases.openings_without_blocks(), 0U);
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_FALSE(databases.write("a block", [](Store& s) { s.block(sample_block(1)); }))
      << "a writer fills it";
  EXPECT_TRUE(databases.refresh());
  EXPECT_EQ(databases.read([](LayeredStore& s) { return s.user().blocks().size(); }), 1U);
}

TEST_F(LostLookTest, AnEmptyLayerOfTheSitesIsNamedAsAMissingOne) {
  Databases::Places of_site{user(), shipped(), false};
  of_site.sites = {directory_ / "empty.pack"};
  write_bytes(of_site.sites[0], "");
  Databases databases(of_site, sink());
  EXPECT_EQ(winners(databases), 1U);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("empty.pack, which is not there or empty")));
}

// --- file systems without locks

TEST_F(DatabasesTest, WithoutLocksAFileIsReadAndItsCommitsAreNoticed) {
  for (const int error : {ENOLCK, EACCES, EIO, EINVAL, ENOSYS}) {
    SCOPED_TRACE(::strerrorname_np(error));
    fs::remove(user());
    warnings_.clear();
    add_request(user());
    std::optional<FailingLocks> none(std::in_place, error);
    Databases databases({user(), std::nullopt, false}, sink());
    const auto blocks = [](LayeredStore& s) { return s.blocks().size(); };
    EXPECT_EQ(databases.read([](LayeredStore& s) { return s.user().requests().size(); }), 1U);
    EXPECT_FALSE(databases.refresh());
    EXPECT_TRUE(databases.write("a block", [](Store& s) { s.block(sample_block(1)); }));
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("has no locks")));
    none.reset();  // as on another machine
    Store::open(user(), Access::kReadWrite)->block(sample_block(1));
    none.emplace(error);
    EXPECT_TRUE(databases.refresh());
    EXPECT_EQ(databases.read(blocks), 1U);
    EXPECT_EQ(databases.openings_without_blocks(), 0U);
  }
}

// --- the layers that VITUNE_DB names

class SiteDatabasesTest : public DatabasesTest {
 protected:
  fs::path pack() const { return directory_ / "site.pack"; }
  Databases::Places places() const {
    Databases::Places places{user(), std::nullopt, false};
    places.sites = {pack()};
    return places;
  }
  // A pack with the winner of one config, put in the place of the last one.
  void write_pack(std::int64_t config) const {
    const fs::path from = directory_ / "from.db";
    fs::remove(from);
    const Binary binary = sample_binary(config);
    const auto store = Store::open(from, Access::kReadWrite);
    store->promote(sample_device(), sample_problem(), sample_winner(config), &binary);
    store->write_pack(pack(), {"test", {}, {}});
  }
  static std::optional<std::int64_t> served(Databases& databases) {
    return databases.read([](LayeredStore& s) -> std::optional<std::int64_t> {
      const auto found = s.find_winners(sample_device(), sample_problem(), Objective::kCold);
      if (found.empty()) return std::nullopt;
      return found[0].winner.config.at("kBlockN") / 8;
    });
  }
};

TEST_F(SiteDatabasesTest, APackIsReadAndItsReplacementIsNoticed) {
  write_pack(1);
  Databases databases(places(), sink());
  EXPECT_EQ(served(databases), 1);
  EXPECT_FALSE(databases.refresh());
  write_pack(2);
  EXPECT_EQ(served(databases), 1) << "the old file is still open";
  EXPECT_TRUE(databases.refresh());
  EXPECT_EQ(served(databases), 2);
  EXPECT_FALSE(databases.refresh());
  EXPECT_THAT(databases.compiler_versions(), ElementsAre("13.0"));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(SiteDatabasesTest, AMissingLayerIsNamedOnceAndReadOnceItIsThere) {
  Databases databases(places(), sink());
  EXPECT_FALSE(databases.refresh());
  EXPECT_THAT(warnings_,
              ElementsAre(testing::AllOf(HasSubstr("VITUNE_DB"), HasSubstr(pack().string()))));
  EXPECT_EQ(databases.openings_without_blocks(), 0U);
  write_pack(1);
  EXPECT_TRUE(databases.refresh());
  EXPECT_EQ(served(databases), 1);
}

TEST_F(SiteDatabasesTest, ALayerThatCannotBeReadLeavesDefaultsOnlyUntilItCan) {
  fill(*Store::open(user(), Access::kReadWrite));
  write_pack(1);
  const std::string whole = read_bytes(pack());
  const fs::path spoilt = directory_ / "spoilt";
  for (const std::string& content : {whole.substr(0, whole.size() / 2), std::string("no pack")}) {
    write_bytes(spoilt, content);
    fs::rename(spoilt, pack());
    warnings_.clear();
    Databases databases(places(), sink());
    EXPECT_EQ(served(databases), std::nullopt) << "its block list is not known";
    EXPECT_EQ(databases.openings_without_blocks(), 1U);
    ASSERT_THAT(warnings_, testing::SizeIs(1));
    EXPECT_THAT(warnings_[0],
                testing::AllOf(HasSubstr("default kernels only"), HasSubstr(pack().string())));
    write_bytes(spoilt, whole);
    fs::rename(spoilt, pack());
    EXPECT_TRUE(databases.refresh());
    EXPECT_TRUE(served(databases));
  }
}

TEST_F(SiteDatabasesTest, ALayerOfAnotherUserIsReadOnlyIfItsOwnerIsTrusted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  constexpr uid_t kOther = 12345;
  write_pack(1);
  ASSERT_EQ(::chown(pack().c_str(), kOther, kOther), 0);
  Databases distrustful(places(), sink());
  EXPECT_EQ(served(distrustful), std::nullopt);
  ASSERT_THAT(warnings_, testing::SizeIs(1));
  EXPECT_THAT(warnings_[0], HasSubstr("12345"));
  Databases::Places trusting = places();
  trusting.trust.owners.push_back(kOther);
  Databases databases(trusting, sink());
  EXPECT_EQ(served(databases), 1);
}

TEST_F(SiteDatabasesTest, NothingIsEverWrittenToALayer) {
  write_pack(1);
  const std::string before = read_bytes(pack());
  Databases databases(places(), sink());
  EXPECT_FALSE(databases.write("something", [](Store& s) { s.block(sample_block(1)); }));
  EXPECT_EQ(read_bytes(pack()), before);
  EXPECT_TRUE(fs::exists(user()));
}

TEST_F(DatabasesTest, ALockIsWaitedForAsLongAsTheSettingsSay) {
  fill(*Store::open(user(), Access::kReadWrite));
  const auto is_lost = [&](std::chrono::milliseconds patience) {
    Databases databases({user(), std::nullopt, false, patience}, sink());
    return databases.openings_without_blocks() > 0;
  };
  Connection writer(fs::canonical(user()), Connection::Mode::kReadWrite);
  writer.execute("BEGIN EXCLUSIVE");
  EXPECT_TRUE(is_lost(std::chrono::milliseconds(1)));
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    writer.execute("COMMIT");
  });
  EXPECT_FALSE(is_lost(std::chrono::seconds(60)));
  release.join();
}

}  // namespace
}  // namespace vitune::test
