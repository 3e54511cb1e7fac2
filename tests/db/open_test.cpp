// tests/db/open_test.cpp -- Which files are opened, created, refused and left alone.
// SPDX-License-Identifier: Apache-2.0
#include <grp.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "db/migrate.h"
#include "db/open_file.h"
#include "tests/db/test_support.h"
#include "tests/faked_looks.h"

namespace vitune {
namespace {

using test::sample_config;
using test::sample_device;
using test::sample_problem;
using test::sample_trial;
using test::sample_winner;
using test::fs::path;

constexpr uid_t kNobody = 65534;

// The text of the Error(kDatabase) that opening throws, or "" if it opens.
std::string refusal(const path& file, Access access, const Trust& trust = {}) {
  try {
    Store::open(file, access, {}, {}, nullptr, trust);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDatabase) << error.what();
    return error.what();
  }
}

void expect_refused(const path& file, const std::string& reason) {
  for (const Access access : {Access::kReadOnly, Access::kReadWrite}) {
    const std::string text = refusal(file, access);
    EXPECT_NE(text.find(reason), std::string::npos) << "got: \"" << text << "\"";
    EXPECT_NE(text.find(file.filename().string()), std::string::npos) << text;
  }
}

mode_t mode_of(const path& file) {
  struct ::stat info {};
  EXPECT_EQ(::stat(file.c_str(), &info), 0) << file;
  return info.st_mode & 07777;
}

class Opening : public testing::Test {
 protected:
  void make(const std::function<void(Connection&)>& change = {}) {
    test::fill(*Store::open(file_, Access::kReadWrite));
    if (!change) return;
    Connection raw(file_, Connection::Mode::kReadWrite);
    change(raw);
  }
  test::TempDir dir_;
  path file_ = dir_ / "v.db";
};

TEST_F(Opening, ANewFileIsPrivateAndSoAreTheDirectoriesMadeForIt) {
  const path deep = dir_ / "a" / "b" / "v.db";
  const mode_t mask = ::umask(0);
  Store::open(deep, Access::kReadWrite);
  ::umask(mask);
  EXPECT_EQ(mode_of(deep), 0600U);
  EXPECT_EQ(mode_of(deep.parent_path()), 0700U);
  EXPECT_EQ(mode_of(deep.parent_path().parent_path()), 0700U);
}

TEST_F(Opening, AnEmptyFileIsFilledByAWriterAndRefusedByAReader) {
  test::write_bytes(file_, "");
  EXPECT_NE(refusal(file_, Access::kReadOnly).find("empty"), std::string::npos);
  EXPECT_EQ(refusal(file_, Access::kReadWrite), "");
  EXPECT_EQ(refusal(file_, Access::kReadOnly), "");
}

TEST_F(Opening, OnlyWhatIsNotThereOrEmptyIsAbsent) {
  EXPECT_TRUE(is_absent(file_));
  test::write_bytes(file_, "");
  EXPECT_TRUE(is_absent(file_));
  test::write_bytes(file_, "x");
  EXPECT_FALSE(is_absent(file_));
  EXPECT_TRUE(is_absent(file_ / "below.db")) << "a file is no directory";
  EXPECT_FALSE(is_absent("/dev/null")) << "no regular file";
  for (const int error : {EIO, ESTALE, ENOTCONN, ETIMEDOUT, ENOMEM, ELOOP, EHOSTDOWN, EACCES,
                          EOVERFLOW, ENAMETOOLONG}) {
    const test::FailingLook failing(file_, error);
    EXPECT_FALSE(is_absent(file_)) << ::strerrorname_np(error);
  }
}

TEST_F(Opening, AnAccessControlListThatLetsOthersWriteIsRefused) {
  make();
  // The list of uid 1001, as the kernel gives it: user, named user, group, mask, others.
  const std::string list(
      "\2\0\0\0\1\0\6\0\xff\xff\xff\xff\2\0\6\0\xe9\3\0\0\4\0\4\0\xff\xff\xff\xff"
      "\x10\0\6\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff",
      44);
  {
    ASSERT_EQ(::chmod(file_.c_str(), 0660), 0);
    const test::FakedAccessList faked(file_, list);
    expect_refused(file_, "may be written by other users");
    EXPECT_EQ(refusal(file_, Access::kReadOnly, {{1001}}), "") << "who is trusted may write";
  }
  ASSERT_EQ(::chmod(file_.c_str(), 0600), 0);
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0770), 0);
  const test::FakedAccessList faked(dir_.path(), list);
  EXPECT_NE(refusal(file_, Access::kReadOnly).find("other users may write to this directory"),
            std::string::npos);
}

TEST_F(Opening, AMissingFileIsAnErrorForAReaderAndIsNotCreated) {
  EXPECT_NE(refusal(file_, Access::kReadOnly).find("no such file"), std::string::npos);
  EXPECT_FALSE(test::fs::exists(file_));
  EXPECT_NE(refusal(dir_ / "none" / "v.db", Access::kReadOnly).find("no such directory"),
            std::string::npos);
  EXPECT_FALSE(test::fs::exists(dir_ / "none"));
}

TEST_F(Opening, ForeignNewerAndHostileFilesAreRefusedAndUnchangedByteForByte) {
  struct Case {
    const char* sql;
    const char* reason;
  };
  const Case cases[] = {
      {"PRAGMA user_version = 5", "schema version 5"},
      {"PRAGMA user_version = 2147483647", "schema version 2147483647"},
      {"PRAGMA application_id = 1234", "another program"},
      {"PRAGMA application_id = 0", "another program"},
      {"PRAGMA user_version = 0", "another program"},
      {"PRAGMA user_version = -1", "another program"},
      {"DROP TABLE winner; CREATE VIEW winner AS SELECT * FROM trial", "its tables are not"},
      {"CREATE VIEW extra AS SELECT * FROM trial", "its tables are not"},
      {"CREATE TRIGGER t AFTER INSERT ON trial BEGIN DELETE FROM winner; END",
       "its tables are not"},
      {"CREATE INDEX i ON trial (cold_us)", "its tables are not"},
      {"DROP TABLE block", "its tables are not"},
      {"ALTER TABLE request ADD COLUMN extra TEXT", "its tables are not"},
      {"ALTER TABLE request RENAME COLUMN calls TO count", "its tables are not"},
      {"ALTER TABLE request RENAME TO requests", "its tables are not"},
      {"CREATE VIRTUAL TABLE f USING fts5(x)", "its tables are not"},
  };
  for (const Case& c : cases) {
    test::fs::remove(file_);
    make([&](Connection& raw) { raw.execute(c.sql); });
    const std::string before = test::read_bytes(file_);
    expect_refused(file_, c.reason);
    EXPECT_EQ(test::read_bytes(file_), before) << c.sql;
  }
}

TEST_F(Opening, AFileThatIsNoDatabaseIsRefusedAndUnchanged) {
  for (const std::string& text :
       {std::string("hello"), std::string(8192, 'x'), std::string(100, '\0'),
        std::string("SQLite format 3\0and then nothing sensible", 41)}) {
    test::write_bytes(file_, text);
    EXPECT_NE(refusal(file_, Access::kReadOnly), "");
    EXPECT_NE(refusal(file_, Access::kReadWrite), "");
    EXPECT_EQ(test::read_bytes(file_), text);
  }
}

TEST_F(Opening, DamageInTheTreeIsRefusedForWritingBeforeItGetsWorse) {
  make();
  std::string bytes = test::read_bytes(file_);
  for (std::size_t i = 3 * 4096; i < bytes.size(); i += 4096) bytes.replace(i, 40, 40, '\x5a');
  test::write_bytes(file_, bytes);
  EXPECT_NE(refusal(file_, Access::kReadWrite).find("db salvage"), std::string::npos);
  EXPECT_EQ(test::read_bytes(file_), bytes);
}

TEST_F(Opening, ALinkIsRefusedInThePlaceOfTheFileAndFollowedInItsDirectory) {
  make();
  test::fs::create_symlink(file_, dir_ / "link.db");
  expect_refused(dir_ / "link.db", "symbolic link");
  test::fs::create_symlink(dir_ / "nowhere.db", dir_ / "dangling.db");
  expect_refused(dir_ / "dangling.db", "symbolic link");
  EXPECT_FALSE(test::fs::exists(dir_ / "nowhere.db"));
  test::fs::create_directory_symlink(dir_.path(), dir_ / "here");
  EXPECT_EQ(refusal(dir_ / "here" / "v.db", Access::kReadWrite), "");
}

TEST_F(Opening, APlantedJournalLinkIsRefused) {
  make();
  test::fs::remove(file_.string() + "-journal");
  test::fs::create_symlink(dir_ / "victim", file_.string() + "-journal");
  EXPECT_NE(refusal(file_, Access::kReadWrite).find("symbolic link"), std::string::npos);
  EXPECT_FALSE(test::fs::exists(dir_ / "victim"));
}

TEST_F(Opening, FifosDevicesAndDirectoriesAreRefusedWithoutBlocking) {
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  expect_refused(file_, "not a regular file");
  expect_refused("/dev/full", "not a regular file");
  expect_refused("/dev/zero", "not a regular file");
  test::fs::create_directory(dir_ / "d.db");
  expect_refused(dir_ / "d.db", "not a regular file");
  expect_refused(path("/") / ".", "names no file");
}

TEST_F(Opening, AFileWithASecondNameIsRefused) {
  make();
  test::fs::create_hard_link(file_, dir_ / "second.db");
  expect_refused(file_, "hard link");
  EXPECT_EQ(refusal(file_, Access::kReadOnly, {{}, {}, true}), "") << "as package managers install";
}

TEST_F(Opening, ADirectoryThatOthersMayWriteToIsRefused) {
  const path shared = dir_ / "shared";
  test::fs::create_directory(shared);
  ASSERT_EQ(::chmod(shared.c_str(), 0777), 0);
  EXPECT_NE(refusal(shared / "v.db", Access::kReadWrite).find("other users may write"),
            std::string::npos);
  EXPECT_TRUE(test::fs::is_empty(shared));
  // One level up is as bad.
  const path below = shared / "below";
  test::fs::create_directory(below);
  EXPECT_NE(refusal(below / "v.db", Access::kReadWrite).find("other users may write"),
            std::string::npos);
}

TEST_F(Opening, InAStickyDirectoryTheJournalIsOursBeforeAnythingElse) {
  const path shared = dir_ / "sticky";
  test::fs::create_directory(shared);
  ASSERT_EQ(::chmod(shared.c_str(), 01777), 0);
  EXPECT_EQ(refusal(shared / "v.db", Access::kReadWrite), "");
  EXPECT_EQ(mode_of(shared / "v.db-journal"), 0600U);
}

TEST_F(Opening, AnotherUsersDirectoryIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  const path other = dir_ / "other";
  test::fs::create_directory(other);
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  for (const mode_t mode : {0777U, 0755U}) {
    ASSERT_EQ(::chmod(other.c_str(), mode), 0);
    ASSERT_EQ(::chown(other.c_str(), 12345, 12345), 0);
    const int status = test::in_child([&] {
      if (::setgroups(0, nullptr) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)
        return 3;
      return refusal(other / "v.db", Access::kReadWrite).find("another user") != std::string::npos
                 ? 0
                 : 1;
    });
    EXPECT_EQ(status, 0) << std::oct << mode;
  }
}

TEST_F(Opening, AReadOnlyDirectoryServesReadersAndTellsWriters) {
  make();
  test::fs::remove(file_.string() + "-journal");
  ASSERT_EQ(::chmod(file_.c_str(), 0444), 0);
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0555), 0);
  const int status = test::in_child([&] {
    // Root is above modes, so it steps down.
    if (::geteuid() == 0 &&
        (::setgroups(0, nullptr) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) {
      return 3;
    }
    const auto reader = Store::open(file_, Access::kReadOnly);
    if (reader->winners().size() != 6) return 4;
    if (!reader->check().integrity_ok) return 5;
    const std::string text = refusal(file_, Access::kReadWrite);
    if (text.find("may not write") == std::string::npos) return 6;
    return refusal(dir_ / "new.db", Access::kReadWrite).find("ermission") != std::string::npos ? 0
                                                                                               : 7;
  });
  EXPECT_EQ(status, 0);
}

TEST_F(Opening, AnImmutableConnectionTakesAnyNameLiterally) {
  const path odd = dir_ / "a?b#c%41.db";
  test::fill(*Store::open(odd, Access::kReadWrite));
  Connection connection(odd, Connection::Mode::kImmutable);
  EXPECT_EQ(connection.integer("SELECT count(*) FROM winner"), 6);
  EXPECT_THROW(connection.execute("DELETE FROM winner"), DatabaseError);
}

TEST_F(Opening, AFileThatIsMovedOrDeletedWhileItIsOpenIsSaidToBe) {
  for (const bool deleted : {false, true}) {
    make();
    const auto store = Store::open(file_, Access::kReadWrite);
    if (deleted) {
      test::fs::remove(file_);
    } else {
      test::fs::rename(file_, file_.string() + ".aside");
    }
    try {
      store->put_trial(sample_device(), sample_problem(), sample_trial(1));
      ADD_FAILURE() << "wrote into a file that is gone";
    } catch (const DatabaseError& error) {
      EXPECT_EQ(error.fault(), DatabaseFault::kMoved);
      EXPECT_NE(std::string(error.what()).find("moved, replaced or deleted"), std::string::npos);
      EXPECT_EQ(std::string(error.what()).find("may not write"), std::string::npos);
    }
  }
}

// --- migration, with scripts of its own on top of the built-in ones

std::vector<MigrationStep> with(std::initializer_list<MigrationStep> more) {
  auto steps = built_in_steps();
  steps.insert(steps.end(), more);
  return steps;
}

const int kCurrent = static_cast<int>(built_in_steps().size());

std::vector<path> backups(const path& directory, int version) {
  std::vector<path> found;
  for (const auto& entry : test::fs::directory_iterator(directory)) {
    if (entry.path().string().find("v.db.v" + std::to_string(version) + "-") != std::string::npos)
      found.push_back(entry.path());
  }
  return found;
}

TEST_F(Opening, AnOlderFileIsBackedUpAndMigrated) {
  make();
  int calls = 0;
  const auto steps = with({{"ALTER TABLE request ADD COLUMN note TEXT",
                            [&](Connection& of) { calls += of.name() == ":memory:" ? 0 : 1; }},
                           {"CREATE INDEX by_time ON trial (cold_us)", {}}});
  {
    const auto connection = open_for_writing(file_, steps, {});
    EXPECT_EQ(connection->integer("PRAGMA user_version"), kCurrent + 2);
    EXPECT_EQ(connection->integer("SELECT count(*) FROM winner"), 6);
    EXPECT_EQ(connection->integer("SELECT count(*) FROM request WHERE note IS NULL"), 1);
  }
  EXPECT_EQ(calls, 1);
  ASSERT_EQ(backups(dir_.path(), kCurrent).size(), 1U);
  const auto backup = Store::open(backups(dir_.path(), kCurrent)[0], Access::kReadOnly);
  EXPECT_EQ(backup->winners().size(), 6U);
  EXPECT_EQ(mode_of(backups(dir_.path(), kCurrent)[0]), 0600U);
  EXPECT_NE(
      refusal(file_, Access::kReadWrite).find("schema version " + std::to_string(kCurrent + 2)),
      std::string::npos);
  open_for_writing(file_, steps, {});
  EXPECT_EQ(calls, 1) << "a current file is not migrated again";
}

TEST_F(Opening, AMigrationThatFailsLeavesTheOldSchemaAndAllRows) {
  make();
  const auto steps =
      with({{"ALTER TABLE request ADD COLUMN note TEXT", {}}, {"not SQL at all", {}}});
  EXPECT_THROW(open_for_writing(file_, steps, {}), Error);
  const auto throwing = with({{"ALTER TABLE request ADD COLUMN note TEXT", [](Connection&) {
                                 throw Error(ErrorCode::kFailure, "stopped in the middle");
                               }}});
  EXPECT_THROW(open_for_writing(file_, throwing, {}), Error);
  const auto store = Store::open(file_, Access::kReadWrite);
  EXPECT_EQ(store->winners().size(), 6U);
  EXPECT_EQ(store->stats().schema_version, kCurrent);
  EXPECT_TRUE(backups(dir_.path(), kCurrent).empty());
}

TEST_F(Opening, AMigrationThatWaitsInVainForALockLeavesNoCopy) {
  make();
  const auto steps = with({{"ALTER TABLE request ADD COLUMN note TEXT", {}}});
  constexpr std::chrono::milliseconds kPatience{50};
  const auto expect_locked = [&] {
    try {
      open_for_writing(file_, steps, {}, kPatience);
      ADD_FAILURE() << "migrated under a lock";
    } catch (const DatabaseError& error) {
      EXPECT_EQ(error.fault(), DatabaseFault::kLocked);
    }
    EXPECT_TRUE(backups(dir_.path(), kCurrent).empty());
  };
  {
    Connection reader(file_, Connection::Mode::kReadOnly);
    const Transaction transaction(reader, Transaction::Kind::kRead);
    reader.integer("SELECT count(*) FROM winner");
    expect_locked();  // when it commits
  }
  {
    Connection writer(file_, Connection::Mode::kReadWrite);
    const Transaction transaction(writer);
    expect_locked();  // when it begins
  }
  open_for_writing(file_, steps, {}, kPatience);
  ASSERT_EQ(backups(dir_.path(), kCurrent).size(), 1U);
  EXPECT_EQ(Store::open(backups(dir_.path(), kCurrent)[0], Access::kReadOnly)->winners().size(),
            6U);
}

}  // namespace
}  // namespace vitune
