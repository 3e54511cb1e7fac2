// generator/compile_protocol.h -- What the compile pool and its workers say to each other.
//
// One frame (core/frame) per message; the payload is one flat CBOR map (RFC 8949). A worker says
// hello once, then answers each job with a result of the same frame id. Templates never travel: the
// worker assembles the source from its own embedded copy and the digest tells whether it is the
// same.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/digest.h"
#include "generator/compiler.h"

namespace vitune {

inline constexpr int kCompileProtocol = 1;
inline constexpr std::uint32_t kCompileHello = 1, kCompileJob = 2,
                               kCompileReply = 3;  // Frame::type

struct CompileHello {
  int protocol = kCompileProtocol;
  std::string compiler_version;  // empty if there is no compiler
  std::string problem;           // why there is none
};

struct CompileJob {
  std::string main;
  Digest source;  // of the assembled source
  std::string arch;
  std::string entry;
  bool line_info = false;
  std::chrono::milliseconds deadline{0};
};

std::string encode(const CompileHello& hello);
std::string encode(const CompileJob& job);
std::string encode(const CompileResult& result);

// Nothing for a payload that is not exactly such a message.
std::optional<CompileHello> decode_compile_hello(std::string_view payload);
std::optional<CompileJob> decode_job(std::string_view payload);
// A result of kOk holds a well-formed cubin.
std::optional<CompileResult> decode_result(std::string_view payload);

}  // namespace vitune
