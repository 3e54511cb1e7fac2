// db/store_merge.cpp -- Taking over what another database has.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <tuple>

#include "db/block_seal.h"
#include "db/row_codec.h"
#include "db/store_state.h"

namespace vitune {
namespace {

enum class Taken { kAdded, kReplaced, kKept };

// A newer driver's labels, then the smaller digest. A strict order.
bool better_device(const Row& a, const Row& b) {
  const auto rank = [](const Row& row) {
    const DeviceInfo device = device_from_row(row).value_or(DeviceInfo{});
    return std::tuple(-std::int64_t{device.driver_version}, row_digest(kDeviceTable.name, row));
  };
  return rank(a) < rank(b);
}

bool smaller_digest(const TableSpec& table, const Row& a, const Row& b) {
  return row_digest(table.name, a) < row_digest(table.name, b);
}

// The larger of both counts: a sum would grow with every repeated merge.
Row joined_requests(const Row& a, const Row& b) {
  Row joined = a;
  joined[2] = std::max(a[2], b[2]);
  joined[3] = std::max(a[3], b[3]);
  return joined;
}

bool longer_search(const Row& a, const Row& b) {
  const auto rank = [](const Row& row) {
    const SearchRecord search = search_from_row(row).value_or(SearchRecord{});
    return std::tuple(-search.seconds, !search.ended, row_digest(kSearchTable.name, row));
  };
  return rank(a) < rank(b);
}

// Puts `row` unless the table's own row of that key is the better one; one that makes no sense is
// not.
template <typename Better>
Taken take(StoredTable& table, const Row& row, Better better) {
  const auto mine = table.find(table.key_of(row));
  if (mine == row) return Taken::kKept;
  if (mine && makes_sense(table.spec(), *mine) && !better(row, *mine)) return Taken::kKept;
  table.put(row);
  return mine ? Taken::kReplaced : Taken::kAdded;
}

void count(Taken taken, std::int64_t& added, std::int64_t& replaced, std::int64_t& skipped) {
  ++(taken == Taken::kAdded ? added : taken == Taken::kReplaced ? replaced : skipped);
}

// Every usable row of a table.
std::vector<Row> usable(StoredTable& table) {
  std::vector<Row> rows;
  table.scan({}, [&](Row row) {
    if (makes_sense(table.spec(), row)) rows.push_back(std::move(row));
  });
  return rows;
}

// When a row came about and how long compiling or searching took: not the times of kernels.
void clear_times(const TableSpec& spec, Row& row) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::string_view name = spec.columns[i].name;
    if (name == "tuned_at" || name == "compile_ms" || name == "seconds" || name == "created") {
      row[i] = Value();
    }
  }
}

}  // namespace

// The rows read from the other database before this one is locked, so that merging a file with
// itself cannot wait for itself. Binaries are large and are fetched one by one.
struct Store::Snapshot {
  explicit Snapshot(State& other) {
    Transaction transaction(*other.connection, Transaction::Kind::kRead);
    devices = usable(other.devices);
    problems = usable(other.problems);
    trials = known(usable(other.trials));
    winners = known(usable(other.winners));
    blocks = usable(other.blocks);
    std::erase_if(blocks, [](const Row& row) { return !is_for_others(row); });
    requests = usable(other.requests);
    searches = known(usable(other.searches));
    blocks_are_whole = is_sealed(other.blocks, other.seals);
    Query query = other.connection->query(
        "SELECT kernel_key, image_digest FROM binary ORDER BY kernel_key, image_digest");
    while (query.step()) binary_keys.push_back(query.row(kBinaryTable.key_columns));
  }
  // A row whose device or problem its own file has lost says nothing. Whether another file has it
  // must not count: the result would depend on which comes first.
  std::vector<Row> known(std::vector<Row> rows) const {
    const auto keys = [](const std::vector<Row>& identities) {
      std::set<Value> found;
      for (const Row& row : identities) found.insert(row.front());
      return found;
    };
    const std::set<Value> known_devices = keys(devices), known_problems = keys(problems);
    std::erase_if(rows, [&](const Row& row) {
      return !known_devices.contains(row[0]) || !known_problems.contains(row[1]);
    });
    return rows;
  }

  std::vector<Row> devices, problems, trials, winners, blocks, requests, searches, binary_keys;
  bool blocks_are_whole = false;
};

void Store::State::take_identities(const Snapshot& from) {
  for (const Row& row : from.devices) take(devices, row, better_device);
  for (const Row& row : from.problems) {
    take(problems, row, [](const Row&, const Row&) { return false; });
  }
  for (const Row& row : from.blocks) take(blocks, row, later_block);
  for (const Row& row : from.requests) {
    const auto mine = requests.find(requests.key_of(row));
    const bool both = mine && makes_sense(kRequestTable, *mine);
    requests.put(both ? joined_requests(row, *mine) : row);
  }
}

// True if today's vitune would make the kernel of this winner.
bool Store::State::is_made_today(const Row& row, const MakesKernel& makes_kernel) {
  if (!makes_kernel) return false;
  const auto device = decoded(devices, devices.find({row[0]}), device_from_row);
  const auto problem = decoded(problems, problems.find({row[1]}), problem_from_row);
  const auto winner = winner_from_row(row);
  return device && problem && winner && makes_kernel(*device, *problem, *winner);
}

void Store::State::take_results(const Snapshot& from, const MakesKernel& makes_kernel,
                                MergeReport& report) {
  for (const Row& row : from.trials) {
    count(take(trials, row, better_trial), report.trials_added, report.trials_added,
          report.skipped);
  }
  const auto better = [&](const Row& a, const Row& b) {
    const bool a_is_made = is_made_today(a, makes_kernel);
    const bool b_is_made = is_made_today(b, makes_kernel);
    return a_is_made != b_is_made ? a_is_made : better_winner(a, b);
  };
  for (const Row& row : from.winners) {
    count(take(winners, row, better), report.winners_added, report.winners_replaced,
          report.skipped);
  }
  for (const Row& row : from.searches) take(searches, row, longer_search);
}

void Store::State::take_binaries(const Snapshot& from, State& other, MergeReport& report) {
  for (const Row& key : from.binary_keys) {
    const auto mine = binaries.stored_digest(key);
    if (mine && mine == other.binaries.stored_digest(key)) {
      ++report.skipped;
      continue;
    }
    const auto row = other.binaries.find(key);
    if (!row || !makes_sense(kBinaryTable, *row)) {
      ++report.skipped;
      continue;
    }
    const Taken taken = take(binaries, *row, [](const Row& a, const Row& b) {
      return smaller_digest(kBinaryTable, a, b);
    });
    count(taken, report.binaries_added, report.binaries_added, report.skipped);
  }
}

MergeReport Store::merge(Store& other, const MakesKernel& makes_kernel) {
  const Snapshot snapshot(*other.state_);
  if (!snapshot.blocks_are_whole) {
    throw DatabaseError(DatabaseFault::kDamaged,
                        "database " + other.state_->connection->name() +
                            ": its block list is damaged, so any of its kernels may be a wrong "
                            "one; nothing was merged, " +
                            kSalvageAdvice);
  }
  MergeReport report;
  Transaction transaction(*state_->connection);
  // Looking at every block for each of a thousand files would take long.
  const bool reseal = !snapshot.blocks.empty() && is_sealed(state_->blocks, state_->seals);
  state_->take_identities(snapshot);
  if (reseal) seal(state_->blocks, state_->seals);
  state_->take_results(snapshot, makes_kernel, report);
  state_->take_binaries(snapshot, *other.state_, report);
  transaction.commit();
  return report;
}

std::pair<Digest, std::int64_t> Store::State::content(DigestOf what) {
  Sha256 digests;
  std::int64_t rows = 0;
  for (StoredTable* table : tables()) {
    const TableSpec& spec = table->spec();
    if (&spec == &kAttemptTable || &spec == &kSealTable) continue;
    table->scan({}, [&](Row row) {
      if (what == DigestOf::kResults) clear_times(spec, row);
      digests.append(to_blob(row_digest(spec.name, row)));
      ++rows;
    });
  }
  return {digests.finish(), rows};
}

Digest Store::content_digest(DigestOf what) {
  Transaction snapshot(*state_->connection, Transaction::Kind::kRead);
  const Digest digest = state_->content(what).first;
  snapshot.commit();
  return digest;
}

// SQLite's integrity check does not look at the CHECKs of every table. Were such a row first met
// when it is put, the other files would decide whether it is met at all.
void Store::State::require_allowed_values() {
  const auto scratch = Store::in_memory();
  Transaction transaction(*scratch->state_->connection);
  const auto mine = tables(), theirs = scratch->state_->tables();
  for (std::size_t i = 0; i < mine.size(); ++i) {
    mine[i]->scan({}, [&](const Row& row) {
      theirs[i]->put(row);
      theirs[i]->erase(theirs[i]->key_of(row));
    });
  }
}

void Store::require_whole() {
  const auto refuse = [this](const std::string& why) {
    throw DatabaseError(DatabaseFault::kDamaged, "database " + state_->connection->name() +
                                                     " is damaged: " + why + "; " + kSalvageAdvice);
  };
  const CheckReport report = check();
  if (!report.problems.empty()) refuse(report.problems.front());
  try {
    state_->require_allowed_values();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kFailure) throw;
    refuse(error.what());
  }
}

}  // namespace vitune
