// db/store_merge.cpp -- Taking over what another database has.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
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
  ProblemRequest joined = request_from_row(a).value_or(ProblemRequest{});
  const ProblemRequest other = request_from_row(b).value_or(ProblemRequest{});
  joined.calls = std::max(joined.calls, other.calls);
  joined.total_us = std::max(joined.total_us, other.total_us);
  return request_row(joined);
}

bool longer_search(const Row& a, const Row& b) {
  const auto rank = [](const Row& row) {
    const SearchRecord search = search_from_row(row).value_or(SearchRecord{});
    return std::tuple(-search.seconds, !search.ended, row_digest(kSearchTable.name, row));
  };
  return rank(a) < rank(b);
}

// Puts `row` unless the table's own row of that key is the better one.
template <typename Better>
Taken take(StoredTable& table, const Row& row, Better better) {
  const auto mine = table.find(table.key_of(row));
  if (mine && !better(row, *mine)) return Taken::kKept;
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

}  // namespace

// What is read from the other database before this one is locked, so that merging a file with
// itself cannot wait for itself. Binaries are large and are fetched one by one.
struct Store::Snapshot {
  explicit Snapshot(State& other) {
    Transaction transaction(*other.connection, Transaction::Kind::kRead);
    devices = usable(other.devices);
    problems = usable(other.problems);
    trials = usable(other.trials);
    winners = usable(other.winners);
    blocks = usable(other.blocks);
    requests = usable(other.requests);
    searches = usable(other.searches);
    blocks_are_whole = is_sealed(other.blocks, other.seals);
    Query query = other.connection->query(
        "SELECT kernel_key, image_digest FROM binary ORDER BY kernel_key, image_digest");
    while (query.step()) binary_keys.push_back(query.row(kBinaryTable.key_columns));
  }
  std::vector<Row> devices, problems, trials, winners, blocks, requests, searches, binary_keys;
  bool blocks_are_whole = false;
};

void Store::State::take_identities(const Snapshot& from) {
  for (const Row& row : from.devices) take(devices, row, better_device);
  for (const Row& row : from.problems) {
    take(problems, row, [](const Row&, const Row&) { return false; });
  }
  for (const Row& row : from.blocks) {
    take(blocks, row, [](const Row& a, const Row& b) { return smaller_digest(kBlockTable, a, b); });
  }
  for (const Row& row : from.requests) {
    const auto mine = requests.find(requests.key_of(row));
    requests.put(mine ? joined_requests(row, *mine) : row);
  }
}

void Store::State::take_results(const Snapshot& from, MergeReport& report) {
  // A row whose device or problem is lost says nothing.
  const auto known = [this](const Row& row) {
    return devices.find({row[0]}).has_value() && problems.find({row[1]}).has_value();
  };
  for (const Row& row : from.trials) {
    const Taken taken = known(row) ? take(trials, row, better_trial) : Taken::kKept;
    count(taken, report.trials_added, report.trials_added, report.skipped);
  }
  for (const Row& row : from.winners) {
    const Taken taken = known(row) ? take(winners, row, better_winner) : Taken::kKept;
    count(taken, report.winners_added, report.winners_replaced, report.skipped);
  }
  for (const Row& row : from.searches) {
    if (known(row)) take(searches, row, longer_search);
  }
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

MergeReport Store::merge(Store& other) {
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
  const bool whole = is_sealed(state_->blocks, state_->seals);
  state_->take_identities(snapshot);
  if (whole) seal(state_->blocks, state_->seals);
  state_->take_results(snapshot, report);
  state_->take_binaries(snapshot, *other.state_, report);
  transaction.commit();
  return report;
}

}  // namespace vitune
