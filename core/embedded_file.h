// core/embedded_file.h -- A file whose text was put into the binary at build time.
#pragma once

#include <string_view>

namespace vitune {

struct EmbeddedFile {
  std::string_view path;  // relative to the embedded folder: "attention/forward_sm80.cuh"
  std::string_view text;
};

}  // namespace vitune
