// runtime/load/databases.cpp -- Opening, watching and writing the databases.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/databases.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "core/error.h"
#include "core/format.h"
#include "db/file_guard.h"
#include "db/sqlite.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

// A writer must undo the journal of a dead one before anybody reads.
bool has_journal(const fs::path& path) { return !is_absent(path.string() + "-journal"); }

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
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
  if (!places_.user || is_absent(*places_.user)) return nullptr;
  try {
    if (!places_.read_only && has_journal(*places_.user) &&
        ::access(places_.user->c_str(), W_OK) == 0) {
      Store::open(*places_.user, Access::kReadWrite, log_sink_, places_.patience, nullptr,
                  places_.trust);
    }
    return Store::open(*places_.user, Access::kReadOnly, log_sink_, places_.patience, nullptr,
                       places_.trust);
  } catch (const Error& error) {
    note_lost("the user's", error.what());
    return nullptr;
  }
}

// Never written to, not even to undo what a writer that died has left.
std::unique_ptr<Store> Databases::open_site(const fs::path& path) {
  if (is_absent(path)) {
    warn_once("missing " + path.string(),
              formatted("VITUNE_DB names {}, which is not there or empty; it is read once it holds "
                        "something",
                        path.string()));
    return nullptr;
  }
  try {
    return Store::open(path, Access::kReadOnly, log_sink_, places_.patience, nullptr,
                       places_.trust);
  } catch (const Error& error) {
    note_lost("the site's", error.what());
    return nullptr;
  }
}

// Kernels on a block list that cannot be read must not run.
void Databases::note_lost(const std::string& whose, const std::string& why) {
  incomplete_ = list_is_lost_ = true;
  warn_once("open " + whose, formatted("serving default kernels only: {} winners and block list "
                                       "cannot be read: {}",
                                       whose, why));
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
    if (!list_is_lost_) {
      warn_once("blocks",
                formatted("serving default kernels only: rows of the block list of {} are "
                          "damaged or lost; {}",
                          layers_->damaged_list().string(), kSalvageAdvice));
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
  std::vector<State> states = look();
  incomplete_ = list_is_lost_ = false;
  // An exception leaves databases to read from: none, and no winner.
  layers_.emplace(nullptr, nullptr, true);
  auto user = open_user();
  std::vector<std::unique_ptr<Store>> sites;
  for (const fs::path& path : places_.sites) sites.push_back(open_site(path));
  auto shipped = open_shipped();
  try {
    // Apart from layers_, which is read from even if this throws.
    LayeredStore found(std::move(user), std::move(shipped), list_is_lost_, std::move(sites));
    layers_.emplace(std::move(found));
  } catch (const Error& error) {  // a list that could be opened, and not read
    note_lost("the user's or the site's", error.what());
  }
  note_block_lists();
  compiler_versions_.reset();
  look_at_commits(states);
  states_ = std::move(states);
}

std::vector<Databases::State> Databases::look() const {
  const auto state_of = [](const std::optional<fs::path>& path) {
    struct stat info {};
    if (!path) return State();
    if (::stat(path->c_str(), &info) != 0) return State{0, 0, errno};
    return State{info.st_dev, info.st_ino, 0, info.st_size, nanoseconds(info.st_mtim)};
  };
  std::vector<State> states{state_of(places_.user)};
  for (const fs::path& path : places_.sites) states.push_back(state_of(path));
  states.push_back(state_of(places_.shipped));
  return states;
}

// Looks for commits to the files that are open.
void Databases::look_at_commits(std::vector<State>& states) {
  const auto version_of = [](Store& store) -> std::int64_t {
    try {
      return store.data_version();
    } catch (const Error&) {
      return -1;  // unlike any number of SQLite's: look again next time
    }
  };
  if (Store* user = layers_->given_user()) states.front().version = version_of(*user);
  for (const LayeredStore::Lower& lower : layers_->lower()) {
    const auto place = static_cast<std::size_t>(lower.layer);  // the user's is 0
    State& state = lower.layer == Layer::kShipped ? states.back() : states[place];
    state.version = version_of(*lower.store);
  }
}

bool Databases::refresh() {
  const std::lock_guard lock(reading_);
  std::vector<State> now = look();
  look_at_commits(now);
  const bool changed = now != states_;
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
  compiler_versions_ = layers_->compiler_versions([this](const Error& error) {
    warn_once("read", formatted("stored kernels are not looked for: {}", error.what()));
  });
  return *compiler_versions_;
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
