// generator/compile_options.h -- The fixed table of compiler options.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/compiler.h"

namespace vitune {

// Major and minor version of NVRTC.
struct NvrtcVersion {
  int major = 0;
  int minor = 0;
  auto operator<=>(const NvrtcVersion&) const = default;
};

// The version in Compiler::version()'s text; {0, 0} if it names none.
NvrtcVersion parse_nvrtc_version(std::string_view text);

// The options of one compile. Throws Error(kFailure) unless the architecture is of the form
// "sm_90", "sm_90a" or "sm_100f": it is the only text of a request that enters an option.
std::vector<std::string> compile_options(const CompileRequest& request, NvrtcVersion version);

// kernel_key() by the rule of databases from before 2026-11-28, where comments and layout counted:
// what tells that a row stored then is of a source that is the same now.
Digest text_kernel_key(const CompileRequest& request, std::string_view compiler_version);

// Every key by which a stored row may mean the kernel, kernel_key() first: a winner, a block or a
// timeout that names any of them is the kernel's. Reads the whole text.
std::vector<Digest> keys_of(const CompileRequest& request, std::string_view compiler_version);

}  // namespace vitune
