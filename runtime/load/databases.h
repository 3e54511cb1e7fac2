// runtime/load/databases.h -- The user's database and the read-only layers below it, as the library
// uses them.
//
// A database may only help: one that cannot be opened, read or written is one warning, and the
// library goes on without it; one of the user's or the site's that is there and cannot be read, or
// that cannot even be looked at, takes its block list along, so that default kernels are all that
// is served until it can be. An empty file is none.
// Reading is for one thread at a time (see read()); writing opens a connection of its own, waits
// Places::patience for a lock and closes it again, so that no lock is held between calls.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/log.h"
#include "db/store.h"

namespace vitune {

class Databases {
 public:
  struct Places {
    std::optional<std::filesystem::path> user;     // nothing: no directory is usable
    std::optional<std::filesystem::path> shipped;  // nothing: no such layer
    bool read_only = false;
    // A serving process must not stand still because another one writes.
    std::chrono::milliseconds patience{250};
    Trust trust{};                               // of the user's database and the site's
    Trust shipped_trust{};                       // of the shipped one
    std::vector<std::filesystem::path> sites{};  // read-only, between the two, the first first
  };
  // Opens what is there. Does not throw because of a database.
  Databases(Places places, LogSink log_sink);

  // Calls `body` with the layers, no other reader running meanwhile.
  template <typename Body>
  auto read(Body&& body) {
    const std::lock_guard lock(reading_);
    return std::forward<Body>(body)(*layers_);
  }

  // Calls `body` with the user's database, opened for writing. Gives why it may not or cannot be
  // written, after one warning for each kind of work (`what`); nothing: it is done.
  std::optional<std::string> write(const std::string& what,
                                   const std::function<void(Store&)>& body);
  bool read_only() const { return places_.read_only; }
  // The file that write() writes to; nothing if there is none.
  std::optional<std::filesystem::path> written() const {
    return places_.read_only ? std::nullopt : places_.user;
  }

  // Opens anew what was created, replaced or written to since the last look, or could not be opened
  // then; true if there is something new to read.
  bool refresh();

  // How often the databases were opened without a block list that is known to be whole.
  std::uint64_t openings_without_blocks() const {
    return openings_without_blocks_.load(std::memory_order_relaxed);
  }

  // The compilers that stored kernels were made with.
  std::vector<std::string> compiler_versions();

 private:
  // Which file it is and what was committed to it. Size and time tell of commits where a file
  // system has no locks, and the file that is open cannot.
  struct State {
    dev_t device = 0;
    ino_t file = 0;  // 0: there is none, or it cannot be looked at
    int error = 0;   // errno: why not
    off_t bytes = 0;
    std::int64_t written = 0;  // when, in nanoseconds
    std::int64_t version = 0;
    bool operator==(const State&) const = default;
  };

  std::unique_ptr<Store> open_user();
  std::unique_ptr<Store> open_site(const std::filesystem::path& path);
  std::unique_ptr<Store> open_shipped();
  void open_layers();
  void note_lost(const std::string& whose, const std::string& why);
  void note_block_lists();
  // The state of the files in the order of reading, whether or not they are there.
  std::vector<State> look() const;
  void look_at_commits(std::vector<State>& states);
  void warn_once(const std::string& what, const std::string& message);

  const Places places_;
  const LogSink log_sink_;
  std::mutex reading_;  // guards what follows
  std::optional<LayeredStore> layers_;
  std::vector<State> states_;  // when they were opened
  bool incomplete_ = false;    // a layer that is there could not be opened
  bool list_is_lost_ = false;  // it is the user's or a site's
  std::atomic<std::uint64_t> openings_without_blocks_{0};
  std::optional<std::vector<std::string>> compiler_versions_;
  std::mutex writing_;  // one writer of this process at a time
  std::mutex warning_;  // guards warned_
  std::set<std::string> warned_;
};

}  // namespace vitune
