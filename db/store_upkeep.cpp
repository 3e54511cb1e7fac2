// db/store_upkeep.cpp -- Counting, checking and pruning a database.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <sstream>

#include "db/block_seal.h"
#include "db/open_file.h"
#include "db/store_state.h"

namespace vitune {
namespace {

std::int64_t sum(Connection& connection, const std::string& sql) { return connection.integer(sql); }

// Lines of what SQLite says about one database; its heading is left out.
void add_lines(const std::string& text, std::vector<std::string>& found) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && !line.starts_with("*** in database")) found.push_back("file: " + line);
  }
}

// The integrity check's findings; a file too damaged for the check itself counts as one.
std::vector<std::string> integrity_problems(Connection& connection) {
  std::vector<std::string> found;
  try {
    require_believable_size(connection);
    Query query = connection.query("PRAGMA integrity_check(100)");
    while (query.step()) {
      const Value value = query.column(0);
      const auto* line = std::get_if<std::string>(&value);
      if (line != nullptr && *line != "ok") add_lines(*line, found);
    }
  } catch (const DatabaseError& error) {
    if (error.fault() != DatabaseFault::kDamaged) throw;
    found.push_back(error.what());
  }
  return found;
}

// Configs of the `keep` fastest trials by one objective.
void add_best(std::vector<Trial> trials, Objective objective, std::int64_t keep,
              std::set<std::string>& kept) {
  std::erase_if(trials, [&](const Trial& trial) {
    return trial.status != TrialStatus::kOk || !(trial.measurement.by(objective).median_us > 0);
  });
  std::sort(trials.begin(), trials.end(), [&](const Trial& a, const Trial& b) {
    const double time_a = a.measurement.by(objective).median_us;
    const double time_b = b.measurement.by(objective).median_us;
    return time_a != time_b ? time_a < time_b : a.config.text() < b.config.text();
  });
  const auto count = std::min(static_cast<std::size_t>(keep), trials.size());
  for (std::size_t i = 0; i < count; ++i) kept.insert(trials[i].config.text());
}

}  // namespace

bool makes_sense(const TableSpec& table, const Row& row) {
  if (&table == &kDeviceTable) return device_from_row(row).has_value();
  if (&table == &kProblemTable) return problem_from_row(row).has_value();
  if (&table == &kTrialTable) return trial_from_row(row).has_value();
  if (&table == &kWinnerTable) return winner_from_row(row).has_value();
  if (&table == &kBinaryTable) return binary_from_row(row).has_value();
  if (&table == &kBlockTable) return block_from_row(row).has_value();
  if (&table == &kAttemptTable) return attempt_from_row(row).has_value();
  if (&table == &kSearchTable) return search_from_row(row).has_value();
  return request_from_row(row).has_value();
}

StoreStats Store::stats() {
  Connection& connection = *state_->connection;
  Transaction snapshot(connection, Transaction::Kind::kRead);
  StoreStats stats;
  stats.devices = state_->devices.count();
  stats.problems = state_->problems.count();
  stats.trials = state_->trials.count();
  stats.winners = state_->winners.count();
  stats.unverified_winners = sum(connection, "SELECT count(*) FROM winner WHERE verified = 0");
  stats.binaries = state_->binaries.count();
  stats.lifted_blocks = sum(connection, "SELECT count(*) FROM block WHERE status = 'ok'");
  stats.blocks = state_->blocks.count() - stats.lifted_blocks;
  stats.requests = state_->requests.count();
  stats.binary_bytes = sum(connection, "SELECT coalesce(sum(length(image)), 0) FROM binary");
  stats.file_bytes = sum(connection, "PRAGMA page_count") * sum(connection, "PRAGMA page_size");
  stats.schema_version = static_cast<int>(sum(connection, "PRAGMA user_version"));
  snapshot.commit();
  return stats;
}

CheckReport Store::check() {
  CheckReport report;
  report.problems = integrity_problems(*state_->connection);
  report.integrity_ok = report.problems.empty();
  DamageLog damage([&](LogLevel, std::string_view line) { report.problems.emplace_back(line); });
  for (const TableSpec* spec : kAllTables) {
    if (spec == &kSealTable) continue;  // it is looked at as what it seals
    StoredTable table(*state_->connection, *spec, damage);
    try {
      table.scan({}, [&](const Row& row) {
        ++report.rows;
        const auto block = spec == &kBlockTable ? block_from_row(row) : std::nullopt;
        report.lifted_blocks += block && block->lifts();
        if (makes_sense(*spec, row)) return;
        --report.rows;
        table.report(table.key_of(row), "holds values that make no sense");
      });
    } catch (const DatabaseError& error) {
      if (error.fault() != DatabaseFault::kDamaged) throw;
      report.integrity_ok = false;
      report.problems.emplace_back(error.what());
    }
  }
  if (!is_sealed(state_->blocks, state_->seals)) {
    report.integrity_ok = false;
    report.problems.emplace_back(
        "the block list is not whole: a row of it is damaged or lost, so only default kernels "
        "are "
        "served");
  }
  if (const auto fault = state_->pack_fault()) {
    report.integrity_ok = false;
    report.problems.push_back(*fault);
  }
  report.bad_rows = damage.count();
  report.rows += report.bad_rows;
  return report;
}

void Store::State::find_prunable_trials(const Blob& device, const Blob& problem,
                                        const std::vector<Objective>& objectives, std::int64_t keep,
                                        std::vector<Row>& doomed, std::set<Blob>& kernels) {
  std::vector<Trial> found;
  trials.scan({device, problem}, [&](const Row& row) {
    auto trial = decoded(trials, row, trial_from_row);
    if (trial) found.push_back(std::move(*trial));
  });
  std::set<std::string> kept;
  for (const Objective objective : objectives) add_best(found, objective, keep, kept);
  for (const Trial& trial : found) {
    if (is_timeout(trial)) continue;
    if (kept.contains(trial.config.text())) {
      kernels.insert(to_blob(trial.kernel_key));
    } else {
      doomed.push_back(trial_key(device, problem, trial.config));
    }
  }
}

std::set<Blob> Store::State::kernels_without_image() {
  std::set<Blob> keys;
  Query query = connection->query("SELECT kernel_key FROM binary WHERE image_bytes = 0");
  while (query.step()) {
    const Value key = query.column(0);
    if (const auto* blob = std::get_if<Blob>(&key)) keys.insert(*blob);
  }
  return keys;
}

std::vector<Blob> Store::State::kernels_beside(const std::set<Blob>& named) {
  std::vector<Blob> found;
  Query query = connection->query("SELECT DISTINCT kernel_key FROM binary");
  while (query.step()) {
    const Value key = query.column(0);
    const auto* blob = std::get_if<Blob>(&key);
    if (blob != nullptr && !named.contains(*blob)) found.push_back(*blob);
  }
  return found;
}

Store::State::Prunable Store::State::prunable(std::int64_t keep) {
  if (keep < 0) {
    throw Error(ErrorCode::kUsage,
                "pruning: " + std::to_string(keep) + " trials cannot be kept; give 0 or more");
  }
  struct Decided {
    std::vector<Objective> objectives;
    bool calls_library = false;
  };
  const std::set<Blob> libraries = kernels_without_image();
  std::map<std::pair<Blob, Blob>, Decided> by_problem;
  std::set<Blob> named;
  winners.scan({}, [&](const Row& row) {
    const auto winner = decoded(winners, row, winner_from_row);
    if (!winner) return;
    Decided& here = by_problem[{std::get<Blob>(row[0]), std::get<Blob>(row[1])}];
    here.objectives.push_back(winner->objective);
    here.calls_library |= libraries.contains(to_blob(winner->kernel_key));
    named.insert(to_blob(winner->kernel_key));
  });
  Prunable found;
  for (const auto& [where, here] : by_problem) {
    std::set<Blob> kept;
    find_prunable_trials(where.first, where.second, here.objectives, keep, found.trials, kept);
    // The kernels that serve in the winner's place where the library is not there.
    if (here.calls_library) named.merge(kept);
  }
  found.kernels = kernels_beside(named);
  return found;
}

PruneReport Store::prunable(std::int64_t keep) {
  Transaction snapshot(*state_->connection, Transaction::Kind::kRead);
  const State::Prunable found = state_->prunable(keep);
  snapshot.commit();
  return {std::ssize(found.trials), std::ssize(found.kernels)};
}

std::int64_t Store::prune(std::int64_t keep) {
  Transaction transaction(*state_->connection);
  const State::Prunable doomed = state_->prunable(keep);
  for (const Row& trial : doomed.trials) state_->trials.erase(trial);
  for (const Blob& kernel : doomed.kernels) state_->binaries.erase({kernel});
  transaction.commit();
  try {
    state_->connection->compact();
  } catch (const DatabaseError& error) {
    // The rows are gone all the same; only the file keeps its size.
    log(state_->log_sink, LogLevel::kWarning, error.what());
  }
  return std::ssize(doomed.trials) + std::ssize(doomed.kernels);
}

}  // namespace vitune
