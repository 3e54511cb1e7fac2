// tests/faults/failed_allocations.cpp -- Runs programs with libvitune_fail_allocation.so.
// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/failed_allocations.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <random>
#include <stdexcept>

#include "tests/cli/command_fixture.h"
#include "tests/db/test_support.h"
#include "tests/patience.h"

namespace vitune::faults {
namespace {

namespace fs = std::filesystem;

Environment preloaded() { return {{"LD_PRELOAD", VITUNE_FAIL_ALLOCATION}}; }

Subject subject_of(const Operation& operation, const fs::path& folder) {
  return {operation.name(),
          [&operation, folder](const Environment& environment) {
            operation.prepare(folder);
            return operation.run(folder, environment);
          },
          [&operation, folder](const Ended& ended) {
            auto wrong = operation.check(folder, ended, Leavings::kNone);
            // Nobody but the system kills here, which would be for the memory it took.
            if (ended.status >= 128) wrong.push_back("ended by a signal");
            return wrong;
          }};
}

// Verbs that write nothing, on one database.
const std::vector<Operation>& reading_operations() {
  static const std::vector<Operation> all = [] {
    const test::TempDir scratch;
    test::fill(*Store::open(scratch / "v.db", Access::kReadWrite));
    const std::map<std::string, std::string> files = {
        {"db/v.db", test::read_bytes(scratch / "v.db")}};
    std::vector<Operation> made;
    const auto add = [&](const char* name, std::vector<std::string> arguments) {
      arguments.insert(arguments.end(), {"--db", "@db/v.db"});
      made.emplace_back(
          Operation::Spec{name, std::move(arguments), Operation::Kind::kOneStep, files});
    };
    add("show", {"show"});
    add("show --json", {"show", "--json"});
    add("check", {"db", "check"});
    add("stats", {"db", "stats", "--json"});
    return made;
  }();
  return all;
}

Subject library(const fs::path& scratch) {
  const std::string database = (scratch / "library.db").string();
  make_library_database(database);
  return {"libvitune",
          [database, home = (scratch / "home").string()](Environment environment) {
            environment["PATH"] = "/usr/bin:/bin";
            // Without it the C library is asked, whose getpwuid_r() itself aborts without memory.
            environment["HOME"] = home;
            environment["VITUNE_ALLOCATIONS_FROM_MARK"] = "1";
            testing::CommandOptions options;
            options.program = VITUNE_USE_LIBRARY;
            testing::RunningCommand command({VITUNE_MOCK_LIBCUDA, database}, environment, options);
            const auto result = command.finish(test::kPatience);
            return Ended{result.status, false, result.err};
          },
          [](const Ended& ended) {
            std::vector<std::string> wrong;
            if (ended.status != 0) wrong.push_back("ended with " + std::to_string(ended.status));
            return wrong;
          }};
}

// `most` of 1 to `total`, in equal steps from a place that is drawn.
std::vector<std::size_t> drawn(std::size_t total, const Work& work) {
  const std::size_t most = std::min(total, work.count);
  std::mt19937 random(work.seed);
  const double step =
      static_cast<double>(total) / static_cast<double>(std::max<std::size_t>(most, 1));
  const double from = std::uniform_real_distribution<>(0, step)(random);
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < most; ++i) {
    if (i % work.shares != work.share) continue;
    const auto number = static_cast<std::size_t>(from + step * static_cast<double>(i));
    chosen.push_back(1 + (most == total ? i : std::min(number, total - 1)));
  }
  return chosen;
}

Tally fail_each(const Subject& subject, const std::vector<std::size_t>& numbers, bool for_ever) {
  Tally tally;
  for (const std::size_t number : numbers) {
    Environment environment = preloaded();
    environment["VITUNE_ALLOCATION_FAILS"] = std::to_string(number);
    if (for_ever) environment["VITUNE_ALLOCATIONS_FAIL_FOR_EVER"] = "1";
    const Ended ended = subject.run(environment);
    ++tally.runs;
    tally.effective += ended.status != 0;
    for (const std::string& wrong : subject.check(ended)) {
      tally.findings.push_back(subject.name + ", allocation " + std::to_string(number) +
                               (for_ever ? " and all after it: " : ": ") + wrong + "; " +
                               ended.err.substr(0, 300));
    }
  }
  return tally;
}

}  // namespace

std::vector<Subject> allocating_subjects(const fs::path& scratch) {
  std::vector<Subject> subjects;
  for (const Operation& operation : operations()) {
    subjects.push_back(subject_of(operation, scratch / "run"));
  }
  for (const Operation& operation : reading_operations()) {
    subjects.push_back(subject_of(operation, scratch / "run"));
  }
  subjects.push_back(library(scratch));
  return subjects;
}

std::size_t allocations_of(const Subject& subject, const fs::path& scratch) {
  const fs::path file = scratch / "count";
  Environment environment = preloaded();
  environment["VITUNE_ALLOCATIONS_COUNTED"] = file.string();
  const Ended ended = subject.run(environment);
  std::size_t count = 0;
  std::ifstream(file) >> count;
  if (ended.status != 0 || count == 0) {
    throw std::runtime_error(subject.name + " could not be counted: " + ended.err);
  }
  fs::remove(file);
  return count;
}

Tally fail_allocations(const Subject& subject, const fs::path& scratch, const Work& work,
                       bool for_ever) {
  return fail_each(subject, drawn(allocations_of(subject, scratch), work), for_ever);
}

Tally fail_last_allocations(const Subject& subject, const fs::path& scratch, std::size_t count) {
  const std::size_t total = allocations_of(subject, scratch);
  std::vector<std::size_t> last(std::min(count, total));
  std::iota(last.begin(), last.end(), total - last.size() + 1);
  return fail_each(subject, last, false);
}

}  // namespace vitune::faults
