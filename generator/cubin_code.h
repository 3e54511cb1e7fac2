// generator/cubin_code.h -- What of a cubin runs: the ruler for changes that must change nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "core/digest.h"

namespace vitune {

// SHA-256 over everything of a cubin that a launch can tell: machine code with its registers and
// barriers, constants, shared memory, the tables of .nv.info and the names of the kernels. Names of
// symbols, lines and notes do not count, nor do the initial values of variables that no instruction
// reads. Nothing: this is no well-formed cubin.
std::optional<Digest> code_digest(std::span<const std::byte> image);

}  // namespace vitune
