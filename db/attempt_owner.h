// db/attempt_owner.h -- Whose an open attempt is, and whether that process is still at work.
//
// The column `started` of an attempt holds the second it began in its low 34 bits and above them
// the process that began it; 0 there, as older versions wrote it, is a process that is gone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vitune {

struct AttemptOwner {
  std::int64_t pid = 0;      // 0: not known
  std::int64_t started = 0;  // seconds since 1970
};

std::int64_t packed(const AttemptOwner& owner);
AttemptOwner unpacked_owner(std::int64_t column);

// True if that process lives: one of its number is there that was so when the attempt began. A
// process of another machine or container that shares the file counts as gone.
bool is_alive(const AttemptOwner& owner);

}  // namespace vitune
