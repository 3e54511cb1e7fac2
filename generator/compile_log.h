// generator/compile_log.h -- What the log of `--ptxas-options=-v` says of a kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/compile_facts.h"

namespace vitune {

inline constexpr std::size_t kMaxCompileLog = 4 << 10;

// The most registers, spills and static shared memory that a kernel of the log has, the
// functions it calls included; compile_ms is 0. Nothing if the log does not speak of the kernel
// `entry`, or says of a kernel no registers.
std::optional<CompileFacts> parse_compile_log(std::string_view log, std::string_view entry);

// The first kMaxCompileLog bytes at most, cut between lines, with a last line that says how much is
// missing.
std::string bounded_log(std::string_view log);

// The line of a failed compile's log that says why: the first error of the compiler or assembler,
// else the first line with a word; "no message" if there is none.
std::string decisive_line(std::string_view log);

}  // namespace vitune
