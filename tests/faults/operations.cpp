// tests/faults/operations.cpp -- What each command finds, and what it may leave.
// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/operations.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <regex>
#include <stdexcept>

#include "db/rekey.h"
#include "generator/compile_options.h"
#include "generator/operator.h"
#include "tests/cli/command_fixture.h"
#include "tests/cli/synthetic_recording.h"
#include "tests/db/everything.h"
#include "tests/db/older_file.h"
#include "tests/db/test_support.h"

namespace vitune::faults {
namespace {

namespace fs = std::filesystem;

using test::read_bytes;

constexpr const char* kDatabase = "db/v.db";
constexpr const char* kExport = "out/export.json";
constexpr const char* kPack = "out/site.pack";
constexpr const char* kProblem = "attention bf16 b=1 h=12 nq=197 nk=197 d=64 layout=packed";
constexpr std::size_t kConfigs = 60;

bool has_journal(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file.string() + "-journal", error);
  return !error && size > 0;
}

// True if there is no database yet: no file, or one of which nothing was written.
bool is_missing(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  return (error || size == 0) && !has_journal(file);
}

Rows rows_of(Store& store) { return test::without_times(test::everything(store)); }

// --- what the commands find

std::string filled_database(const fs::path& scratch) {
  const fs::path file = scratch / "filled.db";
  test::fill(*Store::open(file, Access::kReadWrite));
  return read_bytes(file);
}

// Another user's: trials, winners, images and blocks that the filled one lacks, and better ones of
// what it has.
void fill_other(Store& store) {
  std::vector<Trial> trials;
  for (int n = 10; n < 60; ++n) trials.push_back(test::sample_trial(n));
  for (const int tokens : {197, 1025}) {
    store.put_trials(test::sample_device(), test::sample_problem(tokens), trials);
    Winner winner = test::sample_winner(tokens);
    winner.measurement = test::sample_measurement(5);
    const Binary binary = test::sample_binary(tokens, 15000);
    store.promote(test::sample_device(), test::sample_problem(tokens), winner, &binary);
  }
  store.block(test::sample_block(2));
  store.add_requests({{"attention", test::sample_problem(577).text, 3, 12}});
}

// The rows of one page of trials are wrong, and the header claims free pages that are none: readers
// get what is whole, writers are refused.
std::string damaged(std::string bytes) {
  constexpr std::size_t kPage = 4096, kFreePages = 39;
  constexpr std::string_view kOrigin = "measured";
  bytes.at(kFreePages) = 5;
  const std::size_t first = bytes.find(std::string("ok") + std::string(kOrigin));
  if (first == std::string::npos) throw std::runtime_error("no trial to damage");
  for (std::size_t at = first; at / kPage == first / kPage; at = bytes.find(kOrigin, at + 1))
    bytes[at + 3] ^= 1;
  return bytes;
}

// With a shipped winner, which could be served and so goes into a pack; and an older pack.
std::pair<std::string, std::string> packed_database(const fs::path& scratch) {
  const auto shipped =
      Store::open(fs::path(VITUNE_SOURCE_DIR) / "data" / "winners.db", Access::kReadOnly);
  const fs::path file = scratch / "servable.db", pack = scratch / "older.pack";
  {
    const auto store = Store::open(file, Access::kReadWrite);
    test::fill(*store);
    for (const WinnerEntry& entry : shipped->winners()) {
      const auto binary = shipped->find_binary(entry.winner.kernel_key, entry.winner.image_digest);
      if (!binary || entry.problem.operator_name != "norm") continue;
      store->promote(entry.device, entry.problem, entry.winner, &*binary);
      break;
    }
    store->write_pack(pack, {"older", {}, {}});
  }
  return {read_bytes(file), read_bytes(pack)};
}

// With a shipped winner under the key that it had while keys counted layout.
std::string database_of_before(const fs::path& scratch) {
  const auto shipped =
      Store::open(fs::path(VITUNE_SOURCE_DIR) / "data" / "winners.db", Access::kReadOnly);
  const fs::path file = scratch / "before.db";
  for (const WinnerEntry& entry : shipped->winners()) {
    const Winner& winner = entry.winner;
    const auto binary = shipped->find_binary(winner.kernel_key, winner.image_digest);
    if (!binary || entry.problem.operator_name != "norm") continue;
    const ProblemPtr problem = parse_problem(entry.problem.text);
    const auto request = problem->op().request(*problem, winner.config, entry.device.arch());
    const auto store = Store::open(file, Access::kReadWrite);
    store->promote(entry.device, entry.problem, winner, &*binary);
    std::vector<Trial> trials;
    for (int i = 0; i < 40; ++i) {
      trials.push_back(test::sample_trial(i));
      trials.back().measurement = test::sample_measurement(10 + i);
    }
    store->put_trials(test::sample_device(), test::sample_problem(), trials);
    rekey(file, {{winner.kernel_key, text_kernel_key(request, winner.compiler_version)}});
    break;
  }
  return read_bytes(file);
}

std::vector<Operation> made_operations() {
  const test::TempDir scratch;
  const std::string filled = filled_database(scratch.path());
  std::string other_json;
  {
    const auto other = Store::open(scratch / "other.db", Access::kReadWrite);
    fill_other(*other);
    other_json = other->export_json();
  }
  const std::string other = read_bytes(scratch / "other.db");
  Store::open(scratch / "empty.db", Access::kReadWrite);
  const std::string empty = read_bytes(scratch / "empty.db");
  test::make_older(scratch / "older.db", 2);
  const std::string older = read_bytes(scratch / "older.db");
  testing::synthetic_recording({kProblem}, kConfigs).save(scratch / "made.recording");
  const std::string recording = read_bytes(scratch / "made.recording");
  using Kind = Operation::Kind;
  std::vector<Operation> all;
  const auto add = [&](Operation::Spec spec) {
    spec.arguments.insert(spec.arguments.end(), {"--db", "@db/v.db"});
    all.emplace_back(std::move(spec));
  };
  add({"create",
       {"db", "import", "@in/other.json"},
       Kind::kOneStep,
       {{"in/other.json", other_json}}});
  add({"import",
       {"db", "import", "@in/other.json"},
       Kind::kOneStep,
       {{kDatabase, filled}, {"in/other.json", other_json}}});
  add({"merge",
       {"db", "merge", "@in/other.db"},
       Kind::kOneStep,
       {{kDatabase, filled}, {"in/other.db", other}}});
  add({"prune", {"db", "prune", "--keep", "5", "--yes"}, Kind::kOneStep, {{kDatabase, filled}}});
  add({"rekey",
       {"db", "rekey"},
       Kind::kOneStep,
       {{kDatabase, database_of_before(scratch.path())}}});
  add({"migrate",
       {"db", "merge", "@in/empty.db"},
       Kind::kOneStep,
       {{kDatabase, older}, {"in/empty.db", empty}}});
  for (const bool plain : {false, true}) {
    add({plain ? "plain salvage" : "salvage",
         {"db", "salvage"},
         Kind::kSalvage,
         {{kDatabase, damaged(filled)}},
         plain});
    add({plain ? "plain export" : "export",
         {"db", "export", "@out/export.json"},
         Kind::kOneStep,
         {{kDatabase, filled}, {kExport, "what was exported before\n"}},
         plain});
  }
  const auto [servable, older_pack] = packed_database(scratch.path());
  add({"pack",
       {"db", "pack", "@out/site.pack", "--label", "new"},
       Kind::kOneStep,
       {{kDatabase, servable}, {kPack, older_pack}}});
  add({"tune",
       {"tune", "--device", "replay:@in/made.recording", "--problem", kProblem, "--strategy",
        "exhaustive"},
       Kind::kManySteps,
       {{kDatabase, filled}, {"in/made.recording", recording}}});
  return all;
}

// --- what they leave

constexpr const char* kStamp = "[0-9]{8}T[0-9]{6}Z(-[0-9]+)?";

bool is_documented(int status) {
  constexpr int kKilled = 128 + SIGKILL;
  for (const int known : {0, 1, 2, 3, 4, 5, kKilled}) {
    if (status == known) return true;
  }
  return false;
}

std::string with_folder(std::string argument, const fs::path& folder) {
  const std::size_t at = argument.find('@');
  if (at != std::string::npos) argument.replace(at, 1, folder.string() + "/");
  return argument;
}

// True if some file of the folder has these bytes.
bool is_kept(const fs::path& folder, const std::string& bytes) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.file_size() == bytes.size() && read_bytes(entry.path()) == bytes) return true;
  }
  return false;
}

std::string difference(const Rows& rows, const Rows& expected) {
  std::vector<std::string> lacking, surplus;
  std::set_difference(expected.begin(), expected.end(), rows.begin(), rows.end(),
                      std::back_inserter(lacking));
  std::set_difference(rows.begin(), rows.end(), expected.begin(), expected.end(),
                      std::back_inserter(surplus));
  std::string text = std::to_string(lacking.size()) + " rows lack, " +
                     std::to_string(surplus.size()) + " are too many";
  if (!lacking.empty()) text += "; lacks " + lacking.front().substr(0, 300);
  if (!surplus.empty()) text += "; has " + surplus.front().substr(0, 300);
  return text;
}

}  // namespace

Operation::Operation(Spec spec) : spec_(std::move(spec)) {
  const test::TempDir scratch;
  const fs::path folder = scratch / "run";
  prepare(folder);
  if (spec_.files.contains(kDatabase))
    before_ = rows_of(*Store::open(folder / kDatabase, Access::kReadOnly));
  const Ended ended = run(folder);
  if (ended.status != 0) throw std::runtime_error(name() + " does not work: " + ended.err);
  after_ = rows_of(*Store::open(folder / kDatabase, Access::kReadOnly));
  for (const char* name : {kExport, kPack}) {
    if (!spec_.files.contains(name)) continue;
    output_name_ = name;
    output_ = read_bytes(folder / name);
  }
}

void Operation::prepare(const fs::path& folder) const {
  fs::remove_all(folder);
  for (const char* name : {"db", "in", "out", "home"}) fs::create_directories(folder / name);
  fs::permissions(folder, fs::perms::owner_all);
  for (const auto& [name, bytes] : spec_.files) {
    fs::create_directories((folder / name).parent_path());
    test::write_bytes(folder / name, bytes);
    fs::permissions(folder / name, fs::perms::owner_read | fs::perms::owner_write);
  }
}

Ended Operation::run(const fs::path& folder, const Environment& environment) const {
  std::vector<std::string> arguments;
  for (const std::string& argument : spec_.arguments)
    arguments.push_back(with_folder(argument, folder));
  Environment variables = {{"HOME", (folder / "home").string()},
                           {"PATH", "/usr/bin:/bin"},
                           {"ASAN_OPTIONS", "detect_leaks=0:verify_asan_link_order=0"}};
  for (const auto& [name, value] : environment) variables[name] = value;
  const auto start = std::chrono::steady_clock::now();
  testing::RunningCommand command(arguments, variables, {});
  testing::CommandResult result = command.finish(testing::kCommandPatience);
  return {result.status, std::chrono::steady_clock::now() - start >= testing::kCommandPatience,
          std::move(result.err)};
}

bool Operation::is_possible(const Rows& rows) const {
  if (rows == before_ || rows == after_) return true;
  return spec_.kind == Kind::kManySteps && test::is_part_of(before_, rows) &&
         test::is_part_of(rows, after_);
}

void Operation::check_database(const fs::path& file, bool finished,
                               std::vector<std::string>& wrong) const {
  try {
    // As every command does: a writer first, where one died.
    if (has_journal(file)) Store::open(file, Access::kReadWrite);
    if (!finished && before_.empty() && is_missing(file)) return;
    const auto store = Store::open(file, Access::kReadOnly);
    const Rows rows = rows_of(*store);
    if (finished && rows != after_) {
      wrong.push_back("after its end: " + difference(rows, after_));
    } else if (!is_possible(rows)) {
      wrong.push_back("neither before nor after; from before: " + difference(rows, before_) +
                      "; from after: " + difference(rows, after_));
    }
    // The file of a salvage is damaged until it has put the new file in its place.
    const bool may_be_damaged = spec_.kind == Kind::kSalvage && !finished && rows == before_;
    const CheckReport report = store->check();
    if (!may_be_damaged && (!report.integrity_ok || report.bad_rows != 0))
      wrong.push_back("damaged: " + report.problems.front());
  } catch (const std::exception& error) {
    wrong.emplace_back(error.what());
  }
}

std::vector<std::string> Operation::check_files(const fs::path& folder, bool finished) const {
  std::vector<std::string> wrong;
  check_database(folder / kDatabase, finished, wrong);
  check_output(folder, finished, wrong);
  if (spec_.kind == Kind::kSalvage && !is_kept(folder / "db", spec_.files.at(kDatabase)))
    wrong.emplace_back("the file that was salvaged is gone");
  return wrong;
}

void Operation::check_output(const fs::path& folder, bool finished,
                             std::vector<std::string>& wrong) const {
  if (output_.empty()) return;
  const std::string found = read_bytes(folder / output_name_);
  if (found == output_ || (!finished && found == spec_.files.at(output_name_))) return;
  wrong.push_back("the output file is neither the old one nor the new one: " +
                  std::to_string(found.size()) + " bytes");
}

void Operation::check_leavings(const fs::path& folder, Leavings leavings,
                               std::vector<std::string>& wrong) const {
  static const std::regex documented(
      "db/v\\.db(-journal|\\.lock|\\.v2-" + std::string(kStamp) + "|\\.corrupt-" + kStamp +
      "(-journal)?)?|in/.*|out/export\\.json|out/site\\.pack|home/.*");
  static const std::regex unfinished("db/v\\.db\\.salvage-" + std::string(kStamp) +
                                     "(-journal)?|db/v\\.db\\.v2-" + kStamp +
                                     "(-journal)?|out/site\\.pack\\.new-" + kStamp +
                                     "(-[0-9]+)?(-journal)?"
                                     "|out/export\\.json\\.[0-9]+-[0-9]+\\.part");
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_directory()) continue;
    const std::string name = fs::relative(entry.path(), folder).string();
    if (std::regex_match(name, documented)) continue;
    if (leavings == Leavings::kUnfinished && std::regex_match(name, unfinished)) continue;
    wrong.push_back("left behind: " + name);
  }
}

std::vector<std::string> Operation::check(const fs::path& folder, const Ended& ended,
                                          Leavings leavings) const {
  std::vector<std::string> wrong;
  if (ended.hung) wrong.emplace_back("did not end");
  if (!is_documented(ended.status)) wrong.push_back("ended with " + std::to_string(ended.status));
  if (ended.status != 0 && ended.status < 128 && ended.err.empty())
    wrong.emplace_back("failed without a word");
  check_leavings(folder, leavings, wrong);
  for (std::string& line : check_files(folder, ended.status == 0)) wrong.push_back(std::move(line));
  return wrong;
}

std::vector<std::string> Operation::check_again(const fs::path& folder) const {
  const Ended ended = run(folder);
  std::vector<std::string> wrong = check(folder, ended);
  if (ended.status != 0)
    wrong.push_back("again: ended with " + std::to_string(ended.status) + ": " + ended.err);
  for (const auto& entry : fs::directory_iterator(folder / "db")) {
    if (entry.path().string().find(".salvage-") != std::string::npos)
      wrong.push_back("again: left behind " + entry.path().string());
  }
  return wrong;
}

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = made_operations();
  return all;
}

}  // namespace vitune::faults
