// cli/verbs/cmd_db_rekey.cpp -- vitune db rekey: stored results of kernels that are still the same.
//
// A kernel key covers its source. After an upgrade it may be another one although the compiler
// makes the same machine code: then the results of before are those of the new key too.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/cmd_db_rekey.h"

#include <nlohmann/json.hpp>

#include "cli/arguments/options.h"
#include "cli/arguments/stores.h"
#include "cli/output/results.h"
#include "cli/verbs/same_code.h"
#include "cli/verbs/stored_kernels.h"
#include "core/error.h"
#include "core/format.h"
#include "db/rekey.h"
#include "db/sqlite.h"

namespace vitune {
namespace {

namespace po = boost::program_options;
using nlohmann::ordered_json;

void describe_db_rekey(po::options_description& options) {
  add_switch(options, "dry-run", "compare and tell; change nothing");
  add_value(options, "jobs,j", "N", "compile processes; default: one per CPU");
}

// Why the rows of each kernel stay as they are.
using Reasons = std::map<Digest, std::string>;

ordered_json left_json(const Reasons& left) {
  ordered_json list = ordered_json::array();
  for (const auto& [key, why] : left) list.push_back({{"kernel_key", key.hex()}, {"reason", why}});
  return list;
}

// Winners that will not be served, each with the reason.
void tell_of_stale(Session& session, const std::vector<WinnerEntry>& stale, const Reasons& left,
                   ordered_json& document) {
  document["stale_winners"] = ordered_json::array();
  for (const WinnerEntry& entry : stale) {
    const Digest& key = entry.winner.kernel_key;
    const auto why = left.find(key);
    const std::string reason =
        why == left.end() ? "this version makes another kernel" : why->second;
    session.console.log(LogLevel::kWarning,
                        formatted("the winner {} is not served: {}", winner_place(entry), reason));
    document["stale_winners"].push_back({{"problem", entry.problem.text},
                                         {"device", entry.device.key()},
                                         {"objective", objective_name(entry.winner.objective)},
                                         {"kernel_key", key.hex()},
                                         {"reason", reason}});
  }
}

// Findings about the stored kernels before anything is written.
struct Findings {
  StoredKernels stored;
  CodeComparison comparison;
  std::vector<BlockEntry> blocks;  // of all layers
  std::vector<Binary> elsewhere;   // images of winners that only other layers have

  // From stored keys to those of today, of kernels that are the same.
  std::map<Digest, Digest> keys() const {
    std::map<Digest, Digest> keys = stored.same_text;
    keys.insert(comparison.same.begin(), comparison.same.end());
    return keys;
  }
  RekeyFacts facts() const { return {comparison.images, blocks, elsewhere}; }
  Reasons left() const {
    Reasons left = stored.unknown;
    left.insert(comparison.differs.begin(), comparison.differs.end());
    return left;
  }
};

// The file is closed again: writing opens it anew.
Findings find_out(Session& session) {
  LayeredStore layers =
      layered_store_over(session, open_existing_store(session, Access::kReadOnly));
  layers.user().require_whole();
  if (layers.serves_defaults_only()) {
    throw DatabaseError(DatabaseFault::kDamaged,
                        "a kernel that " + layers.damaged_list().string() +
                            " blocks must not get another key, and that list is damaged; nothing "
                            "was changed, " +
                            kSalvageAdvice);
  }
  Findings findings;
  findings.stored = stored_kernels(layers.user());
  findings.blocks = layers.blocks();
  findings.elsewhere = images_elsewhere(layers);
  findings.comparison = compare_code(session, findings.stored.older, findings.elsewhere);
  return findings;
}

RekeyReport write_keys(Session& session, const Findings& findings,
                       const std::map<Digest, Digest>& keys) {
  if (session.has("dry-run") || keys.empty()) return {};
  return rekey(*database_path(session), keys, findings.facts(), session.console.sink(),
               std::nullopt, &session.stop, trusted_owners(session));
}

// As the file is now, or would be.
std::vector<WinnerEntry> stale_afterwards(Session& session, const std::map<Digest, Digest>& keys) {
  const auto store = open_existing_store(session, Access::kReadOnly);
  return stale_winners(*store, session.has("dry-run") ? keys : std::map<Digest, Digest>());
}

void add_counts(const Findings& findings, const RekeyReport& report, Table& table,
                ordered_json& document) {
  const std::pair<const char*, std::int64_t> counts[] = {
      {"kernels_current", std::ssize(findings.stored.current)},
      {"kernels_of_same_text", std::ssize(findings.stored.same_text)},
      {"kernels_of_same_code", std::ssize(findings.comparison.same)},
      {"kernels_that_differ", std::ssize(findings.comparison.differs)},
      {"kernels_unknown", std::ssize(findings.stored.unknown)},
      {"winners_rekeyed", report.winners},
      {"trials_rekeyed", report.trials},
      {"searches_rekeyed", report.searches},
      {"binaries_rekeyed", report.binaries},
      {"blocks_rekeyed", report.blocks}};
  table.column("what").column("count", Align::kRight);
  for (const auto& [name, count] : counts) {
    table.row({name, formatted("{}", count)});
    document[name] = count;
  }
}

int run_db_rekey(Session& session) {
  const Findings findings = find_out(session);
  const std::map<Digest, Digest> keys = findings.keys();
  const RekeyReport report = write_keys(session, findings, keys);
  Reasons left = findings.left();
  for (const Digest& key : report.refused) {
    left[key] = "an image of it was stored meanwhile; run again";
  }
  Table table;
  ordered_json document = new_document("db rekey");
  document["dry_run"] = session.has("dry-run");
  add_counts(findings, report, table, document);
  document["left"] = left_json(left);
  const std::vector<WinnerEntry> stale = stale_afterwards(session, keys);
  tell_of_stale(session, stale, left, document);
  session.console.show(table, document, "");
  if (!left.empty()) {
    session.console.log(
        LogLevel::kInfo,
        formatted("rows of {} kernels keep their keys; --json says why", left.size()));
  }
  if (stale.empty()) return 0;
  session.console.log(
      LogLevel::kWarning,
      formatted("{} winners are not served; tune these problems again", stale.size()));
  return exit_status(ErrorCode::kFailure);
}

}  // namespace

std::string winner_place(const WinnerEntry& entry) {
  return formatted("of '{}' on {}", entry.problem.text, device_text(entry.device));
}

Verb rekey_verb() {
  return {"db rekey",
          "After an upgrade: keep what was found of kernels whose machine code is the same",
          "",
          "A stored kernel serves only while this version makes it of the same source. This "
          "compiles each kernel\nof another source again, without a GPU, with the NVRTC that made "
          "it; where machine code, constants,\nregisters and shared memory are the same, its "
          "winners, trials and blocks are those of the new source\nfrom then on. All other rows "
          "stay as they are. Exit code 1 if a winner is left that is not served.",
          describe_db_rekey,
          run_db_rekey};
}

}  // namespace vitune
