// generator/nvrtc_api.h -- The functions of NVRTC that are used, as pointers filled in by dlopen.
//
// Declared after the NVRTC API reference, so that nothing here needs CUDA headers;
// tests/generator/compiler_test.cpp compares them with the toolkit's header where that is
// installed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace vitune {

struct NvrtcApi {
  using Program = struct NvrtcProgramTag*;
  using Strings = const char* const*;
  static constexpr int kSuccess = 0;

  int (*version)(int* major, int* minor) = nullptr;
  int (*create_program)(Program*, const char* source, const char* name, int header_count,
                        Strings headers, Strings include_names) = nullptr;
  int (*destroy_program)(Program*) = nullptr;
  int (*compile_program)(Program, int option_count, Strings options) = nullptr;
  int (*cubin_size)(Program, std::size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;
  int (*log_size)(Program, std::size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  const char* (*error_string)(int) = nullptr;
};

}  // namespace vitune
