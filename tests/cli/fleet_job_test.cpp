// tests/cli/fleet_job_test.cpp -- vitune fleet slurm and kubernetes: what they print does what it
// says, whatever the paths are called.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <sstream>

#include "cli/fleet/shell_word.h"
#include "tests/cli/command_fixture.h"
#include "tests/cli/synthetic_recording.h"

namespace vitune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kProblems = {
    "attention bf16 b=1 h=12 nq=197 nk=197 d=64 layout=packed",
    "attention bf16 b=2 h=12 nq=197 nk=197 d=64 layout=packed",
};

// Stands in for Slurm: runs each task of the script at once, and the merge when it is submitted.
constexpr const char* kSbatch = R"(#!/bin/bash
set -u
echo "$*" >> "$SEEN"
for last; do :; done
script=("${@: -2}")
for word; do
  case $word in
    --array=*) IFS=, read -ra tasks <<< "${word#--array=}" ;;
    --chdir=*) folder=${word#--chdir=} ;;
  esac
done
script[0]=$(realpath "${script[0]}")
cd "$folder" || exit 1
if [[ $last == merge ]]; then
  bash "${script[@]}" > merge.txt 2>&1
  echo $? > merge.status
  echo 8
  exit
fi
for part in "${tasks[@]}"; do
  for ((task = ${part%-*}; task <= ${part#*-}; ++task)); do
    [[ $task == "${LOSE:-none}" ]] || SLURM_ARRAY_TASK_ID=$task bash "${script[@]}" > "$task.txt" 2>&1
  done
done
echo '7;a cluster'
)";

class FleetJobTest : public CommandTest {
 protected:
  FleetJobTest() : out_(directory() / "it's $(touch harm) \"out\" %A") {
    synthetic_recording(kProblems, 30).save(recording());
    write_program("sbatch", kSbatch);
    write_program("vitune", "#!/bin/sh\nexec '" VITUNE_COMMAND "' \"$@\"\n");
    options_.environment["PATH"] = directory().string() + ":/usr/local/bin:/usr/bin:/bin";
    options_.environment["SEEN"] = (directory() / "seen").string();
    write_file("list of problems.txt", kProblems[0] + "\n" + kProblems[1] + "\n");
  }

  fs::path recording() const { return directory() / "a recording"; }
  const fs::path& out() const { return out_; }

  std::vector<std::string> job(const std::string& kind, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"fleet",      kind,
                                      "--from",     (directory() / "list of problems.txt").string(),
                                      "--device",   "replay:" + recording().string(),
                                      "--strategy", "exhaustive",
                                      "--cpus",     "1",
                                      "--out",      out().string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // A shell's status, with what it says in `file`.
  int shell(const std::string& program, const std::vector<std::string>& arguments) {
    options_.program = program;
    const CommandResult result = run(arguments, options_);
    options_.program = VITUNE_COMMAND;
    said_ = result.out + result.err;
    return result.status;
  }

  std::string digest(const fs::path& file) const {
    return run({"db", "digest", "--results", "--json", "--db", file.string()}).json()["digest"];
  }
  std::string digest_alone() const {
    const std::string file = (directory() / "alone.db").string();
    const CommandResult alone =
        run({"tune", "--device", "replay:" + recording().string(), "--strategy", "exhaustive", "-p",
             kProblems[0], "-p", kProblems[1], "--db", file});
    EXPECT_EQ(alone.status, 0) << alone.err;
    return digest(file);
  }

  CommandOptions options_;
  std::string said_;

 private:
  void write_program(const std::string& name, const std::string& text) const {
    fs::permissions(write_file(name, text), fs::perms::owner_all);
  }
  fs::path out_;
};

TEST_F(FleetJobTest, TheShippedExamplesAreWhatTheCommandPrints) {
  const fs::path examples = fs::path(VITUNE_SOURCE_DIR) / "examples" / "fleet";
  const std::vector<std::string> what = {"--preset", "vit",   "--shards",
                                         "8",        "--out", "/shared/vit"};
  std::vector<std::string> slurm = {"fleet", "slurm", "--gpu", "h200"};
  slurm.insert(slurm.end(), what.begin(), what.end());
  EXPECT_EQ(run(slurm).out, read_file(examples / "vit.slurm"));
  std::vector<std::string> kubernetes = {"fleet",       "kubernetes", "--gpu",
                                         "NVIDIA-H200", "--image",    "vitune"};
  kubernetes.insert(kubernetes.end(), what.begin(), what.end());
  EXPECT_EQ(run(kubernetes).out, read_file(examples / "vit.yaml"));
}

TEST_F(FleetJobTest, TheSlurmScriptTunesAndMergesUnderAnyNames) {
  const CommandResult printed =
      run(job("slurm", {"--shards", "3", "--gpu", "h200", "--gpus", "2"}));
  ASSERT_EQ(printed.status, 0) << printed.err;
  const std::string script = write_file("the job", printed.out).string();
  ASSERT_EQ(shell("/bin/bash", {"-n", script}), 0) << said_;
  ASSERT_EQ(shell("/bin/bash", {script}), 0) << said_;
  EXPECT_THAT(said_, HasSubstr("shards: job 7;a cluster, merge: job 8"));
  EXPECT_EQ(read_file(out() / "log" / "merge.status"), "0\n")
      << read_file(out() / "log" / "merge.txt");
  EXPECT_EQ(digest(out() / "vitune.db"), digest_alone());
  EXPECT_THAT(read_file(directory() / "seen"), HasSubstr("--gres=gpu:h200:2 "));
  EXPECT_THAT(read_file(directory() / "seen"), HasSubstr("--dependency=afterany:7 "));
  EXPECT_FALSE(fs::exists(out() / "log" / "harm") || fs::exists("harm"));
}

TEST_F(FleetJobTest, ALostShardIsNamedTheOthersAreMergedAndItAloneCanFollow) {
  const CommandResult printed = run(job("slurm", {"--shards", "2"}));
  ASSERT_EQ(printed.status, 0) << printed.err;
  EXPECT_THAT(printed.out, Not(HasSubstr("--gres")));  // a recording needs none
  const std::string script = write_file("the job", printed.out).string();
  options_.environment["LOSE"] = "1";
  ASSERT_EQ(shell("/bin/bash", {script}), 0) << said_;
  EXPECT_EQ(read_file(out() / "log" / "merge.status"), "1\n");
  EXPECT_THAT(read_file(out() / "log" / "merge.txt"), HasSubstr("shards not done: 1\n"));
  const auto stats = run({"db", "stats", "--json", "--db", (out() / "vitune.db").string()}).json();
  EXPECT_EQ(stats["winners"], 1);
  options_.environment.erase("LOSE");
  ASSERT_EQ(shell("/bin/bash", {script, "submit", "1"}), 0) << said_;
  EXPECT_EQ(read_file(out() / "log" / "merge.status"), "0\n");
  EXPECT_EQ(digest(out() / "vitune.db"), digest_alone());
}

TEST_F(FleetJobTest, TheKubernetesJobsAreYamlAndTheirCommandsDoTheSame) {
  const CommandResult printed =
      run(job("kubernetes", {"--shards", "2", "--image", "a: \"b\"", "--mount",
                             directory().string(), "--gpu", "GPU-1"}));
  ASSERT_EQ(printed.status, 0) << printed.err;
  const std::string yaml = write_file("the jobs", printed.out).string();
  if (shell("/usr/bin/python3", {"-c", "import yaml"}) != 0) GTEST_SKIP() << "Python has no yaml";
  ASSERT_EQ(
      shell(
          "/usr/bin/python3",
          {"-c",
           "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))",
           yaml}),
      0)
      << said_;
  const auto jobs = nlohmann::json::parse(said_);
  ASSERT_EQ(jobs.size(), 2U);
  const auto& tune = jobs[0]["spec"]["template"]["spec"];
  EXPECT_EQ(jobs[0]["spec"]["completions"], 2);
  EXPECT_EQ(jobs[0]["spec"]["completionMode"], "Indexed");
  EXPECT_EQ(tune["nodeSelector"]["nvidia.com/gpu.product"], "GPU-1");
  EXPECT_EQ(tune["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], 1);
  EXPECT_EQ(tune["containers"][0]["image"], "a: \"b\"");
  // As a kubelet expands a command: $$ is $, and $(NAME) would be a variable.
  const auto expanded = [](std::string text) {
    for (std::size_t at = 0; (at = text.find('$', at)) != std::string::npos; ++at) {
      EXPECT_NE(text.substr(at, 2), "$(");
      if (text.substr(at, 2) == "$$") text.erase(at, 1);
    }
    return text;
  };
  for (const char* index : {"0", "1"}) {
    std::vector<std::string> words;
    for (const auto& word : tune["containers"][0]["command"]) words.push_back(expanded(word));
    words.erase(words.begin());
    options_.environment["JOB_COMPLETION_INDEX"] = index;
    ASSERT_EQ(shell(VITUNE_COMMAND, words), 0) << said_;
  }
  const auto& merge = jobs[1]["spec"]["template"]["spec"]["containers"][0]["command"];
  ASSERT_EQ(merge.size(), 3U);
  ASSERT_EQ(shell("/bin/sh", {"-c", expanded(merge[2])}), 0) << said_;
  EXPECT_EQ(digest(out() / "vitune.db"), digest_alone());
}

TEST_F(FleetJobTest, WhatNoTaskCouldDoIsSaidAtOnce) {
  const struct {
    std::vector<std::string> arguments;
    std::string said;
  } cases[] = {
      {{"slurm", "--shards", "2", "--out", "/o"}, "name what to tune"},
      {{"slurm", "--preset", "vit", "--out", "/o"}, "give --shards"},
      {{"slurm", "--preset", "vit", "--shards", "2"}, "give --out"},
      {{"slurm", "--preset", "vit", "--shards", "0", "--out", "/o"}, "--shards"},
      {{"slurm", "--preset", "vti", "--shards", "2", "--out", "/o"}, "vti"},
      {{"slurm", "--model", "vit_nowhere", "--shards", "2", "--out", "/o"}, "vit_nowhere"},
      {{"slurm", "--from", "nofile.txt", "--shards", "2", "--out", "/o"}, "nofile.txt"},
      {{"slurm", "--from", "-", "--shards", "2", "--out", "/o"}, "no standard input"},
      {{"slurm", "--from-misses", "--shards", "2", "--out", "/o"}, "with --db"},
      {{"slurm", "--preset", "vit", "--shards", "2", "--out", "/o\np"}, "control characters"},
      {{"slurm", "--preset", "vit", "--shards", "2", "--out", "/o/vitune-shard-Ab3dE6/o"},
       "lies in vitune-shard-Ab3dE6"},
      {{"slurm", "--preset", "vit", "--shards", "2", "--out", "/o", "--gpu", "h200:1"},
       "--gpu 'h200:1'"},
      {{"slurm", "--preset", "vit", "--shards", "2", "--out", "/o", "--name", "A b"},
       "--name 'A b'"},
      {{"slurm", "--preset", "vit", "--shards", "2", "--out", "/o", "--effort", "some"}, "some"},
      {{"slurm", "--preset", "vit", "--shards", "2", "--out", "/o", "--json"},
       "--json does not go with"},
      {{"kubernetes", "--preset", "vit", "--shards", "2", "--out", "/shared/o"}, "give --image"},
      {{"kubernetes", "--preset", "vit", "--shards", "2", "--image", "i", "--out", "/o"},
       "--out /o is not below --mount"},
      {{"kubernetes", "--preset", "vit", "--shards", "2", "--image", "i", "--out", "/shared/o",
        "--from", "/a.txt"},
       "--from /a.txt is not below"},
      {{"kubernetes", "--preset", "vit", "--shards", "2", "--image", "i", "--out", "/shared/o",
        "--wait", "9"},
       "--wait '9'"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(::testing::PrintToString(c.arguments));
    std::vector<std::string> words = {"fleet"};
    words.insert(words.end(), c.arguments.begin(), c.arguments.end());
    const CommandResult result = run(words);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(c.said));
  }
}

// In YAML 1.1 these end a line, and so a block, or are none of its characters.
TEST_F(FleetJobTest, NoTextOfAJobEndsALineOfIt) {
  const struct {
    const char *option, *begin, *character;
  } cases[] = {
      {"--out", "/shared/", "\u2028"},   {"--out", "/shared/", "\u2029"},
      {"--out", "/shared/", "\u0085"},   {"--out", "/shared/", "\ufeff"},
      {"--out", "/shared/", "\uffff"},   {"--db", "/shared/", "\u2028"},
      {"--mount", "/", "\u2028"},        {"--program", "vitune", "\u2028"},
      {"--from", "/shared/x", "\u2028"}, {"--image", "i", "\u2028"},
      {"--claim", "c", "\u2028"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(::testing::PrintToString(std::string(c.option) + c.character));
    std::vector<std::string> words = {"fleet", "kubernetes", "--preset", "vit", "--shards", "2"};
    words.insert(words.end(), {c.option, c.begin + std::string(c.character) + "x: y"});
    const std::pair<std::string, std::string> usual[] = {{"--out", "/shared/o"}, {"--image", "i"}};
    for (const auto& [option, value] : usual) {
      if (option != c.option) words.insert(words.end(), {option, value});
    }
    const CommandResult result = run(words);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("cannot stand in a job file"));
  }
}

TEST_F(FleetJobTest, EveryTextIsOneWordOfAShell) {
  for (const std::string text : {"", "plain", "a b", "it's", "$HOME", "a=b", "`x`", "*", "~", "\\",
                                 "!", "ä", "-n", "a\nb"}) {
    ASSERT_EQ(shell("/bin/sh", {"-c", "for word in " + shell_word(text) +
                                          "; do printf '<%s>' \"$word\"; done"}),
              0);
    EXPECT_EQ(said_, "<" + text + ">");
  }
}

}  // namespace
}  // namespace vitune::testing
