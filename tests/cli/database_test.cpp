// tests/cli/database_test.cpp -- vitune db, and databases that are damaged, foreign, newer or
// impossible.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "db/sqlite.h"
#include "db/store.h"
#include "generator/attention/problem.h"
#include "tests/cli/command_fixture.h"

namespace vitune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kProblem = "attention bf16 b=1 h=12 nq=197 nk=197 d=64 layout=packed";

DeviceInfo device() {
  DeviceInfo info = architecture_limits("sm_90").value();
  info.sm_count = 132;
  info.name = "a GPU";
  return info;
}

Trial trial(std::int64_t block, double us) {
  Trial made;
  made.config = Config{{"kBlockN", block}, {"kWarps", 4}};
  made.kernel_key = sha256(made.config.text());
  made.measurement.cold = {us, us - 0.1, us + 0.1, 10};
  made.measurement.warm = {us - 1, us - 1.1, us - 0.9, 10};
  return made;
}

Winner winner(const Trial& best) {
  Winner made;
  made.config = best.config;
  made.kernel_key = best.kernel_key;
  made.measurement = best.measurement;
  made.default_us = best.measurement.cold.median_us * 1.5;
  made.trials = 2;
  made.compiler_version = "nvrtc 13.0 test";
  made.tuned_at = "2026-01-02T03:04:05Z";
  return made;
}

// Two trials and a winner for one problem.
void fill(const fs::path& path, std::int64_t block = 64, double us = 10) {
  const auto store = Store::open(path, Access::kReadWrite);
  const ProblemKey key{"attention", AttentionProblem::parse(kProblem).text()};
  store->put_trial(device(), key, trial(block, us));
  store->put_trial(device(), key, trial(block + 32, us + 2));
  store->promote(device(), key, winner(trial(block, us)), nullptr);
}

class DatabaseTest : public CommandTest {
 protected:
  DatabaseTest() { fs::create_directories(database().parent_path()); }

  // Overwrites four bytes of the file's header, big endian, as SQLite keeps them.
  void patch_header(std::streamoff offset, std::uint32_t value) const {
    std::fstream file(database(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(offset);
    for (int shift = 24; shift >= 0; shift -= 8) file.put(static_cast<char>(value >> shift & 0xff));
  }
};

TEST_F(DatabaseTest, AWinnerOfAVersionWithOtherFamiliesHidesNoOther) {
  fill(database());
  {
    Winner newer = winner(trial(64, 10));
    newer.config = Config::parse("kFamily=9 kNew=1");
    Store::open(database(), Access::kReadWrite)
        ->promote(device(), {"linear", "linear bf16 m=33 n=40 k=24 bias"}, newer, nullptr);
  }
  const CommandResult shown = run({"show", "-v"});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_NE(shown.out.find("Family=9 New=1"), std::string::npos);
  EXPECT_NE(shown.out.find("BlockN=64 Warps=4"), std::string::npos);
}

TEST_F(DatabaseTest, StatsCountWhatIsThere) {
  fill(database());
  const CommandResult result = run({"db", "stats", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto document = result.json();
  EXPECT_EQ(document["schema"], 1);
  EXPECT_EQ(document["trials"], 2);
  EXPECT_EQ(document["winners"], 1);
  EXPECT_EQ(document["file"], database().string());
}

TEST_F(DatabaseTest, ShowListsTheWinnerInEveryForm) {
  fill(database());
  EXPECT_THAT(run({"show"}).out, HasSubstr("mma 64x64 4w s1"));
  EXPECT_THAT(run({"show", "-v"}).out, HasSubstr("BlockN=64 Warps=4"));
  EXPECT_THAT(run({"show", "--md"}).out, HasSubstr("| problem |"));
  const std::string csv = run({"show", "--csv", "--data-dir", directory().string()}).out;
  EXPECT_THAT(csv, HasSubstr("problem,cold_us,cold_low_us,cold_high_us,"));
  EXPECT_THAT(csv, HasSubstr(",kBlockN=64 kWarps=4,"));
  EXPECT_THAT(csv, Not(HasSubstr("[")));
  // Without the layer of shipped winners.
  const auto document = run({"show", "--json", "--data-dir", directory().string()}).json();
  ASSERT_EQ(document["winners"].size(), 1u);
  EXPECT_EQ(document["winners"][0]["winner"]["config"]["kBlockN"], 64);
  EXPECT_DOUBLE_EQ(document["winners"][0]["winner"]["cold"]["median_us"], 10);
  EXPECT_DOUBLE_EQ(document["winners"][0]["winner"]["default_us"], 15);
}

TEST_F(DatabaseTest, ShowTrialsListsTheBestFirst) {
  fill(database());
  const auto document = run({"show", "--trials", "--json", "--problem", kProblem}).json();
  ASSERT_EQ(document["trials"].size(), 2u);
  EXPECT_EQ(document["trials"][0]["config"]["kBlockN"], 64);
  EXPECT_EQ(document["trials"][1]["config"]["kBlockN"], 96);
}

TEST_F(DatabaseTest, ShowOfAnotherProblemIsEmpty) {
  fill(database());
  const auto document = run({"show", "--json", "bf16 b=7 h=1 n=8 d=64"}).json();
  EXPECT_TRUE(document["winners"].empty());
}

TEST_F(DatabaseTest, ASoundFileChecksAsSound) {
  fill(database());
  const CommandResult result = run({"db", "check", "--json"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.json()["bad_rows"], 0);
}

TEST_F(DatabaseTest, ManyDamagedRowsDoNotHideWhatToDo) {
  for (std::int64_t block = 0; block < 20; ++block) fill(database(), 64 * block + 8);
  Connection(database(), Connection::Mode::kReadWrite)
      .execute("UPDATE trial SET cold_samples = cold_samples + 1");
  const CommandResult result = run({"db", "check"});
  EXPECT_EQ(result.status, 5);
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 12) << result.err;
  EXPECT_THAT(result.err, HasSubstr("and 30 more; --json has them all"));
  EXPECT_THAT(result.err, HasSubstr("vitune db salvage"));
  const auto problems = run({"db", "check", "--json"}).json()["problems"];
  EXPECT_EQ(problems.size(), 40u);
  for (const auto& problem : problems) {
    EXPECT_THAT(problem.get<std::string>(), HasSubstr("`vitune db salvage --db FILE`"));
    EXPECT_THAT(problem.get<std::string>(), Not(HasSubstr("db check")));
  }
}

TEST_F(DatabaseTest, DamagedPagesAreNamedALineEachAndTenOfThem) {
  for (std::int64_t block = 0; block < 200; ++block) fill(database(), 64 * block + 8);
  constexpr std::streamoff kPage = 4096;
  const auto pages = static_cast<std::streamoff>(fs::file_size(database())) / kPage;
  ASSERT_GT(pages, 30);
  std::fstream file(database(), std::ios::in | std::ios::out | std::ios::binary);
  for (std::streamoff page = pages / 2; page < pages; ++page) {
    file.seekp(page * kPage);
    file << std::string(kPage, '\x5a');
  }
  file.close();
  const CommandResult result = run({"db", "check"});
  EXPECT_EQ(result.status, 5);
  EXPECT_LE(std::count(result.err.begin(), result.err.end(), '\n'), 12) << result.err;
  EXPECT_THAT(result.err, HasSubstr("more; --json has them all"));
  EXPECT_THAT(result.err, HasSubstr("vitune db salvage"));
  const auto document = run({"db", "check", "--json"}).json();
  EXPECT_GT(document["problems"].size(), 12u);
  for (const auto& problem : document["problems"]) {
    EXPECT_EQ(problem.get<std::string>().find('\n'), std::string::npos) << problem;
  }
}

TEST_F(DatabaseTest, ExportAndImportCarryTheWinnerUnverified) {
  fill(database());
  const fs::path file = directory() / "export.json";
  ASSERT_EQ(run({"db", "export", file.string()}).status, 0);
  const fs::path other = directory() / "other" / "vitune.db";
  const CommandResult import =
      run({"db", "import", file.string(), "--db", other.string(), "--json"});
  ASSERT_EQ(import.status, 0) << import.err;
  EXPECT_EQ(import.json()["winners_added"], 1);
  const auto shown = run({"show", "--json", "--db", other.string()}).json();
  EXPECT_EQ(shown["winners"][0]["winner"]["verified"], false);
  EXPECT_EQ(shown["winners"][0]["winner"]["origin"], "imported");
}

TEST_F(DatabaseTest, AnExportGoesThroughPipes) {
  fill(database());
  const CommandResult exported = run({"db", "export"});
  ASSERT_EQ(exported.status, 0);
  CommandOptions options;
  options.input = exported.out;
  const fs::path other = directory() / "piped.db";
  EXPECT_EQ(run({"db", "import", "-", "--db", other.string()}, options).status, 0);
  EXPECT_EQ(run({"db", "stats", "--json", "--db", other.string()}).json()["winners"], 1);
}

TEST_F(DatabaseTest, MergingIsIdempotentAndCommutative) {
  const fs::path other = home() / "other.db";
  fill(database(), 64, 10);
  fill(other, 128, 9);
  const fs::path third = home() / "third.db", fourth = home() / "fourth.db";
  for (const auto& [into, order] : {std::pair{third, std::vector{database(), other}},
                                    {fourth, std::vector{other, database()}}}) {
    for (const fs::path& from : order) {
      ASSERT_EQ(run({"db", "merge", from.string(), "--db", into.string()}).status, 0);
    }
  }
  const std::string merged = run({"db", "export", "--db", third.string()}).out;
  EXPECT_EQ(merged, run({"db", "export", "--db", fourth.string()}).out);
  const auto again = run({"db", "merge", other.string(), "--db", third.string(), "--json"}).json();
  EXPECT_EQ(again["winners_added"], 0);
  EXPECT_EQ(again["trials_added"], 0);
  EXPECT_EQ(merged, run({"db", "export", "--db", third.string()}).out);
}

TEST_F(DatabaseTest, ADatabaseIsNotMergedIntoItself) {
  fill(database());
  EXPECT_EQ(run({"db", "merge", database().string()}).status, 2);
}

TEST_F(DatabaseTest, PruneKeepsTheBest) {
  fill(database());
  ASSERT_EQ(run({"db", "prune", "--keep", "1", "--yes"}).status, 0);
  const auto stats = run({"db", "stats", "--json"}).json();
  EXPECT_EQ(stats["trials"], 1);
  EXPECT_EQ(stats["winners"], 1);
}

TEST_F(DatabaseTest, PruneDeletesNothingUnlessItIsToldTo) {
  fill(database());
  const std::string before = read_file(database());
  for (const auto& [keep, trials] : {std::pair("1", 1), {"0", 2}, {"20", 0}}) {
    const CommandResult looked = run({"db", "prune", "--keep", keep, "--json"});
    ASSERT_EQ(looked.status, 0) << looked.err;
    EXPECT_EQ(looked.json()["trials_to_delete"], trials);
    EXPECT_EQ(looked.json()["rows_deleted"], 0);
    EXPECT_THAT(looked.err, HasSubstr(trials == 0 ? "nothing is to be deleted"
                                                  : "nothing was deleted: 'vitune db prune"));
  }
  EXPECT_EQ(read_file(database()), before);
  EXPECT_EQ(run({"db", "prune", "--keep", "0", "--yes", "--json"}).json()["rows_deleted"], 2)
      << "as many as it said";
}

TEST_F(DatabaseTest, AnExportIsWrittenThroughALinkAndIntoAPipe) {
  fill(database());
  const std::string exported = run({"db", "export"}).out;
  const fs::path target = write_file("target.json", "old"), link = directory() / "link.json";
  fs::create_symlink(target.filename(), link);
  ASSERT_EQ(run({"db", "export", link.string()}).status, 0);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(nlohmann::json::parse(read_file(target)), nlohmann::json::parse(exported));
  const fs::path pipe = directory() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_EQ(run({"db", "export", pipe.string()}).status, 0);
  std::string text(1 << 16, '\0');
  const ssize_t count = read(reader, text.data(), text.size());
  close(reader);
  ASSERT_GT(count, 0);
  text.resize(static_cast<std::size_t>(count));
  EXPECT_EQ(text, read_file(target));
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST_F(DatabaseTest, AMistypedDatabaseIsNotAnEmptyOne) {
  const std::string none = (directory() / "none.db").string();
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"show"}, {"show", "--trials"}, {"show", "--blocks"}}) {
    std::vector<std::string> named = arguments;
    named.insert(named.end(), {"--db", none});
    const CommandResult result = run(named);
    EXPECT_EQ(result.status, 5);
    EXPECT_THAT(result.err, HasSubstr("there is no database at " + none));
    EXPECT_EQ(run(arguments).status, 0);  // the default place may be empty
  }
  EXPECT_FALSE(fs::exists(none));
}

TEST_F(DatabaseTest, WhatCannotBeReadSaysWhichVerbCan) {
  const fs::path text = write_file("export.json", "{\"schema\": 1}" + std::string(5000, ' '));
  fs::permissions(text, fs::perms::owner_read | fs::perms::owner_write);
  const CommandResult shown = run({"show", "--db", text.string()});
  EXPECT_EQ(shown.status, 5);
  EXPECT_THAT(shown.err, HasSubstr("is no SQLite database; an export is read by"));
  const fs::path large = write_file("large.json", "");
  fs::resize_file(large, (std::uintmax_t{64} << 20) + 1);
  const CommandResult import = run({"db", "import", large.string()});
  EXPECT_EQ(import.status, 2);
  EXPECT_THAT(import.err, HasSubstr("--winners-only"));
  const CommandResult broken = run({"db", "import", text.string()});
  EXPECT_EQ(broken.status, 2);
  EXPECT_THAT(broken.err, HasSubstr("'" + text.string() + "': import: "));
  EXPECT_FALSE(fs::exists(database()));  // a file that is refused makes none
}

TEST_F(DatabaseTest, ShowTellsColdFromWarmWinners) {
  fill(database());
  const auto store = Store::open(database(), Access::kReadWrite);
  Winner warm = winner(trial(64, 10));
  warm.objective = Objective::kWarm;
  store->promote(device(), {"attention", AttentionProblem::parse(kProblem).text()}, warm, nullptr);
  const std::string table = run({"show", "--csv", "--data-dir", directory().string()}).out;
  EXPECT_THAT(table, HasSubstr(",trials,objective,layer,gpu\n"));
  EXPECT_THAT(table, HasSubstr(",2,cold,"));
  EXPECT_THAT(table, HasSubstr(",2,warm,"));
}

TEST_F(DatabaseTest, AMissingFileIsNamedAndNotMade) {
  for (const char* verb : {"stats", "check", "export", "prune", "salvage"}) {
    const CommandResult result = run({"db", verb});
    EXPECT_EQ(result.status, 5) << verb;
    EXPECT_THAT(result.err, HasSubstr(database().string()));
  }
  EXPECT_FALSE(fs::exists(database()));
}

TEST_F(DatabaseTest, RefusedFilesStayAsTheyAreByteForByte) {
  const struct {
    const char* what;
    std::function<void()> damage;
  } cases[] = {
      {"newer schema", [&] { patch_header(60, 1000); }},
      {"foreign application", [&] { patch_header(68, 0x12345678); }},
      {"not a database", [&] { std::ofstream(database()) << std::string(5000, 'x'); }},
      {"cut in half", [&] { fs::resize_file(database(), fs::file_size(database()) / 2); }},
  };
  for (const auto& c : cases) {
    fs::remove(database());
    fill(database());
    c.damage();
    const std::string before = read_file(database());
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"db", "stats"}, {"db", "export"}, {"show"}, {"db", "prune"}}) {
      const CommandResult result = run(arguments);
      EXPECT_EQ(result.status, 5) << c.what << ": " << arguments.back() << ": " << result.err;
      EXPECT_THAT(result.err, HasSubstr("vitune: "));
    }
    EXPECT_EQ(read_file(database()), before) << c.what;
  }
}

TEST_F(DatabaseTest, SalvageLeavesASoundFileAsItIs) {
  fill(database());
  const std::string before = read_file(database());
  const fs::path left = database().string() + ".salvage-20261128T115338Z-99999999-journal";
  std::ofstream(left) << "of a salvage that died when it had put its file in place";
  const CommandResult result = run({"db", "salvage"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("nothing is damaged"));
  EXPECT_EQ(read_file(database()), before);
  EXPECT_FALSE(fs::exists(left));
  for (const auto& entry : fs::directory_iterator(database().parent_path())) {
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr(".corrupt-")));
  }
}

TEST_F(DatabaseTest, SalvageKeepsSoundRowsAndTheOldFile) {
  fill(database());
  Connection(database(), Connection::Mode::kReadWrite)
      .execute("UPDATE trial SET cold_samples = cold_samples + 1");
  const CommandResult result = run({"db", "salvage", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("go into a new file in its place"));
  EXPECT_GT(result.json()["rows_saved"], 0);
  EXPECT_EQ(run({"db", "stats", "--json"}).json()["winners"], 1);
  bool kept = false;
  for (const auto& entry : fs::directory_iterator(database().parent_path())) {
    kept = kept || entry.path().filename().string().find(".corrupt-") != std::string::npos;
  }
  EXPECT_TRUE(kept);
}

TEST_F(DatabaseTest, HostileImportsAreRefusedAndAddNothing) {
  fill(database());
  const std::string before = run({"db", "export"}).out;
  const std::string deep(100000, '[');
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[1,2"), deep,
        std::string("{\"schema\":1,\"surprise\":1}"), std::string("\xff\xfe")}) {
    const fs::path file = write_file("hostile.json", text);
    const CommandResult result = run({"db", "import", file.string()});
    EXPECT_NE(result.status, 0) << text.substr(0, 40);
    EXPECT_LE(result.status, 5) << text.substr(0, 40);
  }
  EXPECT_EQ(run({"db", "export"}).out, before);
}

TEST_F(DatabaseTest, AFullDiskIsReportedAndLosesNothing) {
  fill(database());
  const fs::path other = home() / "other.db";
  fill(other, 128, 9);
  const std::string before = run({"db", "export"}).out;
  CommandOptions options;
  options.file_size_limit = 4096;
  const CommandResult merge = run({"db", "merge", other.string()}, options);
  EXPECT_EQ(merge.status, 5) << merge.err;
  const CommandResult file = run({"db", "export", (directory() / "out.json").string()}, options);
  if (before.size() > options.file_size_limit) {
    EXPECT_EQ(file.status, 1) << file.err;
  }
  EXPECT_EQ(run({"db", "check"}).status, 0);
  EXPECT_EQ(run({"db", "export"}).out, before);
}

TEST_F(DatabaseTest, AReadOnlyFolderIsReadButNotWritten) {
  fill(database());
  fs::permissions(directory(),
                  fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec);
  fs::permissions(home(), fs::perms::owner_read | fs::perms::owner_exec);
  CommandOptions options;
  options.unprivileged = true;
  const CommandResult merge =
      run({"db", "import", "-", "--db", (home() / "new" / "x.db").string()}, options);
  if (merge.status == 126 || merge.status == 127) {
    GTEST_SKIP() << "another user cannot run the command here";
  }
  EXPECT_NE(merge.status, 0);
  EXPECT_FALSE(fs::exists(home() / "new"));
}

TEST_F(DatabaseTest, WithoutAHomeThereIsAClearMessage) {
  CommandOptions options;
  options.without = {"HOME"};
  options.environment = {{"XDG_CACHE_HOME", (directory() / "cache").string()}};
  const CommandResult result = run({"db", "stats"}, options);
  EXPECT_EQ(result.status, 5);
  EXPECT_THAT(result.err, HasSubstr((directory() / "cache").string()));
}

TEST_F(DatabaseTest, TheEnvironmentNamesTheFileAndTheOptionWins) {
  const fs::path by_variable = directory() / "a.db", by_option = directory() / "b.db";
  fill(by_variable, 64);
  fill(by_option, 128);
  CommandOptions options;
  options.environment = {{"VITUNE_DB", by_variable.string()}};
  const auto block = [&](std::vector<std::string> arguments) -> int {
    return run(arguments, options).json()["winners"][0]["winner"]["config"]["kBlockN"];
  };
  EXPECT_EQ(block({"show", "--json"}), 64);
  EXPECT_EQ(block({"show", "--json", "--db", by_option.string()}), 128);
}

// A tune that was killed in its first transaction leaves one.
TEST_F(DatabaseTest, AnEmptyFileIsAnAbsentOne) {
  fs::create_directories(database().parent_path());
  std::ofstream(database()).close();
  EXPECT_EQ(run({"show"}).status, 0);
  const CommandResult named = run({"show", "--db", database().string()});
  EXPECT_EQ(named.status, 5);
  EXPECT_THAT(named.err, HasSubstr("there is no database at"));
  EXPECT_THAT(named.err, HasSubstr("(the file is empty)"));
  EXPECT_THAT(run({"doctor", "--csv"}).out, HasSubstr("made by the first tune"));
  CommandOptions with_site;
  with_site.environment["VITUNE_DB"] = ":" + database().string();
  with_site.environment["VITUNE_CACHE_DIR"] = (directory() / "cache").string();
  const CommandResult site = run({"show"}, with_site);
  EXPECT_EQ(site.status, 0) << site.err;
  EXPECT_THAT(site.err, HasSubstr("not there or empty"));
  const CommandResult tune = run({"tune", "-q", "--device", "replay:h200", "--budget", "1",
                                  "--problem", "bf16 b=1 h=12 n=197 d=64"});
  EXPECT_EQ(tune.status, 0) << tune.err;
  EXPECT_GT(Store::open(database(), Access::kReadOnly)->stats().trials, 0);
}

TEST_F(DatabaseTest, ACommandThatReadsWaitsForAWriter) {
  fs::create_directories(database().parent_path());
  fill(database());
  Connection writer(fs::canonical(database()), Connection::Mode::kReadWrite);
  writer.execute("BEGIN EXCLUSIVE");
  const auto reading = start({"db", "stats"});
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // the library gives up after 250
  EXPECT_FALSE(reading->has_ended());
  writer.execute("COMMIT");
  const CommandResult result = reading->finish();
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST_F(DatabaseTest, ACommandThatWaitsToReadEndsSoonAfterAnInterrupt) {
  fs::create_directories(database().parent_path());
  fill(database());
  Connection writer(fs::canonical(database()), Connection::Mode::kReadWrite);
  writer.execute("BEGIN EXCLUSIVE");
  const auto reading = start({"db", "stats"});
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  reading->signal(SIGINT);
  EXPECT_EQ(reading->finish().status, 130);
}

}  // namespace
}  // namespace vitune::testing
