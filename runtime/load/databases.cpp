// runtime/load/databases.cpp -- Opening, watching and writing the databases.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/databases.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "core/format.h"
#include "db/sqlite.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) || error == std::errc::permission_denied;
}

// What a writer that died has left must be undone by a writer before anybody reads.
bool has_journal(const fs::path& path) {
  struct stat info {};
  return ::stat((path.string() + "-journal").c_str(), &info) == 0 && info.st_size > 0;
}

}  // namespace

Databases::Databases(Places places, LogSink log_sink)
    : places_(std::move(places)), log_sink_(std::move(log_sink)) {
  const std::lock_guard lock(reading_);
  open_layers();
}

void Databases::warn_once(const std::string& what, const std::string& message) {
  {
    const std::lock_guard lock(warning_);
    if (!warned_.insert(what).second) return;
  }
  log(log_sink_, LogLevel::kWarning, message);
}

std::unique_ptr<Store> Databases::open_user() {
  if (!places_.user || !is_there(*places_.user)) return nullptr;
  try {
    if (!places_.read_only && has_journal(*places_.user) &&
        ::access(places_.user->c_str(), W_OK) == 0) {
      Store::open(*places_.user, Access::kReadWrite, log_sink_, places_.patience, nullptr,
                  places_.trust);
    }
    return Store::open(*places_.user, Access::kReadOnly, log_sink_, places_.patience, nullptr,
                       places_.trust);
  } catch (const Error& error) {
    incomplete_ = user_is_lost_ = true;
    warn_once("open", formatted("serving default kernels only: the user's winners and block list "
                                "cannot be read: {}",
                                error.what()));
    return nullptr;
  }
}

std::unique_ptr<Store> Databases::open_shipped() {
  if (!places_.shipped) return nullptr;
  try {
    return Store::open(*places_.shipped, Access::kReadOnly, log_sink_, places_.patience, nullptr,
                       places_.shipped_trust);
  } catch (const Error& error) {
    incomplete_ = true;
    warn_once("shipped", formatted("serving without the shipped winners: {}", error.what()));
    return nullptr;
  }
}

void Databases::note_block_lists() {
  if (layers_->serves_defaults_only()) {
    openings_without_blocks_.fetch_add(1, std::memory_order_relaxed);
    if (!user_is_lost_) {
      warn_once("blocks",
                formatted("serving default kernels only: rows of the block list of {} are "
                          "damaged or lost; {}",
                          places_.user->string(), kSalvageAdvice));
    }
  }
  if (!layers_->shipped_left_out()) return;
  incomplete_ = true;
  warn_once("shipped",
            formatted("serving without the shipped winners: rows of the block list of {} "
                      "are damaged or lost; install vitune again",
                      places_.shipped->string()));
}

// Looks at the files before and after opening them: what is replaced in between counts as changed.
void Databases::open_layers() {
  const State user = look(places_.user, nullptr);
  const State shipped = look(places_.shipped, nullptr);
  incomplete_ = user_is_lost_ = false;
  // What throws leaves databases to read from: none, and no winner.
  layers_.emplace(nullptr, nullptr, true);
  auto opened_user = open_user();
  auto opened_shipped = open_shipped();
  layers_.emplace(std::move(opened_user), std::move(opened_shipped), user_is_lost_);
  note_block_lists();
  compiler_versions_.reset();
  user_state_ = user;
  user_state_.version = look(places_.user, layers_->given_user()).version;
  shipped_state_ = shipped;
  shipped_state_.version = look(places_.shipped, layers_->shipped()).version;
}

Databases::State Databases::look(const std::optional<fs::path>& path, Store* store) const {
  State state;
  struct stat info {};
  if (path && ::stat(path->c_str(), &info) == 0) {
    state.device = info.st_dev;
    state.file = info.st_ino;
  }
  try {
    if (store != nullptr) state.version = store->data_version();
  } catch (const Error&) {
    state.version = -1;  // unlike any number of SQLite's: look again next time
  }
  return state;
}

bool Databases::refresh() {
  const std::lock_guard lock(reading_);
  const bool changed = !(look(places_.user, layers_->given_user()) == user_state_ &&
                         look(places_.shipped, layers_->shipped()) == shipped_state_);
  if (!changed && !incomplete_) return false;
  if (changed) {
    // A fault that is still there after a change is worth saying again.
    const std::lock_guard warning(warning_);
    warned_.clear();
  }
  open_layers();
  return changed || !incomplete_;
}

std::vector<std::string> Databases::compiler_versions() {
  const std::lock_guard lock(reading_);
  if (compiler_versions_) return *compiler_versions_;
  std::vector<std::string> all;
  for (Store* store : {layers_->given_user(), layers_->shipped()}) {
    if (store == nullptr) continue;
    try {
      for (std::string& version : store->compiler_versions()) all.push_back(std::move(version));
    } catch (const Error& error) {
      warn_once("read", formatted("stored kernels are not looked for: {}", error.what()));
    }
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return *(compiler_versions_ = std::move(all));
}

std::optional<std::string> Databases::write(const std::string& what,
                                            const std::function<void(Store&)>& body) {
  if (places_.read_only) return what + " is not kept: the context was made read-only";
  std::string why =
      "neither VITUNE_DB, VITUNE_CACHE_DIR, XDG_CACHE_HOME nor HOME names a place for a database";
  try {
    if (places_.user) {
      const std::lock_guard lock(writing_);
      body(*Store::open(*places_.user, Access::kReadWrite, log_sink_, places_.patience, nullptr,
                        places_.trust));
      return std::nullopt;
    }
  } catch (const std::exception& error) {
    why = error.what();
  }
  std::string sentence = formatted("{} cannot be kept: {}", what, why);
  warn_once(what, sentence);
  return sentence;
}

}  // namespace vitune
