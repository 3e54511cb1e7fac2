// tests/cli/report_test.cpp -- vitune report end to end: the page, its words, its refusals.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <regex>

#include "tests/cli/command_fixture.h"
#include "tests/cli/synthetic_recording.h"
#include "tests/cli/timing_documents.h"

namespace vitune::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSections[] = {"speed-up", "roofline", "latency",    "memory", "rates",
                                     "search",   "configs",  "cold-start", "works"};

bool has_program(const std::string& name) {
  return std::system(("command -v " + name + " >/dev/null 2>&1").c_str()) == 0;
}

class ReportTest : public CommandTest {
 protected:
  void SetUp() override {
    if (!has_program("gnuplot")) GTEST_SKIP() << "gnuplot is not installed";
  }
  fs::path page() const { return directory() / "report.html"; }
  static std::string results() { return VITUNE_SOURCE_DIR "/benchmarks/results/h200"; }

  // A recording that is quickly searched.
  std::string small_recording() const {
    const fs::path path = directory() / "small.recording";
    synthetic_recording({kVit}, 60).save(path);
    return path.string();
  }
  CommandResult report(std::vector<std::string> more) const {
    more.insert(more.begin(), {"report", "--seeds", "1", "-o", page().string()});
    return run(more);
  }
  // What python's parser finds wrong with the page: elements that are not closed in order.
  std::string parse_faults() const {
    const fs::path script = write_file("parse.py", R"(
import html.parser, sys
VOID = {"meta", "link", "br", "img", "hr", "input"}
class Page(html.parser.HTMLParser):
    open, faults = [], []
    def handle_starttag(self, tag, attrs):
        if tag not in VOID: self.open.append(tag)
        for name, value in attrs:
            if name.startswith("on") or name in ("src", "srcset"): self.faults.append(name)
            if name in ("href", "xlink:href") and not value.startswith(("#", "data:,")):
                self.faults.append(f"{name}={value}")
        if tag in ("script", "iframe", "object"): self.faults.append(tag)
    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID: self.open.pop()
    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag: self.faults.append(f"</{tag}> at {self.getpos()}")
page = Page()
page.feed(open(sys.argv[1], encoding="utf-8").read())
print(page.faults[:9] + page.open)
)");
    const fs::path out = directory() / "faults";
    const std::string command =
        "python3 '" + script.string() + "' '" + page().string() + "' > '" + out.string() + "' 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return read_file(out);
  }
};

TEST_F(ReportTest, MakesAPageOfTheCommittedResultsThatNeedsNothingFromElsewhere) {
  const CommandResult done =
      report({"--results", results(), "--recording", small_recording(), "--json"});
  ASSERT_EQ(done.status, 0) << done.err;
  const std::string html = read_file(page());
  for (const char* id : kSections) {
    EXPECT_THAT(html, HasSubstr(std::string("<section id=\"") + id + "\"")) << id;
  }
  EXPECT_EQ(done.json()["sections"].size(), std::size(kSections));
  for (const nlohmann::json& section : done.json()["sections"]) {
    const bool tables_only = section["id"] == "rates";
    EXPECT_EQ(section["pictures"].get<int>() == 0, tables_only) << section;
  }
  EXPECT_EQ(parse_faults(), "[]\n");
  EXPECT_THAT(html, AllOf(Not(HasSubstr("@import")), Not(HasSubstr("url(http")),
                          Not(HasSubstr("http://")), Not(HasSubstr("https://"))));
  EXPECT_THAT(html, HasSubstr("<title>ViT-B/16@224 b32\ncold: "));
  EXPECT_FALSE(std::regex_search(html, std::regex("@[0-9]+_*@"))) << "a token without its text";
}

TEST_F(ReportTest, TheSameInputsMakeTheSamePage) {
  const std::string recording = small_recording();
  ASSERT_EQ(report({"--results", results(), "--recording", recording}).status, 0);
  const std::string first = read_file(page());
  ASSERT_EQ(report({"--results", results(), "--recording", recording}).status, 0);
  EXPECT_TRUE(first == read_file(page()));
}

TEST_F(ReportTest, HostileNamesStayText) {
  const std::string hostile = "</svg><script>x</script>`touch " + (directory() / "ran").string() +
                              "`\" ; system(\"true\") @0@";
  const nlohmann::json document = peers_document(
      hostile, kVit, {{"vitune", peer_times(10)}, {"<b>peer'\"`id`", peer_times(15)}});
  const CommandResult done = report({"--peers", write_file("peers.json", document.dump()).string(),
                                     "--recording", small_recording()});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(parse_faults(), "[]\n");
  EXPECT_THAT(read_file(page()),
              AllOf(HasSubstr("&lt;/svg&gt;&lt;script&gt;x"), HasSubstr("&lt;b&gt;peer&#39;")));
  EXPECT_FALSE(fs::exists(directory() / "ran"));
}

TEST_F(ReportTest, WhatIsMissingIsSaidWithItsCommand) {
  const nlohmann::json document = peers_document("ViT", kVit, {{"vitune", peer_times(10)}});
  const CommandResult done = report({"--peers", write_file("peers.json", document.dump()).string(),
                                     "--recording", small_recording(), "--json"});
  ASSERT_EQ(done.status, 0) << done.err;
  const nlohmann::json sections = done.json()["sections"];
  const auto note = [&](const std::string& id) {
    for (const nlohmann::json& section : sections) {
      if (section["id"] == id && !section["notes"].empty()) {
        return section["notes"][0].get<std::string>();
      }
    }
    return std::string();
  };
  EXPECT_THAT(note("speed-up"), HasSubstr("make peers"));
  EXPECT_THAT(note("roofline"), HasSubstr("vitune devices --measure --json"));
  EXPECT_THAT(note("cold-start"), HasSubstr("bench_cold_start"));
  EXPECT_THAT(note("memory"), HasSubstr("--reference-peers"));
  EXPECT_THAT(note("works"), HasSubstr("--reference"));
}

TEST_F(ReportTest, WritesThePicturesAsFilesWhenAsked) {
  const fs::path figures = directory() / "figures";
  ASSERT_EQ(report({"--results", results(), "--recording", small_recording(), "--figures",
                    figures.string()})
                .status,
            0);
  for (const char* name :
       {"speed-up", "roofline-cold", "roofline-warm", "latency-d64", "lengths-latency",
        "lengths-memory", "search", "cold-start", "ladder-1", "ladder-3"}) {
    EXPECT_THAT(read_file(figures / (std::string(name) + ".svg")),
                AllOf(HasSubstr("<svg xmlns="), HasSubstr("</svg>")))
        << name;
  }
}

TEST_F(ReportTest, DrawsTheMapFromADatabaseThatIsNamed) {
  ASSERT_EQ(run({"tune", "--device", "replay:" + small_recording(), "--problem", kVit, "--budget",
                 "20", "-q"})
                .status,
            0);
  const CommandResult done = report({"--results", results(), "--recording", small_recording(),
                                     "--db", database().string(), "--map", kVit});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(read_file(page()), HasSubstr("from the trials of a database"));
}

TEST_F(ReportTest, RefusesWhatItCannotUseWithOneSentence) {
  const std::string recording = small_recording();
  const std::string broken = write_file("broken.json", "{\"schema\": 1,").string();
  const std::string tune = results() + "/tune.json";
  struct Case {
    std::vector<std::string> arguments;
    int status;
    std::string says;
  };
  const std::vector<Case> cases = {
      {{}, 2, "a report needs times"},
      {{"--results", "/nowhere"}, 2, "is not a folder"},
      {{"--peers", "/nowhere.json"}, 2, "no such file"},
      {{"--peers", broken}, 2, "is not valid JSON"},
      {{"--peers", tune}, 2, "no result of benchmarks/peers"},
      {{"--tune", tune, "--ceilings", tune}, 2, "has no field \"measured\""},
      {{"--tune", tune, "--cold-start", tune}, 2, "bench_cold_start"},
      {{"--tune", tune, "--first-calls", tune}, 2, "--first-calls wrote"},
      {{"--tune", tune, "--reference", broken}, 2, "is not valid JSON"},
      {{"--tune", tune, "--reference-peers", tune}, 2, "no result of benchmarks/peers"},
      {{"--tune", tune, "--recording", tune}, 2, "tune.json"},
      {{"--tune", tune, "--recording", recording, "--map", "no problem"}, 2, "--map 'no problem'"},
      {{"--tune", tune, "--seeds", "0"}, 2, "--seeds"},
  };
  for (const Case& each : cases) {
    const CommandResult done = report(each.arguments);
    EXPECT_EQ(done.status, each.status) << each.says << done.err;
    EXPECT_THAT(done.err, HasSubstr(each.says));
    EXPECT_FALSE(fs::exists(page())) << each.says;
  }
}

TEST_F(ReportTest, AFolderThatCannotBeWrittenIsSaid) {
  const CommandResult done = run({"report", "--results", results(), "--recording",
                                  small_recording(), "--seeds", "1", "-o", "/proc/report.html"});
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.err, HasSubstr("/proc/report.html cannot be written"));
}

class ReportWithoutGnuplot : public CommandTest {};

TEST_F(ReportWithoutGnuplot, SaysHowToGetIt) {
  CommandOptions options;
  options.environment["PATH"] = directory().string() + ":relative";
  const CommandResult done =
      run({"report", "--tune", VITUNE_SOURCE_DIR "/benchmarks/results/h200/tune.json", "-o",
           (directory() / "report.html").string()},
          options);
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.err, HasSubstr("gnuplot-nox"));
}

TEST_F(ReportWithoutGnuplot, SaysWhatAFailingOneSaid) {
  const fs::path fake = write_file("gnuplot", "#!/bin/sh\necho 'cannot draw' >&2\nexit 3\n");
  fs::permissions(fake, fs::perms::owner_all);
  CommandOptions options;
  options.environment["PATH"] = directory().string() + ":/usr/bin:/bin";
  const fs::path recording = directory() / "small.recording";
  synthetic_recording({kVit}, 60).save(recording);
  const CommandResult done =
      run({"report", "--tune", VITUNE_SOURCE_DIR "/benchmarks/results/h200/tune.json", "--seeds",
           "1", "--recording", recording.string(), "-o", (directory() / "report.html").string()},
          options);
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.err, AllOf(HasSubstr("cannot draw"), HasSubstr("exit status 3")));
}

}  // namespace
}  // namespace vitune::testing
