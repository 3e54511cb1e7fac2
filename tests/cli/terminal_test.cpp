// tests/cli/terminal_test.cpp -- What a terminal gets: lines that fit it, colours, no escapes where
// it understands none.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <pty.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/cli/command_fixture.h"

namespace vitune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TerminalTest : public CommandTest {
 protected:
  // What the command writes to a terminal of so many columns, stdout and stderr together.
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
    longest = std::max(longest, line.size() - (line.ends_with('\r') ? 1 : 0));
  }
  return longest;
}

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

TEST_F(TerminalTest, HelpFitsIt) {
  for (const std::uint16_t columns : std::initializer_list<std::uint16_t>{60, 80}) {
    for (const auto& asked : std::vector<std::vector<std::string>>{
             {"help"}, {"help", "tune"}, {"help", "show"}, {"help", "db"}}) {
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
  EXPECT_THAT(run({"show", "--color", "always"}).out, HasSubstr("\x1b[1mproblem\x1b[0m"));
  EXPECT_THAT(run({"show", "--color", "always", "--csv"}).out, Not(HasSubstr("\x1b")));
}

TEST_F(TerminalTest, ADumbOneGetsWholeLinesOfProgress) {
  const std::vector<std::string> tune = {"tune",     "--device", "replay:h200", "--preset",
                                         "recorded", "--budget", "20"};
  EXPECT_THAT(on_terminal(tune, 80), HasSubstr("\x1b[K"));
  EXPECT_THAT(on_terminal(tune, 80, "dumb"), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace vitune::testing
