// db/ledger_tables.cpp -- The block list, open attempts, requests and searches as rows.
// SPDX-License-Identifier: Apache-2.0
#include "db/ledger_tables.h"

#include <limits>
#include <tuple>

#include "db/device_table.h"
#include "db/row_codec.h"
#include "db/tables.h"

namespace vitune {

Row block_key(const Digest& kernel_key, const std::string& device_key, int driver_version) {
  return {to_blob(kernel_key), device_key, std::int64_t{driver_version}};
}

Row block_row(const BlockEntry& entry, std::int64_t created) {
  constexpr std::size_t kMaxReason = 4096;
  Row row = block_key(entry.kernel_key, entry.device_key, entry.driver_version);
  row.insert(row.end(),
             {trial_status_name(entry.status), clipped(entry.reason, kMaxReason), created});
  return row;
}

std::optional<BlockEntry> block_from_row(const Row& row) {
  return decode_row(row, [](RowReader& reader) {
    BlockEntry entry;
    entry.kernel_key = reader.digest();
    entry.device_key = reader.text();
    entry.driver_version = reader.small_integer();
    entry.status = reader.status();
    entry.reason = reader.text();
    entry.created = reader.integer(std::numeric_limits<std::int64_t>::min());
    return entry;
  });
}

bool later_block(const Row& a, const Row& b) {
  const auto rank = [](const Row& row) {
    const BlockEntry entry = block_from_row(row).value_or(BlockEntry{});
    // No number is the negative of the smallest.
    return std::tuple(~entry.created, entry.lifts(), row_digest(kBlockTable.name, row));
  };
  return rank(a) < rank(b);
}

bool is_for_others(const Row& block) {
  const auto entry = block_from_row(block);
  return entry && !entry->lifts() && entry->status != TrialStatus::kTimeout;
}

Row attempt_row(const Row& key, std::int64_t count, const AttemptOwner& owner) {
  Row row = key;
  row.insert(row.end(), {count, packed(owner)});
  return row;
}

std::optional<AttemptRecord> attempt_from_row(const Row& row) {
  return decode_row(row, [](RowReader& reader) {
    reader.blob();
    AttemptRecord record;
    record.problem_id = reader.blob();
    record.config = reader.config();
    record.count = reader.small_integer();
    record.owner = unpacked_owner(reader.integer());
    return record;
  });
}

Row request_row(const ProblemRequest& request) {
  problem_row({request.operator_name, request.problem});  // refuses what could not be exported
  return {request.operator_name, request.problem, request.calls, request.total_us};
}

std::optional<ProblemRequest> request_from_row(const Row& row) {
  return decode_row(row, [](RowReader& reader) {
    ProblemRequest request;
    request.operator_name = reader.text();
    request.problem = reader.text();
    request.calls = reader.integer();
    request.total_us = reader.real();
    return request;
  });
}

Row search_row(const Row& key, const SearchRecord& record) {
  Row row = key;
  row.insert(row.end(), {to_blob(record.kernel_key), record.seconds, std::int64_t{record.ended}});
  return row;
}

std::optional<SearchRecord> search_from_row(const Row& row) {
  return decode_row(row, [](RowReader& reader) {
    reader.blob();
    reader.blob();
    reader.objective();
    SearchRecord record;
    record.kernel_key = reader.digest();
    record.seconds = reader.integer();
    record.ended = reader.flag();
    return record;
  });
}

}  // namespace vitune
