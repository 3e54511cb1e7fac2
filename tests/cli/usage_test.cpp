// tests/cli/usage_test.cpp -- Help, exit codes, and what is said to someone who mistypes.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/cli/command_fixture.h"

namespace vitune::testing {
namespace {

using ::testing::HasSubstr;

class UsageTest : public CommandTest {};

TEST_F(UsageTest, WithoutArgumentsTheOverviewGoesToStderrWithStatus2) {
  const CommandResult result = run({});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("Usage: vitune <verb>"));
}

TEST_F(UsageTest, EveryVerbHasHelp) {
  const std::vector<std::vector<std::string>> verbs = {{"tune"},           {"bench"},
                                                       {"compare"},        {"verify"},
                                                       {"show"},           {"compile"},
                                                       {"explain"},        {"models"},
                                                       {"completion"},     {"man"},
                                                       {"devices"},        {"doctor"},
                                                       {"db", "stats"},    {"db", "check"},
                                                       {"db", "export"},   {"db", "import"},
                                                       {"db", "merge"},    {"db", "prune"},
                                                       {"db", "salvage"},  {"db", "digest"},
                                                       {"fleet", "slurm"}, {"fleet", "kubernetes"},
                                                       {"fleet", "status"}};
  const CommandResult overview = run({"help"});
  EXPECT_EQ(overview.status, 0);
  for (std::vector<std::string> verb : verbs) {
    const std::string name = verb.size() == 1 ? verb[0] : verb[0] + " " + verb[1];
    EXPECT_THAT(overview.out, HasSubstr("  " + name + " "));
    verb.push_back("--help");
    const CommandResult by_option = run(verb);
    verb.pop_back();
    verb.insert(verb.begin(), "help");
    const CommandResult by_verb = run(verb);
    EXPECT_EQ(by_option.status, 0) << name;
    EXPECT_THAT(by_option.out, HasSubstr("Usage: vitune " + name));
    const bool prints_script = name == "completion" || name == "man";
    EXPECT_EQ(by_option.out.find("--json") == std::string::npos, prints_script);
    EXPECT_THAT(by_option.out, HasSubstr("-h, --help  "));
    EXPECT_EQ(by_option.out.find("[ --"), std::string::npos) << by_option.out;
    EXPECT_EQ(by_option.out, by_verb.out);
  }
}

TEST_F(UsageTest, LengthsOfPackedSequencesMayStandInAFile) {
  const fs::path file = home() / "lengths.txt";
  std::ofstream(file) << "64\n64 64,17\r\n5x3\n0\n";
  const auto explained = [&](const std::string& lengths) {
    return run({"explain", "--json", "packed_attention bf16 h=2 d=80 lengths=" + lengths});
  };
  EXPECT_EQ(explained("@" + file.string()).json()["problems"][0]["problem"],
            explained("64x3,17,5x3,0").json()["problems"][0]["problem"]);
  std::ofstream(file) << " \n";
  EXPECT_THAT(explained("@" + file.string()).err, HasSubstr("the file is empty"));
  std::ofstream many(file);
  for (int length = 1; length < 2000; ++length) many << length << '\n';
  many.close();
  EXPECT_THAT(explained("@" + file.string()).err, HasSubstr("sort the file"));
  const CommandResult missing = explained("@" + absent("lengths.txt"));
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("no such file"));
}

TEST_F(UsageTest, CommonOptionsMayStandBeforeTheVerb) {
  const std::string database = absent("x.db");
  const CommandResult stats = run({"--json", "-q", "--db", database, "db", "stats"});
  EXPECT_EQ(stats.status, 5) << stats.err;
  EXPECT_THAT(stats.err, HasSubstr(database));
  EXPECT_EQ(run({"--json", "show"}).json()["command"], "show");
  EXPECT_EQ(run({"--color=never", "-v", "models", "vit_tiny*"}).status, 0);
  EXPECT_THAT(run({"--json", "shwo"}).err, HasSubstr("did you mean 'show'"));
  EXPECT_EQ(run({"--json"}).status, 2);
  EXPECT_EQ(run({"--db"}).status, 2);
}

TEST_F(UsageTest, DevicesAndArchitecturesAreTakenAsOthersWriteThem) {
  for (const char* arch : {"sm_80", "sm80", "80", "8.0"}) {
    const CommandResult result =
        run({"show", "--space", "--json", "--arch", arch, "bf16 b=1 h=1 n=8 d=64"});
    ASSERT_EQ(result.status, 0) << arch << result.err;
    EXPECT_EQ(result.json()["device"]["arch"], "sm_80");
  }
  EXPECT_THAT(run({"compile", "--arch", "sm_9"}).err, HasSubstr("--arch 'sm_9' is not supported"));
  if (has_gpu()) return;
  EXPECT_EQ(run({"tune", "--device", "cuda:0"}).status, 3);
  EXPECT_EQ(run({"tune", "--device", "cuda:x"}).status, 2);
}

TEST_F(UsageTest, ProblemsAreReadFromStandardInput) {
  CommandOptions options;
  options.input = "bf16 b=1 h=3 n=17 d=64\n# a note\nbf16 b=2 h=3 n=17 d=64\n";
  const auto document =
      run({"explain", "--device", "replay:h200", "--json", "--from", "-"}, options);
  ASSERT_EQ(document.status, 0) << document.err;
  EXPECT_EQ(document.json()["problems"].size(), 2u);
  options.input = "bf16 b=1\n";
  EXPECT_THAT(run({"explain", "--from", "-"}, options).err, HasSubstr("standard input:1: "));
  EXPECT_THAT(run({"explain", "--from", "nofile"}).err, HasSubstr("nofile: no such file"));
  EXPECT_THAT(run({"explain", "--from", "/dev/stdin"}, options).err, HasSubstr("'-' reads"));
}

TEST_F(UsageTest, ErrorsBeginAlike) {
  if (!has_gpu()) {
    const std::string devices = run({"devices"}).err;
    EXPECT_TRUE(devices.starts_with("vitune: error: no usable GPU")) << devices;
  }
  const std::string usage = run({"tune", "--frob"}).err;
  EXPECT_TRUE(usage.starts_with("vitune: error: '--frob'")) << usage;
}

TEST_F(UsageTest, TheDatabaseVerbsAreListedTogether) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"help", "db"}, std::vector<std::string>{"db", "--help"}}) {
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.out, HasSubstr("db salvage"));
  }
}

TEST_F(UsageTest, HelpOfAWordWithoutHelpOfItsOwnIsTheOverview) {
  const std::string overview = run({"help"}).out;
  for (const char* word : {"help", "version", "--help", "-h", "--version"}) {
    const CommandResult result = run({"help", word});
    EXPECT_EQ(result.status, 0) << word << result.err;
    EXPECT_EQ(result.out, overview) << word;
  }
}

TEST_F(UsageTest, WhatWasTypedIsNotSuggested) {
  const CommandResult result = run({"db stats"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.err.find("did you mean 'db stats'"), std::string::npos) << result.err;
}

TEST_F(UsageTest, AMistypedLogLevelIsSaid) {
  CommandOptions options;
  options.environment = {{"VITUNE_LOG_LEVEL", "foo"}};
  const CommandResult result = run({"show"}, options);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("VITUNE_LOG_LEVEL 'foo' is not one of debug, info"));
  EXPECT_EQ(run({"show", "-q"}, options).status, 0);
}

TEST_F(UsageTest, TheExampleForExplainWorks) {
  const std::string said = run({"show", "--explain", "kWarps=4"}).err;
  const std::size_t first = said.find('"'), last = said.rfind('"');
  ASSERT_NE(first, std::string::npos) << said;
  const std::size_t gap = said.find("\" \"");
  ASSERT_NE(gap, std::string::npos) << said;
  const CommandResult result = run({"show", "--explain", said.substr(first + 1, gap - first - 1),
                                    said.substr(gap + 3, last - gap - 3), "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.json()["in_space"], true);
}

TEST_F(UsageTest, VerifyRefusesARecordingAndDoesNotAdviseOne) {
  const std::string problem = "bf16 b=32 h=12 n=197 d=64";
  const CommandResult replay = run({"verify", "--device", "replay:h200", problem});
  EXPECT_EQ(replay.status, 3);
  EXPECT_THAT(replay.err, HasSubstr("a recording cannot tell"));
  if (has_gpu()) return;
  const CommandResult plain = run({"verify", problem});
  EXPECT_EQ(plain.status, 3);
  EXPECT_THAT(plain.err, HasSubstr("vitune doctor"));
  EXPECT_EQ(plain.err.find("replay"), std::string::npos) << plain.err;
  EXPECT_THAT(run({"devices"}).err, HasSubstr("replay:h200"));
  EXPECT_THAT(run({"devices", "--measure"}).err, HasSubstr("replay:h200"));
}

TEST_F(UsageTest, AnArchitectureNamedTwiceCountsOnce) {
  if (!has_compiler()) GTEST_SKIP() << "no NVRTC here";
  const auto document = run({"compile", "--arch", "sm_80,sm_80", "--json", "-q", "--config",
                             "kBlockN=7", "bf16 b=1 h=1 n=8 d=64"})
                            .json();
  EXPECT_EQ(document["results"].size(), 1u);
}

TEST_F(UsageTest, TheVersionIsPrinted) {
  const CommandResult result = run({"version"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, ::testing::MatchesRegex("vitune [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST_F(UsageTest, MistakesGiveStatus2AndSayWhatToDo) {
  const struct {
    std::vector<std::string> arguments;
    std::string said;
  } cases[] = {
      {{"tnue"}, "did you mean 'tune'"},
      {{"--frobnicate"}, "is not a verb"},
      {{"db"}, "needs one of: stats"},
      {{"db", "exprot"}, "did you mean export"},
      {{"tune", "--strateg", "local"}, "did you mean --strategy"},
      {{"tune", "--strategy", "magic"}, "exhaustive, random, local"},
      {{"tune", "--budget", "5 parsecs"}, "30s, 2m, 1h"},
      {{"tune", "--seed", "-1"}, "--seed"},
      {{"tune", "--objective", "tepid", "--device", "replay:h200"}, "cold, warm"},
      {{"tune", "--device", "gpu:0"}, "ordinal"},
      {{"tune", "--device", "replay:"}, "replay:h200"},
      {{"tune", "--device", "replay:" + absent("recording")}, "there is no recording"},
      {{"tune", "--device", "0", "--devices", "1"}, "give one of them"},
      {{"tune", "--preset", "vti"}, "vit-b16"},
      {{"tune", "--from", absent("a.json")}, absent("a.json")},
      {{"tune", "--db"}, "--db"},
      {{"devices", "extra"}, "takes no argument 'extra'"},
      {{"show", "--json", "--csv"}, "choose one of"},
      {{"show", "--trials", "--space"}, "choose one of"},
      {{"show", "--space"}, "one problem"},
      {{"show", "--color", "mauve"}, "auto, always, never"},
      {{"show", "--space", "--arch", "sm_1", "bf16 b=1 h=1 n=8 d=64"}, "sm_80"},
      {{"show", "--explain", "kWarps=x", "bf16 b=1 h=1 n=8 d=64"}, "kWarps"},
      {{"compare"}, "before.json after.json"},
      {{"compare", "only-one.json"}, "two files"},
      {{"compare", "a", "b", "--threshold", "much"}, "for example 5%"},
      {{"compare", "a", "b", "--threshold", "-1%"}, "from 0 to 1000"},
      {{"compare", "a", "b", "--threshold", "nan"}, "from 0 to 1000"},
      {{"compare", "a", "b", "--kind", "tepid"}, "cold, warm, both"},
      {{"compile", "--arch", "sm_70"}, "sm_80"},
      {{"compile", "--arch", ","}, "no architecture"},
      {{"db", "import"}, "give the file"},
      {{"db", "import", absent("a.json")}, "not a file"},
      {{"db", "merge", absent("a.db")}, "no database"},
      {{"db", "prune", "--keep", "many"}, "--keep"},
      {{"doctor", "--data-dir", absent("data")}, "not a folder"},
      {{"--worker=magic"}, "not known"},
  };
  for (const auto& c : cases) {
    const CommandResult result = run(c.arguments);
    EXPECT_EQ(result.status, 2) << c.arguments.back() << ": " << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(c.said));
  }
}

TEST_F(UsageTest, ProblemsOutsideTheKernelsReachAreRefusedWithWhatIsAllowed) {
  const struct {
    std::string problem, said;
  } cases[] = {
      {"bf16 b=32 h=12 n=197 d=65", "d"},
      {"bf16 b=32 h=12 n=197 d=136", "128"},
      {"fp32 b=32 h=12 n=197 d=64", "fp32"},
      {"bf16 b=0 h=12 n=197 d=64", "b"},
      {"bf16 b=9223372036854775807 h=9223372036854775807 n=197 d=64", "b"},
      {"bf16 b=99999999999999999999 h=1 n=8 d=64", "b"},
      {"bf16 b=1 h=1 n=8 d=64 frobnicate", "frobnicate"},
      {"", ""},
  };
  for (const auto& c : cases) {
    const CommandResult result = run({"show", "--space", "--problem", c.problem});
    EXPECT_EQ(result.status, 2) << c.problem << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr("vitune: "));
    EXPECT_THAT(result.err, HasSubstr(c.said));
  }
}

TEST_F(UsageTest, AHostileArgumentCannotDriveTheTerminal) {
  const CommandResult result = run({"\x1b[2Jclear"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.err.find('\x1b'), std::string::npos);
  EXPECT_THAT(result.err, HasSubstr("\\x1b[2J"));
}

TEST_F(UsageTest, ResultsThatCannotBeWrittenAreAFailure) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const CommandResult result = run({"help"}, {.out_path = "/dev/full"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("could not be written"));
}

// Nothing that the command opens may come to stand where the results go.
TEST_F(UsageTest, AClosedStandardOutputIsNamed) {
  const std::string shipped = (fs::path(VITUNE_SOURCE_DIR) / "data" / "winners.db").string();
  const std::string database = (directory() / "x.db").string();
  const std::vector<std::string> cases[] = {
      {"help"},
      {"models"},
      {"show", "--space", "bf16 b=2 h=3 n=49 d=32"},
      {"db", "stats", "--db", shipped},
      {"db", "export", "--winners-only", "--db", shipped},
      {"db", "merge", shipped, "--db", database},
  };
  for (const auto& arguments : cases) {
    const CommandResult result = run(arguments, {.closed_stdout = true});
    EXPECT_EQ(result.status, 1) << arguments[0];
    EXPECT_THAT(result.err, HasSubstr("standard output is closed")) << arguments[0];
  }
  EXPECT_EQ(run({"db", "check", "--db", database}).status, 0);
}

TEST_F(UsageTest, AnUnquotedProblemIsOneProblem) {
  const CommandResult whole = run({"show", "--space", "--json", "bf16 b=2 h=3 n=49 d=32"});
  const CommandResult words =
      run({"show", "--space", "--json", "bf16", "b=2", "h=3", "n=49", "d=32"});
  ASSERT_EQ(whole.status, 0) << whole.err;
  ASSERT_EQ(words.status, 0) << words.err;
  auto one = whole.json(), other = words.json();
  // When each was printed.
  EXPECT_EQ(one["context"].erase("date"), 1u);
  EXPECT_EQ(other["context"].erase("date"), 1u);
  EXPECT_EQ(one, other);
}

TEST_F(UsageTest, DevicesSaysWhyThereIsNone) {
  const CommandResult result = run({"devices", "--json"});
  const auto document = result.json();
  EXPECT_EQ(document["schema"], 1);
  if (document["devices"].empty()) {
    EXPECT_EQ(result.status, 3);
    EXPECT_NE(document["reason"], "");
  } else {
    EXPECT_EQ(result.status, 0);
  }
}

TEST_F(UsageTest, DoctorNamesEachCheckWithAVerdict) {
  const CommandResult result = run({"doctor", "--json"});
  const auto document = result.json();
  EXPECT_EQ(result.status, document["usable"] == true ? 0 : 1);
  EXPECT_GE(document["checks"].size(), 6u);
  for (const auto& check : document["checks"]) {
    EXPECT_THAT(check["verdict"].get<std::string>(), ::testing::AnyOf("ok", "warn", "fail"));
    EXPECT_NE(check["detail"], "");
    // Whatever is not in order says what to do.
    if (check["verdict"] == "fail") {
      EXPECT_NE(check["advice"], "") << check;
    }
  }
}

TEST_F(UsageTest, TheArchitectureCheckFindsPlantedViolations) {
  if (std::system("python3 -c pass >/dev/null 2>&1") != 0) GTEST_SKIP() << "no python3 here";
  const std::string command =
      "python3 '" VITUNE_SOURCE_DIR "/cmake/check_architecture.py' --self-test";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace vitune::testing
