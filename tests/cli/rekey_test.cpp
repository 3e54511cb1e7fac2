// tests/cli/rekey_test.cpp -- vitune db rekey: what an upgrade leaves of stored results.
// SPDX-License-Identifier: Apache-2.0
#include "db/rekey.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "core/digest.h"
#include "db/sqlite.h"
#include "db/store.h"
#include "generator/compile_options.h"
#include "generator/operator.h"
#include "tests/cli/command_fixture.h"
#include "tests/generator/compile_support.h"

namespace vitune::testing {
namespace {

using ::testing::HasSubstr;

// The shipped winner of a small norm, which compiles quickly.
constexpr const char* kProblem = "norm bf16 m=6304 d=1024 weight bias residual sum";

class RekeyCommandTest : public CommandTest {
 protected:
  RekeyCommandTest() { copy_shipped(); }
  void copy_shipped() const {
    fs::copy_file(fs::path(VITUNE_SOURCE_DIR) / "data" / "winners.db", file_,
                  fs::copy_options::overwrite_existing);
    fs::permissions(file_, fs::perms::owner_read | fs::perms::owner_write);
  }
  std::unique_ptr<Store> open() const { return Store::open(file_, Access::kReadWrite); }
  WinnerEntry winner() const {
    for (const WinnerEntry& entry : open()->winners()) {
      if (entry.problem.text == kProblem) return entry;
    }
    throw std::runtime_error("no such winner is shipped");
  }
  // How many rows name the kernel as their winner, of any device and objective.
  std::int64_t winners_of(const Digest& key) const {
    const auto winners = open()->winners();
    return std::ranges::count_if(
        winners, [&](const WinnerEntry& entry) { return entry.winner.kernel_key == key; });
  }
  nlohmann::json check() const {
    const CommandResult result = run({"db", "check", "--json", "--db", file_.string()});
    EXPECT_EQ(result.status, 0) << result.err;
    return result.json();
  }
  // With the site's database below this one.
  CommandResult rekey_command(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"db", "rekey", "--json", "--db", file_.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    CommandOptions options;
    if (fs::exists(site_)) {
      options.environment = {{"VITUNE_DB", file_.string() + ":" + site_.string()}};
    }
    return run(arguments, options);
  }
  std::unique_ptr<Store> site() const { return Store::open(site_, Access::kReadWrite); }
  static Digest text_key(const WinnerEntry& entry) {
    const ProblemPtr problem = parse_problem(entry.problem.text);
    const auto request = problem->op().request(*problem, entry.winner.config, entry.device.arch());
    return text_kernel_key(request, entry.winner.compiler_version);
  }
  static BlockEntry block_of(const Digest& key, const WinnerEntry& entry) {
    return {key, entry.device.key(), entry.device.driver_version, TrialStatus::kWrong,
            "max error 0.5"};
  }
  // A kernel of another norm than kProblem's, whose image is read before that one's or after it.
  Binary another_kernel(bool read_before = false) const {
    const Winner one = winner().winner;
    const auto store = open();
    for (const auto& [device, problem, other] : store->winners()) {
      if (problem.operator_name != "norm" || other.kernel_key == one.kernel_key) continue;
      if ((other.image_digest < one.image_digest) != read_before) continue;
      return store->find_binary(other.kernel_key, other.image_digest).value();
    }
    throw std::runtime_error("no other norm is shipped");
  }

  const fs::path file_ = directory() / "user.db";
  const fs::path site_ = directory() / "site.db";
  const Digest before_ = sha256("the key of templates of before");
};

TEST_F(RekeyCommandTest, AllThatIsShippedIsOfToday) {
  EXPECT_EQ(check()["stale_winners"], 0);
  const Digest before = open()->content_digest();
  const CommandResult result = rekey_command();
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.json()["winners_rekeyed"], 0);
  EXPECT_EQ(open()->content_digest(), before);
}

TEST_F(RekeyCommandTest, ADatabaseOfTheRuleOfBeforeServesAndIsTakenOverWithItsTrials) {
  const auto all = open()->winners();
  std::map<Digest, Digest> to_text;
  for (const WinnerEntry& entry : all) {
    to_text[entry.winner.kernel_key] = text_key(entry);
  }
  const Digest today = open()->content_digest();
  rekey(file_, to_text);
  ASSERT_NE(open()->content_digest(), today);
  EXPECT_EQ(check()["stale_winners"], 0) << "they serve as they are";

  const CommandResult result = rekey_command();

  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.json()["kernels_of_same_code"], 0) << "the same text needs no compiler";
  EXPECT_GT(result.json()["winners_rekeyed"], 300);
  EXPECT_GT(result.json()["trials_rekeyed"], 300);
  EXPECT_EQ(open()->content_digest(), today);
}

TEST_F(RekeyCommandTest, AWinnerOfOtherSourcesIsNamedAndKeptWhereItsCodeIsTheSame) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const WinnerEntry entry = winner();
  if (compiler->version() != entry.winner.compiler_version) GTEST_SKIP() << "of another NVRTC";
  const Digest today = open()->content_digest(), key = entry.winner.kernel_key;
  const std::int64_t winners = winners_of(key);
  rekey(file_, {{key, before_}});
  EXPECT_EQ(check()["stale_winners"], winners);
  EXPECT_THAT(run({"db", "check", "--db", file_.string()}).err,
              AllOf(HasSubstr(kProblem), HasSubstr("db rekey")));

  const CommandResult dry = rekey_command({"--dry-run"});
  ASSERT_EQ(dry.status, 0) << dry.err;
  EXPECT_EQ(dry.json()["kernels_of_same_code"], 1);
  EXPECT_EQ(winners_of(before_), winners) << "nothing is written yet";

  const CommandResult result = rekey_command();
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.json()["winners_rekeyed"], winners);
  EXPECT_EQ(open()->content_digest(), today) << "all is as it was before";
}

TEST_F(RekeyCommandTest, OneOfTwoImagesThatDiffersKeepsAllRowsOfTheirKernel) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const WinnerEntry entry = winner();
  if (compiler->version() != entry.winner.compiler_version) GTEST_SKIP() << "of another NVRTC";
  const std::int64_t winners = winners_of(entry.winner.kernel_key);
  for (const bool read_before : {true, false}) {
    copy_shipped();
    Binary second = another_kernel(read_before);
    second.compile = open()->find_binary(entry.winner.kernel_key)->compile;
    second.kernel_key = before_;
    rekey(file_, {{entry.winner.kernel_key, before_}});
    open()->put_binary(second);
    const Digest stored = open()->content_digest();

    const CommandResult result = rekey_command();

    EXPECT_EQ(result.json()["kernels_that_differ"], 1) << result.err;
    EXPECT_EQ(result.json()["stale_winners"].size(), static_cast<std::size_t>(winners));
    EXPECT_EQ(open()->content_digest(), stored);
  }
}

TEST_F(RekeyCommandTest, WithoutATrialSharedMemoryIsThatOfTheStoredKernel) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const WinnerEntry entry = winner();
  if (compiler->version() != entry.winner.compiler_version) GTEST_SKIP() << "of another NVRTC";
  rekey(file_, {{entry.winner.kernel_key, before_}});
  Connection(file_, Connection::Mode::kReadWrite).execute("DELETE FROM trial");
  Binary binary = open()->find_binary(before_).value();
  binary.compile.shared_bytes += 1024;
  open()->put_binary(binary);

  const CommandResult result = rekey_command();

  ASSERT_EQ(result.json()["kernels_that_differ"], 1) << result.err;
  EXPECT_THAT(result.json()["left"].dump(), HasSubstr("bytes of shared memory"));
}

// A launch of this kernel asks for shared memory besides, which its image does not tell.
TEST_F(RekeyCommandTest, AWinnerWithoutATrialIsKeptWhereItsCodeIsTheSame) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const WinnerEntry entry = winner();
  if (compiler->version() != entry.winner.compiler_version) GTEST_SKIP() << "of another NVRTC";
  rekey(file_, {{entry.winner.kernel_key, before_}});
  Connection(file_, Connection::Mode::kReadWrite).execute("DELETE FROM trial");

  const CommandResult result = rekey_command();

  EXPECT_EQ(result.json()["kernels_that_differ"], 0) << result.err;
  EXPECT_EQ(check()["stale_winners"], 0);
}

TEST_F(RekeyCommandTest, ABlockOfALayerBelowIsWrittenDownForTheNewKey) {
  const WinnerEntry entry = winner();
  const Digest key = entry.winner.kernel_key, text = text_key(entry);
  rekey(file_, {{key, text}});
  site()->block(block_of(text, entry));

  const CommandResult result = rekey_command();

  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.json()["blocks_rekeyed"], 1);
  EXPECT_TRUE(open()->is_blocked(key, entry.device));
}

TEST_F(RekeyCommandTest, ABlockOfALayerBelowThatWasLiftedHereIsNot) {
  const WinnerEntry entry = winner();
  const Digest key = entry.winner.kernel_key, text = text_key(entry);
  rekey(file_, {{key, text}});
  site()->block(block_of(text, entry));
  open()->unblock_all({site()->blocks().at(0)});

  const CommandResult result = rekey_command();

  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_FALSE(open()->is_blocked(key, entry.device));
}

TEST_F(RekeyCommandTest, WithADamagedListBelowNothingIsChanged) {
  const WinnerEntry entry = winner();
  rekey(file_, {{entry.winner.kernel_key, text_key(entry)}});
  site()->block(block_of(before_, entry));
  Connection(site_, Connection::Mode::kReadWrite).execute("DELETE FROM block");
  const Digest stored = open()->content_digest();

  const CommandResult result = rekey_command();

  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("nothing was changed"));
  EXPECT_EQ(open()->content_digest(), stored);
}

TEST_F(RekeyCommandTest, AnImageThatOnlyALayerBelowHasGoesAlong) {
  const WinnerEntry entry = winner();
  const Digest key = entry.winner.kernel_key, text = text_key(entry);
  rekey(file_, {{key, text}});
  ASSERT_TRUE(entry.winner.image_digest);
  site()->put_binary(open()->find_binary(text, entry.winner.image_digest).value());
  for (const char* change : {"DELETE FROM binary", "DELETE FROM winner WHERE kernel_key <> x'"}) {
    std::string text_of_change = change;
    if (text_of_change.ends_with("'")) text_of_change += text.hex() + "'";
    Connection(file_, Connection::Mode::kReadWrite).execute(text_of_change);
  }

  const CommandResult result = rekey_command();

  EXPECT_EQ(result.json()["binaries_rekeyed"], 1) << result.err;
  EXPECT_TRUE(open()->find_binary(key, entry.winner.image_digest));
}

// By one of its rows the kernel is that of today, by the other it must be compiled.
TEST_F(RekeyCommandTest, AKernelThatIsTwoNowKeepsItsRows) {
  const WinnerEntry entry = winner();
  const Digest text = text_key(entry);
  rekey(file_, {{entry.winner.kernel_key, text}});
  {
    const auto store = open();
    for (WinnerEntry other : store->winners()) {
      if (other.problem.operator_name != "norm" || other.winner.kernel_key == text) continue;
      other.winner.kernel_key = text;
      other.winner.image_digest.reset();
      ASSERT_TRUE(store->promote(other.device, other.problem, other.winner, nullptr));
      break;
    }
  }
  const Digest stored = open()->content_digest();

  const CommandResult result = rekey_command();

  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.json()["left"].dump(), HasSubstr("kernels of their own"));
  EXPECT_EQ(result.json()["stale_winners"].size(), 1u) << "the other still serves";
  EXPECT_EQ(open()->content_digest(), stored);
}

// Cold and warm may have been stored before and after an upgrade.
TEST_F(RekeyCommandTest, TwoWinnersOfOneConfigServeByEitherRule) {
  const WinnerEntry entry = winner();
  for (const bool text_first : {true, false}) {
    Winner cold = entry.winner, warm = entry.winner;
    cold.objective = Objective::kCold;
    warm.objective = Objective::kWarm;
    (text_first ? cold : warm).kernel_key = text_key(entry);
    for (const Winner& one : {cold, warm}) {
      ASSERT_TRUE(open()->promote(entry.device, entry.problem, one, nullptr));
    }
    EXPECT_EQ(check()["stale_winners"], 0);
  }
}

TEST_F(RekeyCommandTest, AWinnerWhoseCodeDiffersKeepsItsRowsAndIsNamed) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const WinnerEntry entry = winner();
  if (compiler->version() != entry.winner.compiler_version) GTEST_SKIP() << "of another NVRTC";
  {
    // The row's kernel becomes that of another config.
    const auto store = open();
    Binary binary = another_kernel();
    Winner spoilt = entry.winner;
    spoilt.kernel_key = binary.kernel_key = before_;
    spoilt.image_digest.reset();
    ASSERT_TRUE(store->promote(entry.device, entry.problem, spoilt, &binary));
  }
  const Digest stored = open()->content_digest();

  const CommandResult result = rekey_command();

  EXPECT_EQ(result.status, 1);
  ASSERT_EQ(result.json()["kernels_that_differ"], 1);
  ASSERT_EQ(result.json()["stale_winners"].size(), 1u);
  EXPECT_EQ(result.json()["stale_winners"][0]["problem"], kProblem);
  EXPECT_THAT(result.err, HasSubstr(kProblem));
  EXPECT_EQ(open()->content_digest(), stored);
}

}  // namespace
}  // namespace vitune::testing
