// tests/cli/terminal_test.cpp -- What a terminal gets: lines that fit it, colours, no escapes where
// it understands none.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <pty.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "db/store.h"
#include "generator/operator.h"
#include "tests/cli/command_fixture.h"
#include "tests/cli/timing_documents.h"

namespace vitune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TerminalTest : public CommandTest {
 protected:
  // The command's output on a terminal of so many columns, stdout and stderr together.
  std::string on_terminal(std::vector<std::string> arguments, unsigned short columns,
                          const std::string& term = "xterm") const {
    winsize size{};
    size.ws_col = columns;
    size.ws_row = 50;
    int master = -1;
    const pid_t child = forkpty(&master, nullptr, nullptr, &size);
    if (child < 0) throw std::runtime_error("no terminal for the command");
    if (child == 0) {
      arguments.insert(arguments.begin(), VITUNE_COMMAND);
      std::vector<char*> argv;
      for (std::string& text : arguments) argv.push_back(text.data());
      argv.push_back(nullptr);
      setenv("HOME", home().c_str(), 1);
      setenv("TERM", term.c_str(), 1);
      for (const char* name : {"XDG_CACHE_HOME", "NO_COLOR", "VITUNE_DB", "VITUNE_CACHE_DIR"})
        unsetenv(name);
      execv(argv[0], argv.data());
      _exit(127);
    }
    std::string written;
    std::array<char, 4096> block;
    for (ssize_t count; (count = read(master, block.data(), block.size())) > 0;)
      written.append(block.data(), static_cast<std::size_t>(count));
    close(master);
    waitpid(child, nullptr, 0);
    return written;
  }
};

std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    // The last state of a progress line stays.
    if (const auto back = line.rfind('\r'); back != std::string::npos) line.erase(0, back + 1);
    for (std::size_t at; (at = line.find("\x1b[K")) != std::string::npos;) line.erase(at, 3);
    longest = std::max(longest, line.size());
  }
  return longest;
}

// With one space for all that is between words.
std::string words_of(const std::string& text) {
  std::istringstream words(text);
  std::string joined;
  for (std::string word; words >> word;) joined += word + " ";
  return joined;
}

constexpr char kLinear[] = "linear bf16 m=1576 n=3072 k=768 norm=layer bias act=gelu params=fp32";
constexpr char kWindow[] =
    "window_attention bf16 b=32 image=28x28 window=7x7 shift=3x3 h=6 d=32 bias=bf16:16x6x49x49";
constexpr char kAttention[] = "bf16 b=32 h=12 n=197 d=64 layout=packed bias=fp32:1x12x197x197";
constexpr char kNorm[] = "norm bf16 m=8224 d=1280 weight bias residual sum";
constexpr char kGroupNorm[] = "group_norm bf16 n=2 c=1280 l=256 g=32 nhwc weight bias silu";

// Each verb's tables, with the longest texts that they may hold.
class TerminalTableTest : public TerminalTest {
 protected:
  TerminalTableTest() : copy_((directory() / "winners.db").string()) {
    fs::copy_file(fs::path(VITUNE_SOURCE_DIR) / "data" / "winners.db", copy_);
    fs::permissions(copy_, fs::perms::owner_read | fs::perms::owner_write);
  }

  void expect_to_fit(std::vector<std::string> arguments, const std::string& said) const {
    if (std::ranges::find(arguments, "--color") == arguments.end()) {
      arguments.insert(arguments.end(), {"--color", "never"});
    }
    for (const std::uint16_t columns : std::initializer_list<std::uint16_t>{80, 100}) {
      const std::string text = on_terminal(arguments, columns);
      EXPECT_THAT(text, HasSubstr(said)) << ::testing::PrintToString(arguments);
      EXPECT_LE(longest_line(text), columns) << text;
    }
  }
  const std::string& db() const { return copy_; }

 private:
  std::string copy_;
};

TEST_F(TerminalTest, WinnersFitItAndWhatHasNoRoomIsNamed) {
  for (const std::uint16_t columns : std::initializer_list<std::uint16_t>{80, 100, 120}) {
    const std::string text =
        on_terminal({"show", "--preset", "recorded", "--color", "never"}, columns);
    EXPECT_THAT(text, HasSubstr("cold us")) << text;
    EXPECT_LE(longest_line(text), columns) << text;
    EXPECT_THAT(text, HasSubstr("no room for"));
    EXPECT_THAT(text, HasSubstr("-v shows all"));
  }
  EXPECT_GT(longest_line(on_terminal({"show", "--preset", "recorded", "-v"}, 80)), 200u);
}

TEST_F(TerminalTest, AfterATableThatIsLongerThanItTheWayToPageIsSaid) {
  EXPECT_THAT(words_of(on_terminal({"show", "--shipped"}, 200)),
              HasSubstr("lines: '| less -S' behind the command"));
  for (const std::vector<std::string>& words : std::initializer_list<std::vector<std::string>>{
           {"show", "--preset", "recorded"}, {"show", "--shipped", "-q"}})
    EXPECT_THAT(on_terminal(words, 200), Not(HasSubstr("less -S")));
}

TEST_F(TerminalTableTest, WhatIsStoredFits) {
  expect_to_fit({"show", "--shipped"}, "cold us");
  expect_to_fit({"show"}, "shipped: ");
  expect_to_fit({"show", "--db", db(), "--trials"}, "cold us");
  expect_to_fit({"show", "--db", db(), "--blocks"}, "kernel");
  expect_to_fit({"db", "contents", "--db", db()}, "window_attention");
  for (const char* verb : {"stats", "check", "digest"})
    expect_to_fit({"db", verb, "--db", db()}, "");
  const fs::path missed = directory() / "missed.db";
  Store::open(missed, Access::kReadWrite)
      ->add_requests(
          {{"attention", parse_problem(kAttention)->text(), 1000, 9000},
           {"linear", "linear bf16 m=1577 n=3072 k=768 norm=layer bias act=gelu", 9, 0}});
  expect_to_fit({"show", "--misses", "--db", missed.string()}, "us per call");
}

TEST_F(TerminalTableTest, EveryProblemIsShownWholeThere) {
  const auto document = run({"show", "--db", db(), "--json"}).json();
  ASSERT_GT(document["winners"].size(), 100u);
  const std::string text = words_of(on_terminal({"show", "--db", db(), "--color", "never"}, 80));
  for (const auto& winner : document["winners"]) {
    EXPECT_THAT(text, HasSubstr(winner["name"].get<std::string>() + " "));
  }
}

TEST_F(TerminalTableTest, AProblemStandsOnceAboveItsTrials) {
  const std::string text =
      on_terminal({"show", "--db", db(), "--trials", kLinear, "--color", "never"}, 80);
  EXPECT_EQ(text.find(kLinear), text.rfind(kLinear)) << text;
  const auto trials = run({"show", "--db", db(), "--trials", kLinear, "--json"}).json()["trials"];
  ASSERT_GT(trials.size(), 10u);
  std::size_t rows = 0;
  for (std::size_t at = 0; (at = text.find("\n  ok ", at)) != std::string::npos; ++at) ++rows;
  EXPECT_EQ(rows, static_cast<std::size_t>(std::ranges::count_if(
                      trials, [](const auto& trial) { return trial["status"] == "ok"; })));
}

TEST_F(TerminalTableTest, WhatIsSaidOfAProblemFits) {
  for (const char* problem : {kLinear, kWindow, kAttention, kNorm, kGroupNorm}) {
    expect_to_fit({"show", problem}, "");
    expect_to_fit({"show", "--space", problem}, "tunable");
    expect_to_fit({"show", "--explain", "default", problem}, "in the space");
    expect_to_fit({"explain", problem}, "served");
  }
  expect_to_fit({"compile", "--arch", "sm_90", kLinear, kWindow}, has_compiler() ? "status" : "");
}

TEST_F(TerminalTableTest, RunsFit) {
  const std::vector<std::string> recorded = {"--device", "replay:h200", "--preset", "vit-b16"};
  std::vector<std::string> tune = {"tune", "--budget", "20"}, bench = {"bench"};
  tune.insert(tune.end(), recorded.begin(), recorded.end());
  bench.insert(bench.end(), recorded.begin(), recorded.end());
  expect_to_fit(tune, "cold us");
  expect_to_fit(bench, "vs peer");
  const auto file = [&](const char* name, double us) {
    return write_file(name, tune_document({{kLinear, kLinear, us, us, 0.01},
                                           {kWindow, kWindow, us, us, 0.01}})
                                .dump())
        .string();
  };
  expect_to_fit({"compare", file("a.json", 10), file("b.json", 12)}, "slower");
}

TEST_F(TerminalTableTest, ModelsAndTheMachineFit) {
  expect_to_fit({"models"}, "head size");
  expect_to_fit({"models", "--problems", "swin_tiny_patch4_window7_224"}, "share");
  expect_to_fit({"doctor"}, "disk space");
  expect_to_fit({"devices"}, "");
}

TEST_F(TerminalTableTest, MessagesAreBrokenBetweenWords) {
  expect_to_fit({"db"}, "salvage");
  expect_to_fit({"tune", "--device", "replay:h200", kLinear}, "lacks linear");
  const std::string text = on_terminal({"tune", "--device", "replay:h200", kLinear}, 80);
  EXPECT_THAT(words_of(text), HasSubstr(std::string("lacks ") + kLinear));
  EXPECT_THAT(run({"db"}).err, HasSubstr("prune, salvage, unblock, rekey, pack, contents\n"))
      << "one line in a pipe";
}

TEST_F(TerminalTest, HelpFitsIt) {
  for (const std::uint16_t columns : std::initializer_list<std::uint16_t>{60, 80}) {
    for (const auto& asked : std::vector<std::vector<std::string>>{{"help"},
                                                                   {"help", "tune"},
                                                                   {"help", "show"},
                                                                   {"help", "db"},
                                                                   {"help", "compare"},
                                                                   {"help", "bench"}}) {
      const std::string text = on_terminal(asked, columns);
      EXPECT_THAT(text, HasSubstr("Usage: "));
      EXPECT_LE(longest_line(text), columns) << text;
    }
  }
}

TEST_F(TerminalTest, ColorsAreForTerminalsThatKnowThem) {
  const std::vector<std::string> doctor = {"doctor"};
  EXPECT_THAT(on_terminal(doctor, 80), HasSubstr("\x1b[32mok"));
  EXPECT_THAT(on_terminal(doctor, 80, "dumb"), Not(HasSubstr("\x1b")));
  EXPECT_THAT(run(doctor).out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(run({"doctor", "--color", "always"}).out, HasSubstr("\x1b[32mok"));
  EXPECT_THAT(run({"show", "--shipped", "--color", "always"}).out,
              HasSubstr("\x1b[1mproblem\x1b[0m"));
  EXPECT_THAT(run({"show", "--shipped", "--color", "always", "--csv"}).out, Not(HasSubstr("\x1b")));
}

TEST_F(TerminalTest, ADumbOneGetsWholeLinesOfProgress) {
  const std::vector<std::string> tune = {"tune",     "--device", "replay:h200", "--preset",
                                         "recorded", "--budget", "20"};
  EXPECT_THAT(on_terminal(tune, 80), HasSubstr("\x1b[K"));
  EXPECT_THAT(on_terminal(tune, 80, "dumb"), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace vitune::testing
