// cli/verbs/cmd_db_upkeep.cpp -- vitune db prune, salvage: first what they would do.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/cmd_db_upkeep.h"

#include "cli/arguments/options.h"
#include "cli/arguments/stores.h"
#include "cli/output/counts.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"
#include "db/file_guard.h"
#include "db/replace_file.h"
#include "db/sqlite.h"

namespace vitune {
namespace {

namespace po = boost::program_options;

void describe_prune(po::options_description& options) {
  add_value(options, "keep", "N",
            "trials to keep of each problem that has a winner, the best first", "20");
  add_switch(options, "yes", "delete them; without it they are only counted");
}

int run_prune(Session& session) {
  const std::int64_t keep = parse_integer(session.text("keep"), 0, 1'000'000'000, "--keep");
  if (session.has("yes")) {
    const std::int64_t deleted = open_existing_store(session, Access::kReadWrite)->prune(keep);
    show_counts(session, "db prune", {{"rows_deleted", deleted}});
    return 0;
  }
  const PruneReport report = open_existing_store(session, Access::kReadOnly)->prunable(keep);
  const std::int64_t rows = report.trials + report.kernels;
  show_counts(session, "db prune",
              {{"trials_to_delete", report.trials},
               {"kernels_to_delete", report.kernels},
               {"rows_deleted", 0}});
  session.console.log(LogLevel::kInfo,
                      rows == 0 ? "nothing is to be deleted"
                                : formatted("nothing was deleted: 'vitune db prune --keep {} "
                                            "--yes' deletes {} rows of {}",
                                            keep, rows, database_path(session)->string()));
  return 0;
}

// Reads every row; Store::salvage() decides about a file that cannot be read so.
bool is_sound(Session& session) {
  try {
    const CheckReport report = open_existing_store(session, Access::kReadOnly)->check();
    return report.integrity_ok && report.bad_rows == 0;
  } catch (const DatabaseError&) {
    return false;
  }
}

int run_salvage(Session& session) {
  const auto path = database_path(session);
  if (!path || is_absent(*path)) {
    throw Error(ErrorCode::kDatabase,
                formatted("there is no database{} to salvage; name it with --db",
                          path ? " at " + path->string() : ""));
  }
  if (is_sound(session)) {
    remove_dead_salvages(resolve_database_path(*path, false));  // it died at its last steps
    show_counts(session, "db salvage", {{"rows_saved", 0}});
    session.console.log(LogLevel::kInfo,
                        formatted("nothing is damaged: {} is left as it is", path->string()));
    return 0;
  }
  session.console.log(
      LogLevel::kInfo,
      formatted(
          "the sound rows of {} go into a new file in its place; the old one is kept beside it",
          path->string()));
  show_counts(session, "db salvage",
              {{"rows_saved", Store::salvage(*path, session.console.sink())}});
  return 0;
}

}  // namespace

std::vector<Verb> upkeep_verbs() {
  return {
      {"db prune", "Delete trials and binaries that are no longer needed", "",
       "Without --yes it only says how many rows would go.", describe_prune, run_prune},
      {"db salvage", "Copy every sound row of a damaged database into a new one", "",
       "A database without damage is left as it is.", nullptr, run_salvage},
  };
}

}  // namespace vitune
