// tests/cli/merge_test.cpp -- vitune db merge of many files, some of them damaged or hostile.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <random>

#include "db/sqlite.h"
#include "db/store.h"
#include "generator/compiler.h"
#include "generator/operator.h"
#include "tests/cli/command_fixture.h"

namespace vitune::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kProblem = "attention bf16 b=1 h=12 nq=197 nk=197 d=64 layout=packed";

DeviceInfo device(int sm_count = 132) {
  DeviceInfo info = architecture_limits("sm_90").value();
  info.sm_count = sm_count;
  info.name = "a GPU";
  return info;
}

Winner winner(std::int64_t block, double us) {
  Winner made;
  made.config = Config{{"kBlockN", block}, {"kWarps", 4}};
  made.kernel_key = sha256(made.config.text());
  made.measurement.cold = {us, us - 0.1, us + 0.1, 10};
  made.compiler_version = "13.0";
  made.tuned_at = "2026-01-02T03:04:05Z";
  return made;
}

class MergeCommandTest : public CommandTest {
 protected:
  fs::path shard(int n) const { return home() / ("shard" + std::to_string(n) + ".db"); }

  void write_shard(int n) const {
    const auto store = Store::open(shard(n), Access::kReadWrite);
    for (const int devices : {100, 100 + n % 3}) {
      store->promote(device(devices), {"attention", kProblem}, winner(16 * n, 10 + n % 5), nullptr);
    }
    store->block({sha256(std::to_string(n)), device().key(), 13000, TrialStatus::kWrong, "wrong"});
  }

  CommandResult merge(const std::vector<std::string>& files, const std::string& into) {
    std::vector<std::string> arguments = {"db", "merge"};
    arguments.insert(arguments.end(), files.begin(), files.end());
    arguments.insert(arguments.end(), {"--db", (home() / into).string(), "--json"});
    return run(arguments);
  }

  std::string digest(const std::string& file) {
    return run({"db", "digest", "--json", "--db", (home() / file).string()}).json()["digest"];
  }
};

TEST_F(MergeCommandTest, AnyOrderOfManyFilesGivesOneDigest) {
  std::vector<std::string> files;
  for (int n = 0; n < 32; ++n) {
    write_shard(n);
    files.push_back(shard(n).string());
  }
  ASSERT_EQ(merge(files, "all.db").status, 0);
  std::shuffle(files.begin(), files.end(), std::mt19937(3));
  const std::vector<std::string> first(files.begin(), files.begin() + 9);
  std::vector<std::string> rest(files.begin() + 9, files.end());
  ASSERT_EQ(merge(first, "part.db").status, 0);
  rest.push_back((home() / "part.db").string());
  ASSERT_EQ(merge(rest, "other.db").status, 0);
  EXPECT_EQ(digest("all.db"), digest("other.db"));
  EXPECT_NE(digest("all.db"), digest("part.db"));
  const auto stats = run({"db", "stats", "--json", "--db", (home() / "all.db").string()}).json();
  EXPECT_EQ(stats["winners"], 3);
  EXPECT_EQ(stats["blocks"], 32);
}

TEST_F(MergeCommandTest, DamagedAndHostileFilesAreNamedAndTheRestIsMerged) {
  std::vector<std::string> good, all;
  for (int n = 0; n < 30; ++n) {
    write_shard(n);
    all.push_back(shard(n).string());
    if (n >= 7) good.push_back(shard(n).string());
  }
  fs::resize_file(shard(0), 5000);                    // cut off
  Connection(shard(1), Connection::Mode::kReadWrite)  // a row changed
      .execute("UPDATE winner SET cold_us = 0.001");
  Connection(shard(2), Connection::Mode::kReadWrite)  // a block lost
      .execute("DELETE FROM block");
  fs::remove(shard(3));  // leads elsewhere
  fs::create_symlink(shard(9), shard(3));
  fs::permissions(shard(4), fs::perms::owner_all | fs::perms::others_write);
  fs::remove(shard(5));
  ASSERT_EQ(mkfifo(shard(5).c_str(), 0600), 0);
  write_file("not_a_database", "no database");
  fs::copy_file(directory() / "not_a_database", shard(6), fs::copy_options::overwrite_existing);
  const CommandResult result = merge(all, "all.db");
  EXPECT_EQ(result.status, 5);
  const auto left_out = result.json()["left_out"];
  ASSERT_EQ(left_out.size(), 7U) << result.err;
  for (int n = 0; n < 7; ++n) {
    EXPECT_EQ(left_out[static_cast<std::size_t>(n)]["file"], shard(n).string());
    EXPECT_THAT(result.err, HasSubstr(shard(n).string() + "' is left out: "));
  }
  ASSERT_EQ(merge(good, "good.db").status, 0);
  EXPECT_EQ(digest("all.db"), digest("good.db"));
}

TEST_F(MergeCommandTest, ARowThatTheSchemaRefusesLeavesItsWholeFileOut) {
  write_shard(1);
  write_shard(2);
  {
    Connection raw(shard(1), Connection::Mode::kReadWrite);
    raw.execute("PRAGMA ignore_check_constraints = ON");
    const Row row{"attention", kProblem, std::int64_t{1}, -1.0};
    Query query = raw.query("INSERT INTO request VALUES (?, ?, ?, ?, ?)");
    query.bind_all(row);
    query.bind(5, to_blob(row_digest("request", row)));
    query.step();
  }
  const CommandResult result = merge({shard(1).string(), shard(2).string()}, "all.db");
  EXPECT_EQ(result.status, 5);
  ASSERT_EQ(result.json()["left_out"].size(), 1U) << result.err;
  EXPECT_EQ(result.json()["left_out"][0]["file"], shard(1).string());
  ASSERT_EQ(merge({shard(2).string()}, "good.db").status, 0);
  EXPECT_EQ(digest("all.db"), digest("good.db"));
}

TEST_F(MergeCommandTest, AMistypedNameMergesNothing) {
  write_shard(1);
  const CommandResult result = merge({shard(1).string(), shard(2).string()}, "all.db");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("there is no database '" + shard(2).string()));
  EXPECT_FALSE(fs::exists(home() / "all.db"));
}

TEST_F(MergeCommandTest, AWinnerOfTodaysTemplatesBeatsAFasterOneOfOthers) {
  const ProblemPtr asked = parse_problem(kProblem);
  Winner today = winner(0, 50);
  today.config =
      asked->op().defaults(*asked, device(), asked->op().space(*asked, device())).front();
  today.kernel_key = kernel_key(asked->op().request(*asked, today.config, device().arch()),
                                today.compiler_version);
  const ProblemKey key{"attention", asked->text()};
  Store::open(shard(1), Access::kReadWrite)->promote(device(), key, today, nullptr);
  Store::open(shard(2), Access::kReadWrite)->promote(device(), key, winner(64, 5), nullptr);
  for (const bool today_first : {true, false}) {
    const std::string into = today_first ? "a.db" : "b.db";
    const std::string one = shard(1).string(), two = shard(2).string();
    ASSERT_EQ(merge(today_first ? std::vector{one, two} : std::vector{two, one}, into).status, 0);
    const auto kept =
        Store::open(home() / into, Access::kReadOnly)->find_winner(device(), key, Objective::kCold);
    EXPECT_EQ(kept, today);
  }
}

}  // namespace
}  // namespace vitune::testing
