// tests/cli/pack_test.cpp -- vitune db pack, contents and export of one GPU; VITUNE_DB as a list.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db/store.h"
#include "tests/cli/command_fixture.h"

namespace vitune::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const fs::path& shipped() {
  static const fs::path file = fs::path(VITUNE_SOURCE_DIR) / "data" / "winners.db";
  return file;
}

class PackCommandTest : public CommandTest {
 protected:
  fs::path pack_file() const { return home() / "site.pack"; }
  CommandResult pack(const std::vector<std::string>& more = {}, const fs::path& from = shipped()) {
    std::vector<std::string> arguments = {"db",     "pack", pack_file().string(),
                                          "--json", "--db", from.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  // Without the winners that are shipped: what the layers say shows.
  CommandOptions with_databases(const std::string& list) const {
    fs::create_directories(directory() / "no_data");
    CommandOptions options;
    options.environment = {{"VITUNE_DB", list}};
    return options;
  }
  CommandResult show(const std::string& databases) const {
    return run({"show", "--json", "--data-dir", (directory() / "no_data").string()},
               with_databases(databases));
  }
};

TEST_F(PackCommandTest, PacksTheShippedWinnersAndSaysWhatThePackIs) {
  const CommandResult packed = pack({"--label", "site A", "--gpu", "h200"});
  ASSERT_EQ(packed.status, 0) << packed.err;
  EXPECT_EQ(packed.json()["winners"], 230) << "every shipped winner is one that can be served";
  EXPECT_EQ(packed.json()["devices"], 1);
  EXPECT_EQ(packed.json()["stale"], 0);
  EXPECT_THAT(packed.err, HasSubstr("VITUNE_DB=:" + pack_file().string()));
  const CommandResult contents = run({"db", "contents", "--json", "--db", pack_file().string()});
  ASSERT_EQ(contents.status, 0) << contents.err;
  const auto document = contents.json();
  EXPECT_EQ(document["pack"]["label"], "site A");
  EXPECT_EQ(document["pack"]["digest"], packed.json()["digest"]);
  ASSERT_EQ(document["contents"].size(), 6U);
  EXPECT_EQ(document["contents"][0]["operator"], "attention");
  EXPECT_EQ(document["contents"][0]["winners"], 45);
  EXPECT_EQ(document["contents"][0]["device"]["name"], "NVIDIA H200");
  EXPECT_EQ(run({"db", "check", "--db", pack_file().string()}).status, 0);
  EXPECT_EQ(run({"db", "digest", "--json", "--db", pack_file().string()}).json()["digest"],
            packed.json()["digest"]);
}

TEST_F(PackCommandTest, AGpuThatIsNotThereIsNamedWithThoseThatAre) {
  const CommandResult result = pack({"--gpu", "b200"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("b200"), HasSubstr("NVIDIA H200")));
  EXPECT_FALSE(fs::exists(pack_file()));
}

TEST_F(PackCommandTest, EveryVerbThatWritesRefusesAPack) {
  ASSERT_EQ(pack().status, 0);
  const std::string file = pack_file().string(), before = read_file(pack_file());
  const std::string json =
      write_file("x.json", R"({"format":"vitune-export","schema":1,"devices":[],"problems":[]})");
  const std::vector<std::vector<std::string>> commands = {
      {"db", "prune", "--yes", "--db", file},
      {"db", "import", json, "--db", file},
      {"db", "merge", shipped().string(), "--db", file},
      {"tune", "--device", "replay:h200", "--budget", "2", "--db", file}};
  for (const auto& command : commands) {
    const CommandResult result = run(command);
    EXPECT_EQ(result.status, 5) << command[1] << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("is a pack"), HasSubstr("VITUNE_DB=:")));
  }
  EXPECT_EQ(read_file(pack_file()), before);
}

TEST_F(PackCommandTest, ADatabaseIsNotTakenForAnOlderPack) {
  const fs::path mine = home() / "mine.db";
  ASSERT_EQ(run({"db", "merge", shipped().string(), "--db", mine.string()}).status, 0);
  const std::string before = read_file(mine);
  const CommandResult result = run({"db", "pack", mine.string(), "--db", shipped().string()});
  EXPECT_EQ(result.status, 5);
  EXPECT_THAT(result.err, HasSubstr("no pack"));
  EXPECT_EQ(read_file(mine), before);
}

TEST_F(PackCommandTest, LayersAreReadInTheOrderOfVituneDb) {
  ASSERT_EQ(pack().status, 0);
  const CommandResult alone = show((home() / "mine.db").string());
  ASSERT_EQ(alone.status, 0) << alone.err;
  const CommandResult layered = show(":" + pack_file().string());
  ASSERT_EQ(layered.status, 0) << layered.err;
  EXPECT_THAT(layered.out, HasSubstr("NVIDIA H200"));
  EXPECT_THAT(alone.out, ::testing::Not(HasSubstr("NVIDIA H200")));
  EXPECT_FALSE(fs::exists(database())) << "reading makes no database";
  // Writing goes to the first.
  const fs::path mine = home() / "mine.db";
  const std::string before = read_file(pack_file());
  ASSERT_EQ(run({"db", "merge", shipped().string()},
                with_databases(mine.string() + ":" + pack_file().string()))
                .status,
            0);
  EXPECT_TRUE(fs::exists(mine));
  EXPECT_EQ(read_file(pack_file()), before);
}

TEST_F(PackCommandTest, AMissingLayerIsAWarningAndAnUnreadableOneAnError) {
  const CommandResult missing = show(":" + pack_file().string());
  EXPECT_EQ(missing.status, 0) << missing.err;
  EXPECT_THAT(missing.err, AllOf(HasSubstr("VITUNE_DB"), HasSubstr(pack_file().string())));
  ASSERT_EQ(pack().status, 0);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(pack_file().c_str(), 1001, 1001), 0);
    const CommandResult foreign = show(":" + pack_file().string());
    EXPECT_EQ(foreign.status, 5);
    EXPECT_THAT(foreign.err, HasSubstr("--trust-owner 1001"));
    ASSERT_EQ(::chown(pack_file().c_str(), 0, 0), 0);
  }
  fs::permissions(pack_file(), fs::perms::owner_read | fs::perms::owner_write);
  fs::resize_file(pack_file(), fs::file_size(pack_file()) / 2);
  EXPECT_EQ(show(":" + pack_file().string()).status, 5);
  const CommandResult doctor = run({"doctor"}, with_databases(":" + pack_file().string()));
  EXPECT_THAT(doctor.out, HasSubstr("site database"));
}

TEST_F(PackCommandTest, AnExportOfOneGpuHasNothingOfOthers) {
  const fs::path both = home() / "both.db";
  {
    const auto store = Store::open(both, Access::kReadWrite);
    store->merge(*Store::open(shipped(), Access::kReadOnly));
    DeviceInfo other = store->devices().at(0);
    other.sm_count = 78;
    other.name = "Another GPU";
    const WinnerEntry one = store->winners().at(0);
    store->promote(other, {"attention", "attention of the other"}, one.winner, nullptr);
    store->add_requests({{"attention", "asked", 1, 2}});
  }
  const CommandResult all = run({"db", "export", "--db", both.string()});
  const CommandResult h200 = run({"db", "export", "--gpu", "H200", "--db", both.string()});
  const CommandResult other =
      run({"db", "export", "--gpu", "another", "--winners-only", "--db", both.string()});
  ASSERT_EQ(other.status, 0) << other.err;
  EXPECT_EQ(all.json()["devices"].size(), 3U);
  EXPECT_EQ(h200.json()["devices"].size(), 1U);
  EXPECT_EQ(h200.json()["winners"].size(), 230U);
  EXPECT_EQ(h200.json()["requests"].size(), 0U);
  EXPECT_EQ(h200.json()["problems"].size(), all.json()["problems"].size() - 1);
  EXPECT_EQ(other.json()["winners"].size(), 1U);
  EXPECT_EQ(other.json()["problems"].size(), 1U);
}

TEST_F(PackCommandTest, WinnersOfSeveralGpusAreToldApart) {
  const fs::path both = home() / "both.db";
  const std::string problem = "linear bf16 m=64 n=64 k=64";
  {
    const auto store = Store::open(both, Access::kReadWrite);
    store->merge(*Store::open(shipped(), Access::kReadOnly));
    WinnerEntry one;
    for (const WinnerEntry& each : store->winners()) {
      if (each.problem.operator_name == "linear") one = each;
    }
    one.device.sm_count = 78;
    one.device.name = "Another GPU";
    store->promote(one.device, {"linear", problem}, one.winner, nullptr);
  }
  const auto lines = [&](const fs::path& database) {
    return run({"show", "--csv", "--data-dir", (directory() / "no_data").string()},
               with_databases(database.string()))
        .out;
  };
  EXPECT_THAT(lines(both), AllOf(HasSubstr(",Another GPU\n"), HasSubstr(",NVIDIA H200\n")));
  // In order of GPUs, operators, then problems, whose numbers count.
  const std::string one = lines(shipped());
  const auto first = one.find("linear bf16 m=32 "), second = one.find("linear bf16 m=197 ");
  ASSERT_NE(second, std::string::npos) << one;
  EXPECT_LT(first, second);
  EXPECT_LT(second, one.find("\nnorm bf16 "));
}

TEST_F(PackCommandTest, VerifyingNeedsAGpuOfThatKind) {
  if (has_gpu()) GTEST_SKIP() << "this machine has a GPU";
  const fs::path json = home() / "winners.json";
  ASSERT_EQ(run({"db", "export", json.string(), "--db", shipped().string()}).status, 0);
  const CommandResult result = run({"db", "import", "--verify", json.string()});
  EXPECT_EQ(result.status, 3) << result.err;
  EXPECT_EQ(run({"db", "import", json.string(), "--device", "0"}).status, 2)
      << "--device is of --verify alone";
}

}  // namespace
}  // namespace vitune::testing
