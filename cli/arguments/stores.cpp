// cli/arguments/stores.cpp -- Which failures of opening a database fall back, and which stop the
// command.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/stores.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>

#include "cli/arguments/data_files.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"
#include "db/sqlite.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

// For another process that holds the database's lock.
constexpr std::chrono::seconds kPatience{60};

std::unique_ptr<Store> fall_back_to_memory(Session& session, const std::string& reason) {
  session.console.log(
      LogLevel::kWarning,
      formatted("no database can be kept ({}); results are held in memory and end with "
                "this command. Name a writable file with --db or VITUNE_DB",
                reason));
  return Store::in_memory();
}

bool is_there(const fs::path& path) {
  std::error_code error;
  const bool there = fs::exists(path, error);
  return there || error == std::errc::permission_denied;
}

[[noreturn]] void throw_missing(const fs::path& path) {
  throw Error(ErrorCode::kDatabase,
              formatted("there is no database at {} yet; 'vitune tune' makes one, "
                        "--db names another",
                        path.string()));
}

// The layers that VITUNE_DB names behind the first: never written to.
std::vector<std::unique_ptr<Store>> open_site_stores(Session& session) {
  std::vector<std::unique_ptr<Store>> stores;
  for (const std::string& path : session.environment.site_databases) {
    if (!is_there(path)) {
      session.console.log(LogLevel::kWarning,
                          formatted("VITUNE_DB names {}, which is not there", path));
      stores.push_back(nullptr);
      continue;
    }
    stores.push_back(Store::open(path, Access::kReadOnly, session.console.sink(), {}, &session.stop,
                                 trusted_owners(session)));
  }
  return stores;
}

}  // namespace

// A writer that died leaves a journal whose half transaction must be undone before anybody reads.
// That takes a writer: opening the file for writing does it.
std::unique_ptr<Store> open_store(Session& session, const fs::path& path, Access access) {
  const std::string journal = path.string() + "-journal";
  std::error_code ignored;
  const bool writable = ::access(path.c_str(), W_OK) == 0;
  if (access == Access::kReadOnly && writable && fs::exists(journal, ignored) &&
      fs::file_size(journal, ignored) > 0) {
    Store::open(path, Access::kReadWrite, session.console.sink(), kPatience, &session.stop,
                trusted_owners(session));
  }
  std::optional<std::chrono::milliseconds> patience;
  if (access == Access::kReadWrite) patience = kPatience;
  return Store::open(path, access, session.console.sink(), patience, &session.stop,
                     trusted_owners(session));
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
  Trust trust = trusted_owners(session);
  struct ::stat info {};
  if (::stat(session.program.c_str(), &info) == 0) trust.owners.push_back(info.st_uid);
  return trust;
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
  const bool there = is_there(*path);
  if (!there && access == Access::kReadOnly) {
    if (session.has("db")) throw_missing(*path);
    return Store::in_memory();
  }
  // Only the default place may be replaced silently; a file that exists is data somebody relies on.
  const bool writable = !there || ::access(path->c_str(), W_OK) == 0;
  const bool may_fall_back =
      !session.has("db") && access == Access::kReadWrite && (!there || !writable);
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
  if (!is_there(*path)) throw_missing(*path);
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
  if (data_dir && is_there(shipped_database(*data_dir))) {
    try {
      shipped = Store::open(shipped_database(*data_dir), Access::kReadOnly, session.console.sink(),
                            {}, nullptr, shipped_trust(session));
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
