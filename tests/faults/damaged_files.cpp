// tests/faults/damaged_files.cpp -- Databases with random damage: no wrong row is served, no
// blocked kernel runs, nothing but a database error or a lack of memory is told.
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <algorithm>
#include <array>
#include <random>

#include "tests/db/blocked_winner.h"
#include "tests/db/everything.h"
#include "tests/db/test_support.h"
#include "tests/faults/engines.h"

namespace vitune::faults {
namespace {

using test::fs::path;
using Random = std::mt19937;
using Rows = std::vector<std::string>;

constexpr std::size_t kPage = 4096, kSector = 512, kHeader = 100;

// A mutant: the database and, if it has one, a journal that its next writer is to play back.
struct Mutant {
  std::string bytes, journal;
};

// The sound file that mutants are made from.
struct Origin {
  std::string bytes;
  std::string older;               // the same some transactions ago
  std::string half_done, journal;  // in the middle of one
};

std::size_t page_of(const std::string& bytes, Random& random) {
  return random() % (bytes.size() / kPage) * kPage;
}

void noise(std::string& bytes, std::size_t at, std::size_t count, Random& random) {
  for (std::size_t i = at; i < std::min(at + count, bytes.size()); ++i)
    bytes[i] = static_cast<char>(random());
}

void flip_bits(const Origin&, Mutant& m, Random& random) {
  for (std::size_t flips = 1 + random() % 8; flips > 0; --flips) {
    const std::size_t at = random() % m.bytes.size();
    m.bytes[at] = static_cast<char>(m.bytes[at] ^ (1 << random() % 8));
  }
}
void overwrite(const Origin&, Mutant& m, Random& random) {
  const std::size_t at = random() % m.bytes.size();
  const std::size_t count = 1 + random() % 16;
  noise(m.bytes, at, count, random);
}
void blot(const Origin&, Mutant& m, Random& random) {
  const std::size_t at = random() % m.bytes.size();
  const std::size_t count = std::min<std::size_t>(1 + random() % 6000, m.bytes.size() - at);
  m.bytes.replace(at, count, count, random() % 2 == 0 ? '\0' : '\xff');
}
void cut(const Origin&, Mutant& m, Random& random) { m.bytes.resize(random() % m.bytes.size()); }
void lengthen(const Origin&, Mutant& m, Random& random) {
  const std::size_t size = m.bytes.size();
  m.bytes.resize(size + 1 + random() % (3 * kPage));
  noise(m.bytes, size, m.bytes.size() - size, random);
}
// Some sectors of a page are as they were before.
void tear(const Origin& origin, Mutant& m, Random& random) {
  const std::size_t page = page_of(origin.older, random);
  for (std::size_t at = page; at < page + kPage; at += kSector) {
    if (random() % 2 == 0) m.bytes.replace(at, kSector, origin.older, at, kSector);
  }
}
void swap_pages(const Origin& origin, Mutant& m, Random& random) {
  const std::size_t from = page_of(m.bytes, random);
  const std::size_t to = page_of(m.bytes, random);
  m.bytes.replace(to, kPage, origin.bytes, from, kPage);
  if (random() % 2 == 0) m.bytes.replace(from, kPage, origin.bytes, to, kPage);
}
void change_header(const Origin&, Mutant& m, Random& random) {
  const std::size_t at = random() % kHeader;
  const std::size_t count = 1 + random() % 4;
  noise(m.bytes, at, count, random);
}
// The head of a page and the addresses of its rows.
void change_page_header(const Origin&, Mutant& m, Random& random) {
  const std::size_t page = page_of(m.bytes, random);
  const std::size_t at = page + random() % 40;
  const std::size_t count = 1 + random() % 2;
  noise(m.bytes, at, count, random);
}
void damage_journal(const Origin& origin, Mutant& m, Random& random) {
  m = {origin.half_done, origin.journal};
  const std::size_t at = random() % m.journal.size();
  switch (random() % 4) {
    case 0:
      m.journal.resize(at);
      break;
    case 1:
      noise(m.journal, at % kSector, 4, random);
      break;
    case 2:
      noise(m.journal, at, 600, random);
      break;
    default:
      flip_bits(origin, m, random);
  }
}

using Mutation = void (*)(const Origin&, Mutant&, Random&);
constexpr std::array<Mutation, 10> kMutations = {
    flip_bits,     overwrite,          blot,          cut, lengthen, tear, swap_pages,
    change_header, change_page_header, damage_journal};
constexpr const char* kMutationNames[] = {"bits",        "bytes",     "blot",          "cut",
                                          "longer",      "torn page", "swapped pages", "header",
                                          "page header", "journal"};

// A whole database, and a folder for its mutants.
class Specimen {
 public:
  Specimen() {
    const path file = dir_ / "whole.db";
    {
      const auto store = Store::open(file, Access::kReadWrite);
      test::fill(*store);
      origin_.older = test::read_bytes(file);
      blocked_ = test::block_a_winner(*store);
      expected_ = test::everything(*store);
      origin_.bytes = test::read_bytes(file);
    }
    for (std::string row : expected_) {
      // As a salvage that has lost blocks leaves it.
      if (row.starts_with("winner ") || row.starts_with("found ")) row.pop_back();
      unverified_.push_back(std::move(row));
    }
    unverified_.insert(unverified_.end(), expected_.begin(), expected_.end());
    std::sort(unverified_.begin(), unverified_.end());
    stop_in_a_transaction(file);
    origin_.half_done = test::read_bytes(file);
    origin_.journal = test::read_bytes(file.string() + "-journal");
    if (origin_.journal.empty()) throw std::runtime_error("no journal was left");
  }

  Mutant mutant(std::size_t kind, Random& random) const {
    Mutant made{origin_.bytes, ""};
    kMutations[kind](origin_, made, random);
    return made;
  }

  // The faults found in it; `noticed`: whether anything was told of the damage.
  std::vector<std::string> examine(const Mutant& mutant, std::size_t number, bool& noticed) const {
    std::vector<std::string> wrong;
    noticed = false;
    put(mutant);
    const bool writes = !mutant.journal.empty() || number % 8 == 1;
    const auto step = [&](const char* what, const auto& action) {
      try {
        action();
      } catch (const Error& error) {
        noticed = true;
        if (error.code() != ErrorCode::kDatabase) wrong.push_back(std::string(what) + error.what());
      } catch (const std::bad_alloc&) {
        noticed = true;  // SQLite says so of a row that claims about 2 GiB
      } catch (const std::exception& error) {
        wrong.push_back(std::string(what) + "not told as damage: " + error.what());
      }
    };
    if (writes) step("opening to write: ", [&] { Store::open(file_, Access::kReadWrite); });
    step("reading: ", [&] {
      const auto store = Store::open(file_, Access::kReadOnly);
      noticed |= !read(*store, expected_, wrong);
      const CheckReport report = store->check();
      noticed |= !report.integrity_ok || report.bad_rows > 0;
    });
    const auto run = [&] {
      if (test::may_run(file_, blocked_)) wrong.emplace_back("a blocked kernel may run");
    };
    step("serving: ", run);
    if (number % 8 != 2) return wrong;
    step("salvaging: ", [&] {
      Store::salvage(file_);
      const auto store = Store::open(file_, Access::kReadOnly);
      read(*store, unverified_, wrong);
      if (!store->check().integrity_ok) wrong.emplace_back("damaged after a salvage");
    });
    step("serving what was saved: ", run);
    return wrong;
  }

  // The faults that examine() must find: rows that were never written, and a block that nobody
  // gave.
  std::vector<std::string> control(std::size_t number) const {
    put({number % 2 == 0 ? origin_.bytes : origin_.older, ""});
    if (number % 2 == 0) {
      Trial trial = test::sample_trial(3);
      trial.measurement.cold.median_us += 1;
      Store::open(file_, Access::kReadWrite)
          ->put_trial(test::sample_device(), test::sample_problem(), trial);
    }
    bool noticed = false;
    return examine({test::read_bytes(file_), ""}, 0, noticed);
  }

 private:
  // True if all rows are there; one that should not be is wrong.
  static bool read(Store& store, const Rows& expected, std::vector<std::string>& wrong) {
    const Rows rows = test::everything(store);
    if (!test::is_part_of(rows, expected)) wrong.emplace_back("a row that was never written");
    return rows == expected;
  }

  static void stop_in_a_transaction(const path& file) {
    test::in_child([&] {
      Connection raw(file, Connection::Mode::kReadWrite);
      raw.use_truncate_journal();
      raw.execute("PRAGMA cache_size = 2");
      raw.execute("BEGIN IMMEDIATE");
      raw.execute("UPDATE trial SET reason = 'half done ' || hex(zeroblob(300))");
      ::kill(::getpid(), SIGKILL);
      return 0;
    });
  }

  void put(const Mutant& mutant) const {
    for (const auto& entry : test::fs::directory_iterator(folder_)) test::fs::remove(entry);
    test::write_bytes(file_, mutant.bytes);
    if (!mutant.journal.empty()) test::write_bytes(file_.string() + "-journal", mutant.journal);
  }

  test::TempDir dir_;
  test::TempDir mutants_;
  path folder_ = mutants_.path();
  path file_ = folder_ / "v.db";
  Digest blocked_;
  Origin origin_;
  Rows expected_, unverified_;
};

}  // namespace

Tally damage_files(const Work& work) {
  constexpr std::size_t kOneControlIn = 100;
  const Specimen specimen;
  Tally tally;
  for (std::size_t i = work.share; i < work.count; i += work.shares) {
    Random random(work.seed + static_cast<std::uint32_t>(i) * 2654435761U);
    const std::size_t kind = i / work.shares % kMutations.size();
    bool noticed = false;
    const Mutant mutant = specimen.mutant(kind, random);
    for (const std::string& line : specimen.examine(mutant, random(), noticed))
      tally.findings.push_back("mutant " + std::to_string(i) + " (" + kMutationNames[kind] +
                               "): " + line);
    ++tally.runs;
    tally.effective += noticed;
    if (tally.runs % kOneControlIn != 0) continue;
    tally.control_findings += !specimen.control(tally.controls++).empty();
  }
  return tally;
}

}  // namespace vitune::faults
