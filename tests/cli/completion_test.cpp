// tests/cli/completion_test.cpp -- Completion in a real bash, scripts that shells accept, the man
// page.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/completion.h"

#include <gmock/gmock.h>

#include <set>
#include <sstream>

#include "tests/cli/command_fixture.h"

namespace vitune::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

bool has_program(const std::string& name) {
  return std::system(("command -v " + name + " >/dev/null 2>&1").c_str()) == 0;
}

class CompletionTest : public CommandTest {
 protected:
  // The words that bash offers when TAB is pressed behind the last of `words`, as readline would
  // cut them.
  std::vector<std::string> offered(const std::vector<std::string>& words) const {
    std::string script = "cd '" + directory().string() +
                         "' && source <('" VITUNE_COMMAND
                         "' completion bash) && COMP_WORDS=('" VITUNE_COMMAND "'";
    for (const std::string& word : words) script += " '" + word + "'";
    script += ") && COMP_CWORD=" + std::to_string(words.size()) +
              " && _vitune && ((${#COMPREPLY[@]})) && printf '%s\\n' \"${COMPREPLY[@]}\"";
    return lines_of(shell("bash", "--norc", script));
  }

  // Standard output and error of a script; its status is said where it is not 0 or 1.
  std::string shell(const std::string& program, const std::string& option,
                    const std::string& script) const {
    const fs::path file = write_file("script", script), out = directory() / "out";
    const int status = std::system((program + " " + option + " '" + file.string() + "' > '" +
                                    out.string() + "' 2>&1 < /dev/null")
                                       .c_str());
    const std::string text = read_file(out);
    EXPECT_LE(WEXITSTATUS(status), 1) << text;
    return text;
  }

  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
};

TEST_F(CompletionTest, BashOffersVerbsOptionsAndValues) {
  EXPECT_THAT(offered({""}), AllOf(Contains("tune"), Contains("db"), Contains("help"),
                                   Contains("models"), Not(Contains("stats"))));
  const struct {
    std::vector<std::string> words;
    std::vector<std::string> expected;
  } cases[] = {
      {{"tu"}, {"tune"}},
      {{"comp"}, {"compare", "compile", "completion"}},
      {{"db", "m"}, {"merge"}},
      {{"db", "s"}, {"stats", "salvage"}},
      {{"help", "do"}, {"doctor"}},
      {{"completion", ""}, {"bash", "zsh", "fish"}},
      {{"tune", "--strat"}, {"--strategy"}},
      {{"db", "prune", "--k"}, {"--keep"}},
      {{"tune", "--strategy", ""}, {"local", "random", "exhaustive"}},
      {{"tune", "--strategy", "=", "r"}, {"random"}},
      {{"tune", "--strategy", "="}, {"local", "random", "exhaustive"}},
      {{"tune", "--preset", "sig"}, {"siglip"}},
      {{"tune", "--objective", "w"}, {"warm"}},
      {{"compare", "--kind", ""}, {"cold", "warm", "both"}},
      {{"show", "--color", "n"}, {"never"}},
      {{"compile", "--arch", "sm_80,sm_10"}, {"sm_80,sm_100", "sm_80,sm_103"}},
      {{"tune", "--model", "swin_tiny"}, {"swin_tiny_patch4_window7_224"}},
      {{"tune", "-m", "samvit_l"}, {"samvit_large_patch16"}},
      {{"models", "samvit_l"}, {"samvit_large_patch16"}},
      {{"tune", "--seed", ""}, {}},
      {{"version", ""}, {}},
      {{"nonsense", ""}, {}},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(offered(c.words), c.expected) << ::testing::PrintToString(c.words);
  }
}

TEST_F(CompletionTest, BashOffersPathsWithSpacesAsTheyAre) {
  write_file("my problems.jsonl", "");
  fs::create_directory(directory() / "my folder");
  EXPECT_THAT(offered({"tune", "--from", "my"}),
              UnorderedElementsAre("my folder", "my problems.jsonl"));
  EXPECT_THAT(offered({"tune", "--data-dir", "my"}), ElementsAre("my folder"));
  EXPECT_THAT(offered({"db", "import", "my p"}), ElementsAre("my problems.jsonl"));
  EXPECT_THAT(offered({"compare", "my p"}), ElementsAre("my problems.jsonl"));
}

TEST_F(CompletionTest, EveryOptionOfEveryVerbIsOfferedAndUnderstood) {
  for (const CompletionVerb& verb : completion_verbs(all_verbs())) {
    if (verb.options.empty()) continue;
    std::vector<std::string> words;
    std::istringstream name(verb.name);
    for (std::string word; name >> word;) words.push_back(word);
    std::vector<std::string> expected, help = words;
    help.push_back("--help");
    const std::string text = run(help).out;
    for (const CompletionOption& option : verb.options) {
      expected.push_back("--" + option.name);
      EXPECT_THAT(text, HasSubstr("--" + option.name)) << verb.name;
      if (!option.letter.empty()) {
        EXPECT_THAT(text, HasSubstr("-" + option.letter + ", --" + option.name));
      }
    }
    words.push_back("--");
    EXPECT_EQ(offered(words), expected) << verb.name;
  }
}

TEST_F(CompletionTest, EveryWordThatIsOfferedAsAValueIsAccepted) {
  // A bad value is refused before a device or a database is looked for.
  std::set<std::string> tried;
  for (const CompletionVerb& verb : completion_verbs(all_verbs())) {
    for (const CompletionOption& option : verb.options) {
      if (option.kind != WordKind::kWords || verb.name.find(' ') != std::string::npos) continue;
      EXPECT_FALSE(option.words.empty()) << option.name;
      if (option.name.starts_with("device") || option.name == "arch") continue;
      for (const std::string& word : option.words) {
        if (!tried.insert(option.name + word).second) continue;
        const CommandResult result =
            run({verb.name, "--" + option.name, word, "--model", "vit_base_patch16_224", "--db",
                 absent("folder/x.db"), "--device", "replay:" + absent("recording")});
        EXPECT_THAT(result.err, Not(HasSubstr("--" + option.name))) << verb.name << ' ' << word;
        EXPECT_THAT(result.err, Not(HasSubstr("no preset"))) << verb.name << ' ' << word;
      }
    }
  }
  EXPECT_GT(tried.size(), 15u);
}

TEST_F(CompletionTest, EachScriptIsAcceptedByItsShell) {
  const struct {
    std::string shell, check;
    std::vector<std::string> said;
  } cases[] = {
      {"bash", "-n", {"complete -F _vitune vitune", "--preset) _vitune_words 'vit-b16 "}},
      {"zsh", "-n", {"#compdef vitune", "'*--preset=[", ":preset:(vit-b16 ", "'merge:Take over"}},
      {"fish",
       "--no-execute",
       {"-n '__vitune_verb db merge'", "-l preset -x -a '(__fish_complete_list , \"printf \\'%s"}},
  };
  for (const auto& c : cases) {
    const CommandResult result = run({"completion", c.shell});
    ASSERT_EQ(result.status, 0) << result.err;
    for (const std::string& text : c.said) EXPECT_THAT(result.out, HasSubstr(text)) << c.shell;
    EXPECT_THAT(result.out, HasSubstr("models --names")) << c.shell;
    if (has_program(c.shell)) {
      EXPECT_EQ(shell(c.shell, c.check, result.out), "") << c.shell;
    }
  }
}

TEST_F(CompletionTest, FishOffersWhatBashOffers) {
  if (!has_program("fish")) GTEST_SKIP() << "no fish here";
  const std::string script = run({"completion", "fish"}).out;
  const auto fish = [&](const std::string& line) {
    std::vector<std::string> words;
    const std::string text =
        shell("fish", "--no-config", script + "\ncomplete -C '" + line + "'\n");
    for (const std::string& each : lines_of(text)) words.push_back(each.substr(0, each.find('\t')));
    return words;
  };
  EXPECT_THAT(fish("vitune tu"), ElementsAre("tune"));
  EXPECT_THAT(fish("vitune db sa"), ElementsAre("salvage"));
  EXPECT_THAT(fish("vitune tune --preset sig"), ElementsAre("siglip"));
  EXPECT_THAT(fish("vitune tune --strat"), ElementsAre("--strategy"));
  EXPECT_THAT(fish("vitune compile --arch sm_80,sm_12"),
              ElementsAre("sm_80,sm_120", "sm_80,sm_121"));
  EXPECT_THAT(fish("vitune db prune --k"), ElementsAre("--keep"));
  EXPECT_THAT(fish("vitune tune --seed "), IsEmpty());
}

TEST_F(CompletionTest, AnUnknownShellIsAUsageError) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"completion"}, {"completion", "tcsh"}}) {
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr("bash, zsh, fish"));
  }
}

TEST_F(CompletionTest, TheManPageNamesEveryVerbOptionPresetAndVariable) {
  const CommandResult result = run({"man"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith(".\\\" vitune.1"));
  const auto roff = [](const std::string& text) {
    std::string escaped;
    for (const char c : text) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
    return escaped;
  };
  for (const CompletionVerb& verb : completion_verbs(all_verbs())) {
    EXPECT_THAT(result.out, HasSubstr(".SS \"vitune " + verb.name));
    for (const CompletionOption& option : verb.options) {
      EXPECT_THAT(result.out, HasSubstr("\\fB" + roff("--" + option.name) + "\\fR"));
      if (option.name != "preset") continue;
      for (const std::string& preset : option.words) {
        EXPECT_THAT(result.out, HasSubstr("\\fB" + roff(preset) + "\\fR"));
      }
    }
  }
  const std::string manual = read_file(fs::path(VITUNE_SOURCE_DIR) / "docs" / "environment.md");
  for (std::size_t at = 0; (at = manual.find("| `VITUNE_", at)) != std::string::npos; ++at) {
    const std::string name = manual.substr(at + 3, manual.find('`', at + 3) - at - 3);
    EXPECT_THAT(result.out, HasSubstr("\\fB" + name + "\\fR"));
  }
}

TEST_F(CompletionTest, TheManPageIsSoundRoff) {
  if (!has_program("groff")) GTEST_SKIP() << "no groff here";
  const fs::path page = write_file("vitune.1", run({"man"}).out);
  const fs::path warnings = directory() / "warnings", text = directory() / "text";
  const std::string command = "groff -man -Tutf8 -ww -P -c -rLL=100n '" + page.string() + "' > '" +
                              text.string() + "' 2> '" + warnings.string() + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(read_file(warnings), "");
  // Examples keep their breaks and backslashes, dashes and quotes come out as typed.
  const std::string shown = read_file(text);
  EXPECT_THAT(shown, HasSubstr("vitune tune --model vit_base_patch16_224 --batch 1,32"));
  EXPECT_THAT(shown, HasSubstr("vitune show --space \"bf16 b=32 h=12 n=197 d=64\"\n"));
  EXPECT_THAT(shown, HasSubstr("default: 1,32"));
}

}  // namespace
}  // namespace vitune::testing
