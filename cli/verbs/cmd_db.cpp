// cli/verbs/cmd_db.cpp -- vitune db and the verbs behind it: stats, check, digest, export, ...
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/arguments/inputs.h"
#include "cli/arguments/options.h"
#include "cli/arguments/session.h"
#include "cli/arguments/stored_gpus.h"
#include "cli/arguments/stores.h"
#include "cli/output/counts.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "cli/verbs/cmd_db_pack.h"
#include "cli/verbs/cmd_db_rekey.h"
#include "cli/verbs/cmd_db_unblock.h"
#include "cli/verbs/cmd_db_upkeep.h"
#include "cli/verbs/made_today.h"
#include "cli/verbs/stored_kernels.h"
#include "cli/verbs/verified_import.h"
#include "core/error.h"
#include "core/format.h"
#include "core/output_file.h"
#include "db/file_guard.h"
#include "db/sqlite.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;
using nlohmann::ordered_json;

constexpr std::size_t kProblemsShown = 10;
constexpr std::size_t kMaxImport = std::size_t{64} << 20;

std::string only_operand(const Session& session, const char* what) {
  if (session.operands.size() == 1 && !session.operands[0].empty()) return session.operands[0];
  throw Error(ErrorCode::kUsage, formatted("give {}", what));
}

int run_stats(Session& session) {
  const auto store = open_existing_store(session, Access::kReadOnly);
  const StoreStats stats = store->stats();
  show_counts(session, "db stats",
              {{"schema_version", stats.schema_version},
               {"devices", stats.devices},
               {"problems", stats.problems},
               {"trials", stats.trials},
               {"winners", stats.winners},
               {"unverified_winners", stats.unverified_winners},
               {"binaries", stats.binaries},
               {"blocks", stats.blocks},
               {"lifted_blocks", stats.lifted_blocks},
               {"requests", stats.requests},
               {"binary_bytes", stats.binary_bytes},
               {"file_bytes", stats.file_bytes}},
              {{"file", database_path(session)->string()}});
  return 0;
}

// Winners that are sound and not served. Of a damaged file nothing is said.
std::vector<WinnerEntry> stale_winners_of(Store& store, const CheckReport& report) {
  const bool sound = report.integrity_ok && report.bad_rows == 0;
  return sound ? stale_winners(store) : std::vector<WinnerEntry>();
}

void tell_of_stale(Session& session, const std::vector<WinnerEntry>& stale) {
  const std::size_t shown = std::min(stale.size(), kProblemsShown);
  for (std::size_t i = 0; i < shown; ++i) {
    session.console.log(LogLevel::kWarning,
                        formatted("the winner {} is not served: this version makes its kernel "
                                  "from other sources",
                                  winner_place(stale[i])));
  }
  if (stale.empty()) return;
  session.console.log(
      LogLevel::kWarning,
      formatted("{} winners are not served; 'vitune db rekey' keeps those whose machine code is "
                "the same, 'vitune tune' finds others",
                stale.size()));
}

int run_check(Session& session) {
  const auto store = open_existing_store(session, Access::kReadOnly);
  const CheckReport report = store->check();
  const std::vector<WinnerEntry> stale = stale_winners_of(*store, report);
  show_counts(session, "db check",
              {{"rows", report.rows},
               {"bad_rows", report.bad_rows},
               {"lifted_blocks", report.lifted_blocks},
               {"stale_winners", std::ssize(stale)}},
              {{"integrity_ok", report.integrity_ok}, {"problems", report.problems}});
  const std::size_t shown = std::min(report.problems.size(), kProblemsShown);
  for (std::size_t i = 0; i < shown; ++i) {
    session.console.log(LogLevel::kError, report.problems[i]);
  }
  if (shown < report.problems.size()) {
    session.console.log(LogLevel::kError, formatted("and {} more; --json has them all",
                                                    report.problems.size() - shown));
  }
  tell_of_stale(session, stale);
  if (report.integrity_ok && report.bad_rows == 0) return 0;
  session.console.log(
      LogLevel::kError,
      "the database is damaged; 'vitune db salvage' keeps every sound row in a new file");
  return exit_status(ErrorCode::kDatabase);
}

void write_export(const fs::path& path, const std::string& content) {
  const std::error_code error = write_output_file(path, content);
  if (!error) return;
  throw Error(ErrorCode::kFailure,
              formatted("the export cannot be written to {}: {}", path.string(), error.message()));
}

void describe_export(po::options_description& options) {
  add_switch(options, "winners-only", "leave the trials out");
  add_gpu_option(options);
}

int run_export(Session& session) {
  if (session.operands.size() > 1)
    throw Error(ErrorCode::kUsage, "give one file, or none for standard output");
  session.refuse({"csv", "md"}, "does not go with 'db export', which always writes JSON");
  const auto store = open_existing_store(session, Access::kReadOnly);
  const std::string json =
      store->export_json(!session.has("winners-only"), wanted_gpus(session, store->devices()));
  if (session.operands.empty() || session.operands[0] == "-") {
    session.console.print(json);
    if (!json.ends_with('\n')) session.console.print("\n");
  } else {
    write_export(session.operands[0], json);
    session.console.log(LogLevel::kInfo, formatted("{} written to {}", bytes_text(std::ssize(json)),
                                                   session.operands[0]));
  }
  return 0;
}

std::string read_import(const std::string& name) {
  std::ifstream file;
  if (name != "-") {
    std::error_code error;
    if (!fs::is_regular_file(name, error)) {
      throw Error(ErrorCode::kUsage,
                  formatted("'{}' is not a file; give what 'vitune db export' wrote, or -", name));
    }
    file.open(name, std::ios::binary);
    if (!file)
      throw Error(ErrorCode::kUsage,
                  formatted("'{}' cannot be read: {}", name, std::strerror(errno)));
  }
  std::istream& in = name == "-" ? std::cin : file;
  std::string content;
  std::vector<char> block(1 << 16);
  while (in.read(block.data(), std::ssize(block)) || in.gcount() > 0) {
    content.append(block.data(), static_cast<std::size_t>(in.gcount()));
    if (content.size() > kMaxImport) {
      throw Error(ErrorCode::kUsage,
                  formatted("'{}' is larger than 64 MiB; export with --winners-only, or take the "
                            "database itself over with 'vitune db merge'",
                            name));
    }
  }
  return content;
}

void show_merge(Session& session, const std::string& verb, const MergeReport& report,
                const ordered_json& extra = ordered_json::object()) {
  show_counts(session, verb,
              {{"trials_added", report.trials_added},
               {"winners_added", report.winners_added},
               {"winners_replaced", report.winners_replaced},
               {"binaries_added", report.binaries_added},
               {"skipped", report.skipped}},
              extra);
}

void describe_import(po::options_description& options) {
  add_switch(options, "verify",
             "compile, judge and time each winner on this GPU first; only what is right is taken, "
             "with this GPU's figures");
  add_device_options(options, false);
  add_value(options, "jobs,j", "N", "with --verify: compile processes; default: one per CPU");
}

int run_import(Session& session) {
  const std::string name = only_operand(session, "the file that 'vitune db export' wrote, or -");
  const bool verify = session.has("verify");
  if (!verify) session.refuse({"device", "devices", "jobs"}, "goes with --verify");
  const std::string content = read_import(name);
  try {
    Store::in_memory()->import_json(content);  // a file that is refused makes no database
    const auto store = open_to_write(session);
    if (verify) return import_verified(session, content, *store);
    const MergeReport report = store->import_json(content);
    session.console.log(LogLevel::kInfo,
                        "imported winners serve only after 'vitune verify' on this GPU");
    show_merge(session, "db import", report);
    return 0;
  } catch (const Error& error) {
    // These errors are about the export's content, but for --device.
    if (error.code() != ErrorCode::kUsage || !std::string_view(error.what()).starts_with("import:"))
      throw;
    throw Error(ErrorCode::kUsage, "'" + name + "': " + error.what());
  }
}

// Before anything is merged: a name that was mistyped is no damaged file.
void require_other_files(const Session& session, const fs::path& target) {
  if (session.operands.empty()) throw Error(ErrorCode::kUsage, "give the databases to take over");
  std::error_code error;
  for (const std::string& file : session.operands) {
    if (fs::symlink_status(file, error).type() == fs::file_type::not_found) {
      throw Error(ErrorCode::kUsage, formatted("there is no database '{}'", file));
    }
    if (fs::equivalent(target, file, error)) {
      throw Error(ErrorCode::kUsage,
                  formatted("a database cannot be merged into itself; leave out '{}'", file));
    }
  }
}

// The reason why one file cannot be merged; the fault is not the target's.
std::optional<std::string> merge_file(Session& session, Store& target, const std::string& file,
                                      const MakesKernel& makes_kernel, MergeReport& total) {
  std::unique_ptr<Store> other;
  try {
    other = open_store(session, file, Access::kReadOnly);
    other->require_whole();
  } catch (const DatabaseError& error) {
    return error.what();
  }
  const MergeReport report = target.merge(*other, makes_kernel);
  total.trials_added += report.trials_added;
  total.winners_added += report.winners_added;
  total.winners_replaced += report.winners_replaced;
  total.binaries_added += report.binaries_added;
  total.skipped += report.skipped;
  return std::nullopt;
}

int run_merge(Session& session) {
  const auto path = database_path(session);
  if (path) require_other_files(session, *path);
  const auto target = open_to_write(session);
  const MakesKernel makes_kernel = makes_kernel_today();
  MergeReport total;
  ordered_json left_out = ordered_json::array();
  for (const std::string& file : session.operands) {
    if (session.stop) break;
    const auto fault = merge_file(session, *target, file, makes_kernel, total);
    if (!fault) continue;
    left_out.push_back({{"file", file}, {"reason", *fault}});
    session.console.log(LogLevel::kError, formatted("'{}' is left out: {}", file, *fault));
  }
  show_merge(session, "db merge", total,
             {{"files", session.operands.size()}, {"left_out", left_out}});
  if (session.stop) return exit_status(ErrorCode::kInterrupted);
  return left_out.empty() ? 0 : exit_status(ErrorCode::kDatabase);
}

void describe_digest(po::options_description& options) {
  add_switch(options, "results",
             "leave out what differs between two runs that found the same: when it was, and how "
             "long compiling and searching took");
}

int run_digest(Session& session) {
  const auto store = open_existing_store(session, Access::kReadOnly);
  store->require_whole();
  const std::string digest =
      store->content_digest(session.has("results") ? DigestOf::kResults : DigestOf::kAll).hex();
  ordered_json document = new_document("db digest");
  document["digest"] = digest;
  Table table;
  table.column("digest").row({digest});
  session.console.show(table, document, "");
  return 0;
}

}  // namespace

// Imports, merges and lifts write; a place in memory would lose what they bring.
std::unique_ptr<Store> open_to_write(Session& session) {
  const auto path = database_path(session);
  if (!path) {
    throw Error(ErrorCode::kDatabase,
                "no place for a database: set VITUNE_DB or HOME, or name the file with --db");
  }
  return open_store(session, *path, Access::kReadWrite);
}

std::vector<Verb> db_verbs() {
  std::vector<Verb> verbs = {
      {"db stats", "Count what the database holds", "", "", nullptr, run_stats},
      {"db check", "Check the file and the digest of every row; exit code 5 if it is damaged", "",
       "", nullptr, run_check},
      {"db digest", "One digest of the content: equal for databases that hold the same", "", "",
       describe_digest, run_digest},
      {"db export", "Write the database as JSON: integers and figures, no binaries", "[FILE]", "",
       describe_export, run_export},
      {"db import", "Add an export; its winners count as unverified until 'vitune verify'", "FILE",
       "A contribution of somebody else's: 'vitune db import --verify FILE' on a machine with that "
       "kind of GPU.\nExit code 4 if a winner gives a wrong result or cannot be made, 3 without "
       "such a GPU.",
       describe_import, run_import},
      {"db merge", "Take over what other databases have and this has not", "FILE...",
       "In any order, one file or many, with the same result. Exit code 5 if a file was damaged or "
       "cannot be trusted:\nit is named and left out, the others are merged.",
       nullptr, run_merge},
  };
  for (Verb& verb : upkeep_verbs()) verbs.push_back(std::move(verb));
  verbs.push_back(unblock_verb());
  verbs.push_back(rekey_verb());
  for (Verb& verb : pack_verbs()) verbs.push_back(std::move(verb));
  return verbs;
}

}  // namespace vitune
