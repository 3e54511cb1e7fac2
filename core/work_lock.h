// core/work_lock.h -- One of all processes and threads does a piece of work: a byte of a lock file.
//
// The file lies beside the database that the work's result goes to. It stays empty, its content is
// never read, and it is never deleted: who deletes it could not know that nobody is about to lock
// it. A piece of work is the byte at an offset taken from its digest, so that one file serves any
// number of them. The lock is an open-file-description lock: threads exclude each other too, and
// the kernel frees it when its holder dies, so that nothing is ever stale.
//
// A lock may only help: where none can be had, the work is done alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>

#include "core/digest.h"
#include "core/unique_fd.h"

namespace vitune {

enum class Turn {
  kMine,   // until the lock goes
  kBusy,   // somebody else is at it
  kAlone,  // there can be no lock; WorkLock::fault() says why
};

// For one thread at a time.
class WorkLock {
 public:
  // Locks nothing: always kAlone.
  WorkLock() = default;
  // For `work`, with the lock file `file`, which is made (mode 0600) if it is not there. Takes no
  // lock yet. A file that is not a regular one of this user's alone is not used.
  WorkLock(const std::filesystem::path& file, const Digest& work);
  // Frees the lock.
  ~WorkLock();
  WorkLock(WorkLock&&) = default;
  WorkLock& operator=(WorkLock&&) = delete;

  // Takes the lock unless somebody has it.
  Turn try_now();
  // The same, again and again until `patience` is over or `stop` (null: nothing) is true.
  Turn wait(std::chrono::milliseconds patience, const std::atomic<bool>* stop = nullptr);

  // Why there can be no lock; empty if nothing speaks against one.
  const std::string& fault() const { return fault_; }

 private:
  UniqueFd file_;
  std::int64_t offset_ = 0;
  std::string fault_;
};

// The lock file of a database: `<database>.lock`.
std::filesystem::path work_lock_file(const std::filesystem::path& database);

}  // namespace vitune
