// tests/db/pack_test.cpp -- Packs: what goes in, that they are whole, that nothing writes to them.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "db/sqlite.h"
#include "db/store.h"
#include "db/table.h"
#include "db/tables.h"
#include "db/winner_table.h"
#include "tests/db/test_support.h"
#include "tests/faked_looks.h"

namespace vitune::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class PackTest : public ::testing::Test {
 protected:
  // fill() has winners with their kernels on the device of 60 SMs, without on that of 132.
  PackTest() : store_(Store::open(directory_ / "all.db", Access::kReadWrite)) {
    fill(*store_);
    for (const int tokens : {197, 257}) {
      const Binary binary = sample_binary(tokens);
      store_->promote(sample_device(), sample_problem(tokens), sample_winner(tokens), &binary);
    }
  }
  PackReport pack(PackOrder order = {"of a test", {}, {}}) {
    return store_->write_pack(pack_, order);
  }
  std::unique_ptr<Store> read() const { return Store::open(pack_, Access::kReadOnly); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_.path()))
      names.push_back(entry.path().filename().string());
    return names;
  }

  TempDir directory_;
  const fs::path pack_ = directory_ / "site.pack";
  std::unique_ptr<Store> store_;
};

TEST_F(PackTest, HoldsTheWinnersThatHaveTheirKernelsAndTheBlocksOfTheirDevices) {
  const PackReport report = pack();
  EXPECT_EQ(report.devices, 2);
  EXPECT_EQ(report.winners, 5);
  EXPECT_EQ(report.binaries, 3) << "kernels that two devices share";
  EXPECT_EQ(report.blocks, 1);
  EXPECT_EQ(report.without_kernel, 1);
  const auto packed = read();
  EXPECT_EQ(packed->find_winner(sample_device(), sample_problem(257), Objective::kCold),
            store_->find_winner(sample_device(), sample_problem(257), Objective::kCold));
  EXPECT_EQ(packed->find_binary(sample_key(257))->image, sample_binary(257).image);
  EXPECT_THAT(packed->all_trials(), IsEmpty());
  EXPECT_THAT(packed->requests(), IsEmpty());
  EXPECT_THAT(packed->blocks(), SizeIs(1));
  EXPECT_TRUE(packed->block_list_is_whole());
  EXPECT_THAT(packed->check().problems, IsEmpty());
  struct ::stat info {};
  ASSERT_EQ(::stat(pack_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0444U);
  EXPECT_THAT(names(), ::testing::UnorderedElementsAre("all.db", "all.db-journal", "site.pack"));
}

TEST_F(PackTest, SaysWhoMadeItAndWhatItHolds) {
  const PackReport report = pack({"site A, week 48", {}, {}});
  const auto seal = read()->pack_seal();
  ASSERT_TRUE(seal);
  EXPECT_EQ(seal->label, "site A, week 48");
  EXPECT_EQ(seal->content, report.content);
  EXPECT_EQ(seal->content, read()->content_digest());
  EXPECT_FALSE(store_->pack_seal()) << "the database itself is none";
}

TEST_F(PackTest, TheSameRowsAndLabelMakeTheSameBytes) {
  pack();
  const std::string first = read_bytes(pack_);
  pack();
  EXPECT_EQ(read_bytes(pack_), first);
}

TEST_F(PackTest, TakesWhatIsWantedAndCanBeServed) {
  const auto of_132 = [](const DeviceInfo& device) { return device.sm_count == 132; };
  EXPECT_EQ(pack({"x", of_132, {}}).devices, 1);
  EXPECT_THAT(read()->winners(), SizeIs(2));
  const auto only_257 = [](const DeviceInfo&, const ProblemKey& problem, const Winner&) {
    return problem == sample_problem(257);
  };
  const PackReport report = pack({"x", of_132, only_257});
  EXPECT_EQ(report.winners, 1);
  EXPECT_EQ(report.stale, 2);
  Winner imported = sample_winner(197);
  imported.verified = false;
  store_->promote(sample_device(), sample_problem(1025), imported, nullptr);
  EXPECT_EQ(pack({"x", of_132, {}}).unverified, 1);
}

TEST_F(PackTest, AReplayedWinnerGoesInOnlyIfItIsAskedFor) {
  const std::int64_t measured = pack().winners;
  Winner replayed = sample_winner(257);
  replayed.origin = Origin::kReplayed;
  const Binary binary = sample_binary(257);
  store_->promote(sample_device(), sample_problem(4097), replayed, &binary);
  const PackReport without = pack();
  EXPECT_EQ(without.winners, measured);
  EXPECT_EQ(without.replayed, 1);
  const PackReport with = pack({"x", {}, {}, true});
  EXPECT_EQ(with.winners, measured + 1);
  EXPECT_EQ(with.replayed, 1);
}

TEST_F(PackTest, NothingWritesToIt) {
  pack();
  const std::string before = read_bytes(pack_);
  try {
    Store::open(pack_, Access::kReadWrite);
    FAIL() << "it was opened for writing";
  } catch (const DatabaseError& error) {
    EXPECT_THAT(error.what(), HasSubstr("is a pack"));
    EXPECT_THAT(error.what(), HasSubstr("VITUNE_DB=:" + pack_.string()));
  }
  EXPECT_EQ(read_bytes(pack_), before);
}

TEST_F(PackTest, ReplacesAPackAndNothingElse) {
  const auto all = directory_ / "other.db";
  fill(*Store::open(all, Access::kReadWrite));
  const std::string before = read_bytes(all);
  EXPECT_THROW(store_->write_pack(all, {"x", {}, {}}), DatabaseError);
  EXPECT_EQ(read_bytes(all), before);
  write_bytes(pack_, "somebody's file");
  EXPECT_THROW(pack(), DatabaseError);
  EXPECT_EQ(read_bytes(pack_), "somebody's file");
  fs::remove(pack_);
  pack();
  const auto reader = read();
  const auto of_60 = [](const DeviceInfo& device) { return device.sm_count == 60; };
  pack({"new", of_60, {}});
  EXPECT_EQ(reader->pack_seal()->label, "of a test") << "who has the old one open keeps it";
  EXPECT_THAT(reader->winners(), SizeIs(5));
  EXPECT_EQ(read()->pack_seal()->label, "new");
  EXPECT_THAT(read()->winners(), SizeIs(3));
}

// SQLite would play it back into the pack when that is next opened.
TEST_F(PackTest, NoneIsWrittenWhereItWouldMeetAJournalOfAnother) {
  for (const bool replaces : {false, true}) {
    const std::string before = replaces ? read_bytes(pack_) : "";
    for (const char* suffix : {"-journal", "-wal", "-shm"}) {
      const fs::path journal = pack_.string() + suffix;
      write_bytes(journal, "of a database that was moved away");
      try {
        pack();
        ADD_FAILURE() << "packed beside " << journal;
      } catch (const DatabaseError& error) {
        EXPECT_EQ(error.fault(), DatabaseFault::kUnsafe);
        EXPECT_THAT(error.what(), HasSubstr(journal.string() + " lies beside its place"));
      }
      EXPECT_EQ(read_bytes(journal), "of a database that was moved away");
      EXPECT_EQ(replaces ? read_bytes(pack_) : "", before);
      fs::remove(journal);
    }
    EXPECT_EQ(fs::exists(pack_), replaces);
    write_bytes(pack_.string() + "-journal", "");  // as a writer leaves it that is done
    pack();
    EXPECT_NO_THROW(read()->require_whole());
    fs::remove(pack_.string() + "-journal");
  }
}

TEST_F(PackTest, NoneIsWrittenOverOrBesideWhatCannotBeLookedAt) {
  const fs::path database = directory_ / "all.db";
  const std::string before = read_bytes(database);
  const std::string journal = pack_.string() + "-journal";
  for (const int error : {EIO, ESTALE, ENOTCONN, EACCES}) {
    SCOPED_TRACE(::strerrorname_np(error));
    {
      const FailingLook lost(database, error);
      EXPECT_THROW(store_->write_pack(database, {"x", {}, {}}), DatabaseError);
    }
    EXPECT_TRUE(read_bytes(database) == before) << "a database is lost";
    const FailingLook lost(journal, error);
    try {
      pack();
      ADD_FAILURE() << "packed beside a journal that may be hot";
    } catch (const DatabaseError& refusal) {
      EXPECT_THAT(refusal.what(), HasSubstr(journal + " cannot be looked at"));
    }
    EXPECT_FALSE(fs::exists(pack_));
  }
}

TEST_F(PackTest, ALabelIsShortPlainText) {
  for (const std::string& label : {std::string(), std::string(60, 'x'), std::string("a\nb")}) {
    EXPECT_THROW(pack({label, {}, {}}), Error) << label;
  }
  EXPECT_FALSE(fs::exists(pack_));
  EXPECT_NO_THROW(pack({std::string(59, 'x'), {}, {}}));
}

TEST_F(PackTest, AMergeTakesWhatAPackHas) {
  pack();
  const auto fresh = Store::open(directory_ / "fresh.db", Access::kReadWrite);
  fresh->merge(*read());
  EXPECT_THAT(fresh->winners(), SizeIs(5));
  EXPECT_FALSE(fresh->pack_seal()) << "it is an ordinary database";
  EXPECT_EQ(fresh->content_digest(), read()->content_digest());
}

// Whatever bytes are changed: a winner that a reader gives is one that was packed, a kernel too,
// and the check sees the damage.
TEST_F(PackTest, ADamagedPackGivesWholeRowsOrNone) {
  pack();
  const std::string whole = read_bytes(pack_);
  const auto packed = store_->winners();
  const fs::path spoilt = directory_ / "spoilt.pack";
  std::mt19937 random(7);
  int seen = 0, tries = 0;
  for (; tries < 60; ++tries) {
    std::string bytes = whole;
    for (int i = 0; i < 3; ++i)
      bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    write_bytes(spoilt, bytes);
    try {
      const auto reader = Store::open(spoilt, Access::kReadOnly);
      const CheckReport report = reader->check();
      seen += !report.problems.empty();
      for (const WinnerEntry& entry : reader->winners()) {
        EXPECT_TRUE(std::ranges::any_of(packed, [&](const WinnerEntry& other) {
          return other.winner == entry.winner && other.problem == entry.problem;
        }));
        const auto binary = reader->find_binary(entry.winner.kernel_key, entry.winner.image_digest);
        if (binary) {
          EXPECT_EQ(image_digest(binary->image), entry.winner.image_digest);
        }
      }
    } catch (const DatabaseError&) {
      ++seen;
    }
  }
  EXPECT_GT(seen, tries / 2) << "the others hit bytes that mean nothing";
}

TEST_F(PackTest, ARowThatWentMissingIsNoticed) {
  pack();
  fs::permissions(pack_, fs::perms::owner_read | fs::perms::owner_write);
  Connection(pack_, Connection::Mode::kReadWrite)
      .execute(
          "DELETE FROM winner WHERE trials = 432 AND device_id = (SELECT min(device_id) FROM "
          "winner)");
  const CheckReport report = read()->check();
  EXPECT_FALSE(report.integrity_ok);
  ASSERT_THAT(report.problems, SizeIs(1));
  EXPECT_THAT(report.problems[0], HasSubstr("the pack is not whole"));
}

// Its digest is right and there are as many rows as were packed: only the seal tells.
TEST_F(PackTest, ARowInAnothersPlaceIsNoticed) {
  pack();
  fs::permissions(pack_, fs::perms::owner_read | fs::perms::owner_write);
  {
    Connection raw(pack_, Connection::Mode::kReadWrite);
    DamageLog damage{LogSink()};
    StoredTable winners(raw, kWinnerTable, damage);
    const Row packed = winners.rows().front();
    Winner other = winner_from_row(packed).value();
    ++other.trials;
    winners.put(winner_row(std::get<Blob>(packed[0]), std::get<Blob>(packed[1]), other));
  }
  const CheckReport report = read()->check();
  EXPECT_FALSE(report.integrity_ok);
  ASSERT_THAT(report.problems, SizeIs(1));
  EXPECT_THAT(report.problems[0], HasSubstr("the pack is not whole"));
}

TEST_F(PackTest, NothingIsPackedPastABlockListThatIsNotWhole) {
  store_.reset();
  Connection(directory_ / "all.db", Connection::Mode::kReadWrite).execute("DELETE FROM block");
  store_ = Store::open(directory_ / "all.db", Access::kReadOnly);
  EXPECT_THROW(pack(), DatabaseError);
  EXPECT_FALSE(fs::exists(pack_));
}

}  // namespace
}  // namespace vitune::test
