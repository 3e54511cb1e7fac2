// cli/output/counts.cpp -- One row a count.
// SPDX-License-Identifier: Apache-2.0
#include "cli/output/counts.h"

#include "cli/output/results.h"
#include "core/format.h"

namespace vitune {

using nlohmann::ordered_json;

void show_counts(Session& session, const std::string& verb,
                 const std::vector<std::pair<std::string, std::int64_t>>& counts,
                 const ordered_json& extra) {
  Table table;
  table.column("what").column("count", Align::kRight);
  ordered_json document = new_document(verb);
  for (const auto& [name, count] : counts) {
    table.row({name, formatted("{}", count)});
    document[name] = count;
  }
  document.update(extra);
  session.console.show(table, document, "");
}

}  // namespace vitune
