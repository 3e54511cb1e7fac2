// generator/compiler.h -- Source to cubin with NVRTC, opened with dlopen.
//
// compile() runs NVRTC in this process and cannot be cancelled: it belongs in a compile worker
// (generator/compile_pool). Options come from a fixed table; no string from outside reaches them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/compile_facts.h"
#include "core/digest.h"
#include "core/env.h"
#include "generator/source.h"

namespace vitune {

enum class CompileStatus { kOk, kError, kTimeout, kCrash };

struct CompileRequest {
  Source source;
  std::string arch;        // "sm_90"; "sm_90a" for arch-specific instructions
  std::string entry;       // name of an extern "C" kernel
  bool line_info = false;  // -lineinfo, for profilers
  // "cuBLASLt 13.1.1": a config without kernels, whose plan only calls this library. There is
  // nothing to compile; the source says what is called.
  std::string library = {};
};

struct CompileResult {
  CompileStatus status = CompileStatus::kError;
  CompileFacts facts;  // shared_bytes: static only
  std::vector<std::byte> cubin;
  std::string log;  // the compiler's own words, at most 4 KiB
};

struct NvrtcApi;

// NVRTC of the toolkit, the distribution, or PyPI's nvidia-cuda-nvrtc package. Stays loaded until
// the process ends.
class Compiler {
 public:
  // Looks for libnvrtc (11.2 or newer) in: CUDA_HOME/lib64, the loader's path, /usr/local/cuda, the
  // distribution's directories, the site-packages of python3 on PATH. Throws Error(kNoCompiler)
  // naming what was tried.
  static std::shared_ptr<const Compiler> open(const Environment& environment);
  // The same in the given directories only; "" stands for the loader's path.
  static std::shared_ptr<const Compiler> open_in(const std::vector<std::string>& directories);
  ~Compiler();

  // "nvrtc 13.0 " + 12 hexadecimal digits of the SHA-256 over the build identities of libnvrtc and
  // of its builtins library (library_identity() in generator/nvrtc_location).
  const std::string& version() const { return version_; }
  const std::string& path() const { return path_; }
  // kOk or kError. Throws Error(kFailure) for an architecture or entry name that is not of the form
  // documented above.
  CompileResult compile(const CompileRequest& request) const;

 private:
  Compiler() = default;

  std::unique_ptr<NvrtcApi> api_;
  std::string version_;
  std::string path_;
};

// The maker of the request's kernels: the compiler of that version, or its library.
std::string made_by(const CompileRequest& request, std::string_view compiler_version);

// SHA-256 over the tokens of the source with its include closure, the options, the architecture and
// the compiler's version, or the library's: decides whether a stored kernel may run.
Digest kernel_key(const CompileRequest& request, std::string_view compiler_version);

// True if `image` is a well-formed 64-bit CUDA ELF whose tables lie inside it. The driver is given
// no length, so nothing else may be loaded.
bool cubin_is_well_formed(std::span<const std::byte> image);

}  // namespace vitune
