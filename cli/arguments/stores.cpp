// cli/arguments/stores.cpp -- Which failures of opening a database fall back, and which stop the
// command.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/stores.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "cli/arguments/data_files.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"
#include "db/file_guard.h"
#include "db/sqlite.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

// For another process that holds the database's lock. A person who reads waits rather than asks
// again; the library, which must not stand still, does not.
constexpr std::chrono::seconds kWriterPatience{60};
constexpr std::chrono::seconds kReaderPatience{10};

std::unique_ptr<Store> fall_back_to_memory(Session& session, const std::string& reason) {
  session.console.log(
      LogLevel::kWarning,
      formatted("no database can be kept ({}); results are held in memory and end with "
                "this command. Name a writable file with --db or VITUNE_DB",
                reason));
  return Store::in_memory();
}

[[noreturn]] void throw_missing(const fs::path& path) {
  std::error_code ignored;
  throw Error(ErrorCode::kDatabase,
              formatted("there is no database at {} yet{}; 'vitune tune' makes one, --db names "
                        "another",
                        path.string(), fs::exists(path, ignored) ? " (the file is empty)" : ""));
}

// The layers that VITUNE_DB names behind the first: never written to.
std::vector<std::unique_ptr<Store>> open_site_stores(Session& session) {
  std::vector<std::unique_ptr<Store>> stores;
  for (const std::string& path : session.environment.site_databases) {
    if (is_absent(path)) {
      session.console.log(LogLevel::kWarning,
                          formatted("VITUNE_DB names {}, which is not there or empty", path));
      stores.push_back(nullptr);
      continue;
    }
    stores.push_back(open_to_read(session, path, trusted_owners(session), session.console.sink()));
  }
  return stores;
}

}  // namespace

std::unique_ptr<Store> open_to_read(const Session& session, const fs::path& path,
                                    const Trust& trust, const LogSink& log_sink) {
  return Store::open(path, Access::kReadOnly, log_sink, kReaderPatience, &session.stop, trust);
}

// A writer that died leaves a journal whose half transaction must be undone before anybody reads.
// That takes a writer: opening the file for writing does it.
std::unique_ptr<Store> open_store(Session& session, const fs::path& path, Access access) {
  const LogSink log_sink = session.console.sink();
  const Trust trust = trusted_owners(session);
  const auto open_to_write = [&] {
    return Store::open(path, Access::kReadWrite, log_sink, kWriterPatience, &session.stop, trust);
  };
  if (access == Access::kReadWrite) return open_to_write();
  const bool writable = ::access(path.c_str(), W_OK) == 0;
  if (writable && !is_absent(path.string() + "-journal")) open_to_write();
  return open_to_read(session, path, trust, log_sink);
}

Trust trusted_owners(const Session& session) {
  Trust trust;
  if (session.has("trust-owner")) {
    trust.owners.push_back(static_cast<uid_t>(
        parse_integer(session.text("trust-owner"), 0, 4'294'967'294, "--trust-owner")));
  }
  return trust;
}

Trust shipped_trust(const Session& session) {
  return trust_of_shipped(session.program, trusted_owners(session));
}

std::optional<fs::path> database_path(const Session& session) {
  if (session.has("db")) return session.text("db");
  if (const auto path = default_database_path(session.environment)) return *path;
  return std::nullopt;
}

std::unique_ptr<Store> open_user_store(Session& session, Access access) {
  const auto path = database_path(session);
  if (!path) {
    if (access == Access::kReadOnly) return Store::in_memory();
    return fall_back_to_memory(
        session, "neither VITUNE_DB, VITUNE_CACHE_DIR, XDG_CACHE_HOME nor HOME names a place");
  }
  const bool absent = is_absent(*path);
  if (absent && access == Access::kReadOnly) {
    if (session.has("db")) throw_missing(*path);
    return Store::in_memory();
  }
  // Only the default place may be replaced silently; a file that exists is data somebody relies on,
  // and so is one that an error keeps from being looked at.
  const bool is_closed =
      ::access(path->c_str(), W_OK) != 0 && (errno == EACCES || errno == EPERM || errno == EROFS);
  const bool may_fall_back =
      !session.has("db") && access == Access::kReadWrite && (absent || is_closed);
  try {
    return open_store(session, *path, access);
  } catch (const Error& error) {
    if (!may_fall_back) throw;
    return fall_back_to_memory(session, error.what());
  }
}

std::unique_ptr<Store> open_existing_store(Session& session, Access access) {
  const auto path = database_path(session);
  if (!path) {
    throw Error(ErrorCode::kDatabase,
                "no place for a database: set VITUNE_DB or HOME, or name the file with --db");
  }
  if (is_absent(*path)) throw_missing(*path);
  return open_store(session, *path, access);
}

LayeredStore open_layered_store(Session& session, Access access) {
  return layered_store_over(session, open_user_store(session, access));
}

std::vector<Config> stored_configs(Session& session, const Problem& problem) {
  LayeredStore layers = open_layered_store(session, Access::kReadOnly);
  std::vector<Store*> stores = {&layers.user()};
  for (const LayeredStore::Lower& lower : layers.lower()) stores.push_back(lower.store.get());
  const ProblemKey key{problem.operator_name(), problem.text()};
  std::vector<Config> configs;
  for (Store* const store : stores) {
    for (const DeviceInfo& device : store->devices()) {
      for (const Trial& trial : store->trials(device, key)) configs.push_back(trial.config);
      for (const Objective objective : {Objective::kCold, Objective::kWarm}) {
        const auto winner = store->find_winner(device, key, objective);
        if (!winner) continue;
        configs.push_back(winner->config);
        if (winner->runner_up) configs.push_back(*winner->runner_up);
      }
    }
  }
  return configs;
}

LayeredStore layered_store_over(Session& session, std::unique_ptr<Store> user) {
  std::vector<std::unique_ptr<Store>> sites = open_site_stores(session);
  std::unique_ptr<Store> shipped;
  const auto data_dir = find_data_dir(session);
  if (data_dir && !is_absent(shipped_database(*data_dir))) {
    try {
      shipped = open_to_read(session, shipped_database(*data_dir), shipped_trust(session),
                             session.console.sink());
    } catch (const Error& error) {
      session.console.log(LogLevel::kWarning,
                          formatted("the shipped winners are left out: {}", error.what()));
    }
  }
  LayeredStore layers(std::move(user), std::move(shipped), false, std::move(sites));
  if (layers.serves_defaults_only()) {
    session.console.log(LogLevel::kWarning,
                        formatted("the block list of {} is damaged, so winners are not used; {}",
                                  layers.damaged_list().string(), kSalvageAdvice));
  }
  if (layers.shipped_left_out()) {
    session.console.log(LogLevel::kWarning,
                        "the shipped winners are left out: their block list is damaged; install "
                        "vitune again");
  }
  return layers;
}

}  // namespace vitune
