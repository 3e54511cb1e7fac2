// core/embedded_file.h -- A file whose text was put into the binary at build time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace vitune {

struct EmbeddedFile {
  std::string_view path;  // relative to the embedded folder: "attention/forward_sm80.cuh"
  std::string_view text;
  std::span<const std::string_view> includes =
      {};  // what its `#include "..."` lines name, in order
};

}  // namespace vitune
