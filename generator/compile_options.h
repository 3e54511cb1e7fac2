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

}  // namespace vitune
