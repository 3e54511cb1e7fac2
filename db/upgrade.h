// db/upgrade.h -- Rows of older schema versions as rows of today's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>

#include "db/sqlite.h"
#include "db/tables.h"

namespace vitune {

// A table as an older version had it.
struct OlderTable {
  TableSpec spec;
  const TableSpec* today;
  // Nothing: the row makes no sense.
  std::optional<Row> (*upgraded)(const Row& row);
};

std::span<const OlderTable> older_tables();

// Today's row of one of a table of today or of an older one; nothing: it makes no sense. `spec`
// becomes today's.
std::optional<Row> todays_row(const TableSpec*& spec, const Row& row);

// Completes db/schema/003_trust.sql: moves winners and binaries into the new tables, drops
// the old ones and seals the block list. Rows that are damaged stay behind.
void upgrade_to_3(Connection& connection);

}  // namespace vitune
