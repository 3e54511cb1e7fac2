// db/ledger_tables.h -- Rows of the tables block, attempt, request and search.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "db/attempt_owner.h"
#include "db/row.h"
#include "db/store.h"

namespace vitune {

Row block_key(const Digest& kernel_key, const std::string& device_key, int driver_version);
// `created` in seconds since 1970.
Row block_row(const BlockEntry& entry, std::int64_t created);
std::optional<BlockEntry> block_from_row(const Row& row);
// Orders two rows of one key by time, a block before what lifts it. A strict order.
bool later_block(const Row& a, const Row& b);
// True if other databases take it over. A timeout may be the machine's doing, and a lift is what
// this database's user decided.
bool is_for_others(const Row& block);

// An attempt's key is that of its trial.
Row attempt_row(const Row& key, std::int64_t count, const AttemptOwner& owner);
struct AttemptRecord {
  Blob problem_id;
  Config config;
  int count = 0;
  AttemptOwner owner;
  // How many of these are of processes that ended meanwhile: all, or all but the last.
  int ended() const { return is_alive(owner) ? count - 1 : count; }
};
std::optional<AttemptRecord> attempt_from_row(const Row& row);

Row request_row(const ProblemRequest& request);
std::optional<ProblemRequest> request_from_row(const Row& row);

// A search's key is that of its winner.
Row search_row(const Row& key, const SearchRecord& record);
std::optional<SearchRecord> search_from_row(const Row& row);

}  // namespace vitune
