// tests/db/store_test.cpp -- What is put in comes out, and who may replace whom.
// SPDX-License-Identifier: Apache-2.0
#include <zstd.h>

#include <algorithm>
#include <set>

#include "db/binary_table.h"
#include "db/image_dictionary.h"
#include "tests/db/test_support.h"

namespace vitune {
namespace {

using test::sample_binary;
using test::sample_config;
using test::sample_device;
using test::sample_key;
using test::sample_problem;
using test::sample_trial;
using test::sample_winner;

class StoreTest : public testing::Test {
 protected:
  std::unique_ptr<Store> reopen() {
    store_.reset();
    return Store::open(dir_ / "v.db", Access::kReadOnly);
  }
  test::TempDir dir_;
  std::unique_ptr<Store> store_ = Store::open(dir_ / "v.db", Access::kReadWrite);
};

constexpr TrialStatus kStatuses[] = {TrialStatus::kOk,           TrialStatus::kPruned,
                                     TrialStatus::kCompileError, TrialStatus::kCompileTimeout,
                                     TrialStatus::kCompileCrash, TrialStatus::kInvalidLaunch,
                                     TrialStatus::kOutOfMemory,  TrialStatus::kWrong,
                                     TrialStatus::kTimeout,      TrialStatus::kCrash};

TEST(Records, EveryNameReadsBackAsItsValue) {
  std::set<std::string> names;
  for (const TrialStatus status : kStatuses) {
    EXPECT_EQ(trial_status_from_name(trial_status_name(status)), status);
    names.insert(trial_status_name(status));
  }
  EXPECT_EQ(names.size(), std::size(kStatuses));
  for (const Origin origin : {Origin::kMeasured, Origin::kReplayed, Origin::kImported}) {
    EXPECT_EQ(origin_from_name(origin_name(origin)), origin);
  }
  for (const Objective objective : {Objective::kCold, Objective::kWarm}) {
    EXPECT_EQ(objective_from_name(objective_name(objective)), objective);
  }
  EXPECT_FALSE(trial_status_from_name("OK"));
  EXPECT_FALSE(origin_from_name(""));
  EXPECT_FALSE(objective_from_name("unknown"));
}

TEST_F(StoreTest, ATrialOfEveryStatusAndOriginComesBackUnchanged) {
  std::vector<Trial> expected;
  int n = 0;
  for (const TrialStatus status : kStatuses) {
    for (const Origin origin : {Origin::kMeasured, Origin::kReplayed, Origin::kImported}) {
      Trial trial = sample_trial(100 + n++);
      trial.status = status;
      trial.origin = origin;
      trial.reason = status == TrialStatus::kOk ? "" : "because \"of\" that; 'so' \xc3\xa4";
      store_->put_trial(sample_device(), sample_problem(), trial);
      expected.push_back(trial);
    }
  }
  const auto reader = reopen();
  for (const Trial& trial : expected) {
    EXPECT_EQ(reader->find_trial(sample_device(), sample_problem(), trial.config), trial);
  }
  std::sort(expected.begin(), expected.end(),
            [](const Trial& a, const Trial& b) { return a.config.text() < b.config.text(); });
  EXPECT_EQ(reader->trials(sample_device(), sample_problem()), expected);
  EXPECT_EQ(reader->all_trials().size(), expected.size());
  EXPECT_FALSE(reader->find_trial(sample_device(), sample_problem(), sample_config(999)));
  EXPECT_FALSE(reader->find_trial(sample_device(60), sample_problem(), expected[0].config));
  EXPECT_FALSE(reader->find_trial(sample_device(), sample_problem(257), expected[0].config));
  EXPECT_EQ(reader->damaged_rows(), 0);
}

TEST_F(StoreTest, AnErrorFigureThatIsNotFiniteComesBackAsInfinity) {
  Trial trial = sample_trial(1);
  trial.status = TrialStatus::kWrong;
  trial.error.max_error = std::nan("");
  trial.error.rms_error = std::numeric_limits<double>::infinity();
  store_->put_trial(sample_device(), sample_problem(), trial);
  const auto stored = store_->find_trial(sample_device(), sample_problem(), trial.config);
  ASSERT_TRUE(stored);
  EXPECT_TRUE(std::isinf(stored->error.max_error));
  EXPECT_TRUE(std::isinf(stored->error.rms_error));
  EXPECT_EQ(stored->error.max_bound, trial.error.max_bound);
}

TEST_F(StoreTest, FiguresThatTheSchemaRefusesAreAnErrorAndNothingIsStored) {
  const std::function<void(Trial&)> spoilers[] = {
      [](Trial& trial) { trial.measurement.cold.median_us = std::nan(""); },
      [](Trial& trial) {
        trial.measurement.warm.high_us = std::numeric_limits<double>::infinity();
      },
      [](Trial& trial) { trial.measurement.cold.low_us = -1; },
      [](Trial& trial) { trial.compile.registers = -1; },
      [](Trial& trial) { trial.error.max_bound = -0.5; },
      [](Trial& trial) { trial.measurement.cold.samples = -3; },
  };
  for (const auto& spoil : spoilers) {
    Trial good = sample_trial(1);
    Trial bad = sample_trial(2);
    spoil(bad);
    try {
      store_->put_trials(sample_device(), sample_problem(), {good, bad});
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailure) << error.what();
    }
    EXPECT_TRUE(store_->trials(sample_device(), sample_problem()).empty());
  }
  EXPECT_THROW(store_->put_trial(sample_device(), {"attention", "a\nb"}, sample_trial(1)), Error);
  EXPECT_EQ(store_->stats().problems, 0);
}

TEST_F(StoreTest, ReplayedAndImportedTrialsNeverReplaceMeasuredOnes) {
  Trial measured = sample_trial(1);
  store_->put_trial(sample_device(), sample_problem(), measured);
  for (const Origin origin : {Origin::kReplayed, Origin::kImported}) {
    Trial other = sample_trial(1);
    other.origin = origin;
    other.measurement.cold.median_us = 1;
    store_->put_trial(sample_device(), sample_problem(), other);
    EXPECT_EQ(store_->find_trial(sample_device(), sample_problem(), measured.config), measured);
  }
  measured.measurement.cold.median_us = 3;
  store_->put_trial(sample_device(), sample_problem(), measured);
  EXPECT_EQ(store_->find_trial(sample_device(), sample_problem(), measured.config), measured);
}

TEST_F(StoreTest, AMeasuredTrialReplacesAReplayedOne) {
  Trial replayed = sample_trial(1);
  replayed.origin = Origin::kReplayed;
  store_->put_trial(sample_device(), sample_problem(), replayed);
  store_->put_trial(sample_device(), sample_problem(), sample_trial(1));
  EXPECT_EQ(store_->find_trial(sample_device(), sample_problem(), replayed.config)->origin,
            Origin::kMeasured);
}

TEST_F(StoreTest, AWinnerWithAllItsEvidenceComesBackUnchanged) {
  Winner lonely = sample_winner(3, Objective::kWarm);
  lonely.runner_up.reset();
  lonely.default_us.reset();
  lonely.verified = false;
  lonely.origin = Origin::kImported;
  const Binary binary = sample_binary(2);
  EXPECT_TRUE(store_->promote(sample_device(), sample_problem(), sample_winner(2), &binary));
  EXPECT_TRUE(store_->promote(sample_device(), sample_problem(), lonely, nullptr));
  const auto reader = reopen();
  EXPECT_EQ(reader->find_winner(sample_device(), sample_problem(), Objective::kCold),
            test::with_image(sample_winner(2), 2));
  EXPECT_EQ(reader->find_winner(sample_device(), sample_problem(), Objective::kWarm), lonely);
  EXPECT_FALSE(reader->find_winner(sample_device(60), sample_problem(), Objective::kCold));
  const auto all = reader->winners();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].device, sample_device());
  EXPECT_EQ(all[0].problem, sample_problem());
  EXPECT_EQ(all[0].winner, test::with_image(sample_winner(2), 2));
}

TEST_F(StoreTest, ABinaryComesBackByteForByte) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{5000}, std::size_t{3000000}}) {
    const Binary binary = sample_binary(static_cast<std::int64_t>(size), size);
    store_->put_binary(binary);
    const auto stored = store_->find_binary(binary.kernel_key);
    ASSERT_TRUE(stored) << size;
    EXPECT_EQ(stored->image, binary.image);
    EXPECT_EQ(stored->arch, binary.arch);
    EXPECT_EQ(stored->entry, binary.entry);
    EXPECT_EQ(stored->compiler_version, binary.compiler_version);
    EXPECT_EQ(stored->compile, binary.compile);
  }
  EXPECT_FALSE(store_->find_binary(sample_key(12345)));
}

// Another dictionary of that number would make rows that are stored worthless.
TEST(BinaryRow, TheDictionaryOfImagesStaysAsItIs) {
  const auto bytes = image_dictionary();
  EXPECT_EQ(
      sha256(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())).hex(),
      "6fc6d2e9ffc48ccf7908d9dc0812aefefcd3f7160c9b5b9300467aef3f52b44e");
}

TEST(BinaryRow, AnImageNamesTheDictionaryAndIsAbsentUnderAnother) {
  constexpr std::size_t kPlaceOfName = 5;  // after the frame's magic number and descriptor
  const Binary binary = sample_binary(1, 200);
  Row row = binary_row(binary);
  auto& frame = std::get<Blob>(row.back());
  EXPECT_EQ(ZSTD_getDictID_fromFrame(frame.data(), frame.size()), 20261129U);
  ASSERT_TRUE(binary_from_row(row));
  EXPECT_EQ(binary_from_row(row)->image, binary.image);
  frame[kPlaceOfName] ^= std::byte{1};
  EXPECT_FALSE(binary_from_row(row));
}

TEST(BinaryRow, AnImageThatWasPackedWithoutTheDictionaryIsStillRead) {
  const Binary binary = sample_binary(1, 5000);
  Row row = binary_row(binary);
  Blob plain(ZSTD_compressBound(binary.image.size()));
  plain.resize(
      ZSTD_compress(plain.data(), plain.size(), binary.image.data(), binary.image.size(), 9));
  row.back() = plain;
  const auto read = binary_from_row(row);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->image, binary.image);
}

TEST_F(StoreTest, AnImageAbove64MiBIsRefused) {
  Binary binary = sample_binary(1, 0);
  binary.image.resize((std::size_t{64} << 20) + 1);
  EXPECT_THROW(store_->put_binary(binary), Error);
  EXPECT_EQ(store_->stats().binaries, 0);
}

TEST_F(StoreTest, PromotingWithTheBinaryOfAnotherKernelIsRefused) {
  const Binary binary = sample_binary(8);
  EXPECT_THROW(store_->promote(sample_device(), sample_problem(), sample_winner(2), &binary),
               Error);
  EXPECT_TRUE(store_->winners().empty());
  EXPECT_EQ(store_->stats().binaries, 0);
}

TEST_F(StoreTest, WhoMayReplaceTheWinner) {
  struct Case {
    Origin stored_origin;
    bool stored_verified;
    Origin next;
    bool replaces;
  };
  const Case cases[] = {
      {Origin::kMeasured, true, Origin::kMeasured, true},
      {Origin::kMeasured, true, Origin::kReplayed, false},
      {Origin::kMeasured, true, Origin::kImported, false},
      {Origin::kMeasured, false, Origin::kReplayed, true},
      {Origin::kReplayed, true, Origin::kMeasured, true},
      {Origin::kReplayed, true, Origin::kReplayed, true},
      {Origin::kImported, false, Origin::kMeasured, true},
      {Origin::kImported, true, Origin::kReplayed, true},
  };
  int tokens = 1;
  for (const Case& c : cases) {
    const ProblemKey problem = sample_problem(tokens++);
    Winner stored = sample_winner(1);
    stored.origin = c.stored_origin;
    stored.verified = c.stored_verified;
    Winner next = sample_winner(2);
    next.origin = c.next;
    store_->promote(sample_device(), problem, stored, nullptr);
    const Binary binary = sample_binary(2);
    EXPECT_EQ(store_->promote(sample_device(), problem, next, &binary), c.replaces);
    EXPECT_EQ(store_->find_winner(sample_device(), problem, Objective::kCold),
              c.replaces ? test::with_image(next, 2) : stored);
  }
}

// A winner whose plan calls a library has nothing to load, and that is no damage.
TEST_F(StoreTest, ABinaryWithoutAnImageIsStoredAndFound) {
  Binary call = sample_binary(9);
  call.entry = "library_call";
  call.image.clear();
  Winner winner = sample_winner(9);
  winner.config.set_family("library");
  winner.kernel_key = call.kernel_key;
  ASSERT_TRUE(store_->promote(sample_device(), sample_problem(), winner, &call));
  const auto stored = store_->find_winner(sample_device(), sample_problem(), winner.objective);
  ASSERT_TRUE(stored);
  EXPECT_EQ(stored->config.text(), winner.config.text());
  const auto found = store_->find_binary(stored->kernel_key, stored->image_digest);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->image.empty());
  EXPECT_EQ(found->entry, "library_call");
  EXPECT_EQ(store_->check().bad_rows, 0);
}

TEST_F(StoreTest, StatsCountWhatIsThere) {
  test::fill(*store_);
  const StoreStats stats = store_->stats();
  EXPECT_EQ(stats.devices, 2);
  EXPECT_EQ(stats.problems, 3);
  EXPECT_EQ(stats.trials, 60);
  EXPECT_EQ(stats.winners, 6);
  EXPECT_EQ(stats.unverified_winners, 0);
  EXPECT_EQ(stats.binaries, 3);
  EXPECT_EQ(stats.blocks, 1);
  EXPECT_EQ(stats.requests, 1);
  EXPECT_GT(stats.binary_bytes, 3 * 9000);
  EXPECT_EQ(stats.file_bytes, static_cast<std::int64_t>(test::fs::file_size(dir_ / "v.db")));
  EXPECT_EQ(stats.schema_version, 4);
}

TEST_F(StoreTest, PruneKeepsTheBestTrialsOfDecidedProblemsAndAllOfTheOthers) {
  test::fill(*store_);
  store_->put_trial(sample_device(), sample_problem(1025), sample_trial(1));
  store_->put_trial(sample_device(), sample_problem(1025), sample_trial(2));
  store_->put_binary(sample_binary(31337));
  const auto size_before = store_->stats().file_bytes;
  EXPECT_EQ(store_->prunable(4).trials, 3 * 16);
  EXPECT_EQ(store_->prunable(4).kernels, 1) << "looking deletes nothing";
  EXPECT_EQ(store_->prune(4), 3 * 16 + 1);
  const auto kept = store_->trials(sample_device(), sample_problem());
  ASSERT_EQ(kept.size(), 4U);
  for (int n = 0; n < 4; ++n) {
    EXPECT_TRUE(store_->find_trial(sample_device(), sample_problem(), sample_config(n))) << n;
  }
  EXPECT_EQ(store_->trials(sample_device(), sample_problem(1025)).size(), 2U);
  EXPECT_EQ(store_->stats().binaries, 3);
  EXPECT_LT(store_->stats().file_bytes, size_before);
  EXPECT_TRUE(store_->check().integrity_ok);
  EXPECT_EQ(store_->prune(4), 0);
  EXPECT_EQ(store_->prune(0), 3 * 4);
  EXPECT_THROW(store_->prune(-1), Error);
}

// Where the library is not there, one of the others serves.
TEST_F(StoreTest, PruneKeepsKernelsBehindAWinnerThatCallsALibrary) {
  const auto key = [](int n) { return sample_trial(n).kernel_key; };
  std::vector<Trial> tried;
  for (int n = 1; n <= 3; ++n) tried.push_back(sample_trial(n));
  store_->put_trials(sample_device(), sample_problem(), tried);
  for (int n = 2; n <= 3; ++n) {
    Binary kernel = sample_binary(static_cast<std::uint64_t>(n));
    kernel.kernel_key = key(n);
    store_->put_binary(kernel);
  }
  Binary call = sample_binary(1);
  call.kernel_key = key(1);
  call.image.clear();
  Winner winner = sample_winner(1);
  winner.kernel_key = key(1);
  ASSERT_TRUE(store_->promote(sample_device(), sample_problem(), winner, &call));
  EXPECT_EQ(store_->prune(2), 2);  // the third trial and its kernel
  EXPECT_TRUE(store_->has_binary(key(1)));
  EXPECT_TRUE(store_->has_binary(key(2)));
  EXPECT_FALSE(store_->has_binary(key(3)));
}

TEST_F(StoreTest, PruneKeepsNoTrialWithoutTimesForTheBest) {
  Trial untimed = sample_trial(2);
  untimed.measurement = {};
  store_->put_trials(sample_device(), sample_problem(), {sample_trial(1), untimed});
  store_->promote(sample_device(), sample_problem(), sample_winner(1), nullptr);
  EXPECT_EQ(store_->prune(1), 1);
  EXPECT_TRUE(store_->find_trial(sample_device(), sample_problem(), sample_config(1)));
}

TEST_F(StoreTest, CheckOfAWholeFileCountsEveryRow) {
  test::fill(*store_);
  const CheckReport report = store_->check();
  EXPECT_TRUE(report.integrity_ok);
  EXPECT_EQ(report.rows, 2 + 4 - 1 + 60 + 6 + 3 + 1 + 1 + 1 + 1);
  EXPECT_EQ(report.bad_rows, 0);
  EXPECT_TRUE(report.problems.empty());
}

TEST_F(StoreTest, AReaderCannotWrite) {
  const auto reader = reopen();
  try {
    reader->put_trial(sample_device(), sample_problem(), sample_trial(1));
    ADD_FAILURE() << "wrote";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDatabase);
    EXPECT_NE(std::string(error.what()).find("v.db"), std::string::npos) << error.what();
  }
}

TEST(InMemory, AStoreInMemoryDoesWhatAFileDoes) {
  const auto store = Store::in_memory();
  test::fill(*store);
  EXPECT_EQ(store->winners().size(), 6U);
  EXPECT_TRUE(store->check().integrity_ok);
  EXPECT_EQ(store->prune(1), 3 * 19);
}

class Layers : public testing::Test {
 protected:
  LayeredStore make() { return {std::move(user_), std::move(shipped_)}; }
  std::unique_ptr<Store> user_ = Store::in_memory();
  std::unique_ptr<Store> shipped_ = Store::in_memory();
};

TEST_F(Layers, TheUsersRowHidesTheShippedOneAndTheRestShinesThrough) {
  user_->promote(sample_device(), sample_problem(1), sample_winner(1), nullptr);
  const Binary binary = sample_binary(2);
  shipped_->promote(sample_device(), sample_problem(1), sample_winner(2), &binary);
  shipped_->promote(sample_device(), sample_problem(2), sample_winner(3), nullptr);
  shipped_->promote(sample_device(), sample_problem(1), sample_winner(4, Objective::kWarm),
                    nullptr);
  LayeredStore store = make();
  EXPECT_EQ(store.find_winner(sample_device(), sample_problem(1), Objective::kCold),
            sample_winner(1));
  EXPECT_EQ(store.find_winner(sample_device(), sample_problem(2), Objective::kCold),
            sample_winner(3));
  EXPECT_FALSE(store.find_winner(sample_device(), sample_problem(3), Objective::kCold));
  EXPECT_TRUE(store.find_binary(sample_key(2)));
  EXPECT_FALSE(store.find_binary(sample_key(3)));
  EXPECT_EQ(store.winners().size(), 3U);
}

TEST_F(Layers, WithoutAShippedLayerOnlyTheUsersIsRead) {
  user_->promote(sample_device(), sample_problem(1), sample_winner(1), nullptr);
  LayeredStore store(std::move(user_), nullptr);
  EXPECT_EQ(store.winners().size(), 1U);
  EXPECT_EQ(store.shipped(), nullptr);
  EXPECT_FALSE(store.find_winner(sample_device(), sample_problem(2), Objective::kCold));
  EXPECT_FALSE(store.find_binary(sample_key(1)));
}

}  // namespace
}  // namespace vitune
