// tests/db/older_file.cpp -- The schema steps up to a version, and today's rows without later
// columns.
// SPDX-License-Identifier: Apache-2.0
#include "tests/db/older_file.h"

#include "db/open_file.h"
#include "db/table.h"
#include "db/tables.h"
#include "db/upgrade.h"
#include "tests/db/test_support.h"

namespace vitune::test {

void make_older(const fs::path& file, std::size_t version) {
  TempDir scratch;
  fill(*Store::open(scratch / "now.db", Access::kReadWrite));
  Connection from(scratch / "now.db", Connection::Mode::kReadOnly);
  auto steps = built_in_steps();
  steps.resize(version);
  const auto into = open_for_writing(file, steps, {});
  DamageLog damage{LogSink()};
  for (const TableSpec* spec : kAllTables) {
    if ((spec == &kSealTable && version < 3) || (spec == &kSearchTable && version < 2)) continue;
    const TableSpec* older = spec;
    std::size_t left_out = spec->columns.size();
    for (const OlderTable& table : older_tables()) {
      if (table.today != spec || version >= 3) continue;
      older = &table.spec;
      left_out = spec == &kWinnerTable ? 5 : 1;  // image_digest
    }
    StoredTable target(*into, *older, damage);
    for (Row row : StoredTable(from, *spec, damage).rows()) {
      if (older != spec) row.erase(row.begin() + static_cast<std::ptrdiff_t>(left_out));
      target.put(row);
    }
  }
}

}  // namespace vitune::test
