// generator/compile_options.cpp -- The option table, and the kernel key that covers it.
// SPDX-License-Identifier: Apache-2.0
#include "generator/compile_options.h"

#include <charconv>

#include "core/error.h"
#include "generator/source_tokens.h"

namespace vitune {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_architecture(std::string_view arch) {
  if (!arch.starts_with("sm_")) return false;
  arch.remove_prefix(3);
  if (arch.ends_with('a') || arch.ends_with('f')) arch.remove_suffix(1);
  if (arch.size() < 2 || arch.size() > 3) return false;
  for (const char c : arch) {
    if (!is_digit(c)) return false;
  }
  return true;
}

Digest library_key(const CompileRequest& request) {
  return Sha256()
      .add(std::string_view("vitune library call 1"))
      .add(request.source.digest().hex())
      .add(request.arch)
      .add(request.entry)
      .add(request.library)
      .finish();
}

Digest key_of(std::string_view rule, const Digest& source, const CompileRequest& request,
              std::string_view compiler_version) {
  Sha256 hash;
  hash.add(rule).add(source.hex()).add(request.arch).add(request.entry);
  const auto options = compile_options(request, parse_nvrtc_version(compiler_version));
  hash.add(static_cast<std::int64_t>(options.size()));
  for (const std::string& option : options) hash.add(option);
  return hash.add(compiler_version).finish();
}

}  // namespace

NvrtcVersion parse_nvrtc_version(std::string_view text) {
  constexpr std::string_view kStart = "nvrtc ";
  if (!text.starts_with(kStart)) return {};
  const char* const end = text.data() + text.size();
  NvrtcVersion version;
  const auto major = std::from_chars(text.data() + kStart.size(), end, version.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return {};
  const auto minor = std::from_chars(major.ptr + 1, end, version.minor);
  return minor.ec == std::errc() ? version : NvrtcVersion{};
}

std::vector<std::string> compile_options(const CompileRequest& request, NvrtcVersion version) {
  if (!is_architecture(request.arch)) {
    throw Error(ErrorCode::kFailure, "'" + request.arch +
                                         "' is not an architecture to compile for; expected sm_ "
                                         "and a number, such as sm_90 or sm_90a");
  }
  std::vector<std::string> options = {
      "--gpu-architecture=" + request.arch,
      version < NvrtcVersion{12, 0} ? "--std=c++17" : "--std=c++20",
      "--fmad=true",
      // Templates use constexpr functions without __device__ before them.
      "-default-device",
      // Headers come from memory; the directory of the "source file" is not to be searched.
      "--no-source-include",
      // Registers, spills and shared memory, read from the log.
      "--ptxas-options=-v",
  };
  // From 12.9 on NVRTC keeps cubins in the driver's compute cache: a damaged one would end up in
  // ours.
  if (version >= NvrtcVersion{12, 9}) options.emplace_back("--no-cache");
  if (request.line_info) options.emplace_back("-lineinfo");
  return options;
}

std::string made_by(const CompileRequest& request, std::string_view compiler_version) {
  return request.library.empty() ? std::string(compiler_version) : request.library;
}

Digest kernel_key(const CompileRequest& request, std::string_view compiler_version) {
  if (!request.library.empty()) return library_key(request);
  // A profiler's kernel says which line each instruction comes from, so that layout counts.
  const Digest source = request.line_info ? request.source.digest() : token_digest(request.source);
  return key_of("vitune kernel 2", source, request, compiler_version);
}

Digest text_kernel_key(const CompileRequest& request, std::string_view compiler_version) {
  if (!request.library.empty()) return library_key(request);
  return key_of("vitune kernel 1", request.source.digest(), request, compiler_version);
}

std::vector<Digest> keys_of(const CompileRequest& request, std::string_view compiler_version) {
  if (!request.library.empty()) return {library_key(request)};
  return {kernel_key(request, compiler_version), text_kernel_key(request, compiler_version)};
}

}  // namespace vitune
