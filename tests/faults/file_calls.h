// tests/faults/file_calls.h -- What libvitune_file_calls.so, preloaded into a process, counts,
// fails and records: the language between it and the engines.
//
// It is told by environment variables: FAULTS_FOLDER (only calls on what lies below it count),
// FAULTS_STATE (a file of sizeof(State), shared), FAULTS_LOG (where to record the calls; optional),
// FAULTS_AT (the call to spoil, counted from 1; 0: none), FAULTS_KIND, FAULTS_FOR_EVER.
// FAULTS_ONLY: the name of the one kind of call that is spoilt, whatever else can befall.
// FAULTS_PLAIN: the file system can neither exchange two names nor make a file without one, as NFS.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>

namespace vitune::faults {

enum class Call : std::uint8_t {
  kOpen,
  kRead,
  kWrite,
  kSync,
  kTruncate,
  kClose,
  kRename,
  kExchange,
  kLink,
  kUnlink,
  kMakeFolder,
  kLock,
  kLook,    // stat, access, readlink and the like
  kChange,  // of mode or owner
};
inline constexpr const char* kCallNames[] = {"open",  "read",   "write",    "sync",  "truncate",
                                             "close", "rename", "exchange", "link",  "unlink",
                                             "mkdir", "lock",   "look",     "change"};

// FAULTS_KIND: an errno, or one of these.
enum Kind : int {
  kKillBefore = -1,
  kKillAfter = -2,
  kKillHalfway = -3,  // of a write
  kShort = -4,        // half of a read or a write
};

// True if such a fault can befall such a call; others pass until one comes that it can.
constexpr bool can_befall(Call call, int kind, bool creates) {
  const bool grows = call == Call::kWrite || call == Call::kRename || call == Call::kExchange ||
                     call == Call::kLink || call == Call::kMakeFolder || call == Call::kSync ||
                     (call == Call::kOpen && creates);
  switch (kind) {
    case kKillHalfway:
      return call == Call::kWrite;
    case kShort:
      return call == Call::kRead || call == Call::kWrite;
    case ENOSPC:
      return grows;
    case EINTR:
      return call == Call::kOpen || call == Call::kRead || call == Call::kWrite ||
             call == Call::kClose || call == Call::kSync;
    case ENOLCK:
      return call == Call::kLock;
    case EMFILE:
      return call == Call::kOpen;
    case EACCES:
      // For a lock it means that another has it: a writer waits for a minute.
      return call != Call::kLock && call != Call::kRead && call != Call::kWrite &&
             call != Call::kSync && call != Call::kClose && call != Call::kTruncate;
    default:
      return true;
  }
}

// Shared with the process; it survives a kill.
struct State {
  std::uint32_t calls;   // so far
  std::uint32_t spoilt;  // how many of them
  std::uint32_t first;   // the number of the first spoilt one
  std::uint32_t what;    // its Call
};

// One record of the log; `path`, `to` and `data` bytes follow. The n-th record is the n-th call.
struct Logged {
  Call call;
  bool failed;         // by itself: nothing was done
  bool created;        // an open that made the file
  bool truncated;      // an open that emptied it
  std::uint16_t path;  // lengths
  std::uint16_t to;
  std::uint64_t inode;
  std::uint64_t offset;  // of a write; the new size of a truncation
  std::uint64_t data;
};

}  // namespace vitune::faults
