// core/error.h -- The one exception type of the project and its codes.
//
// Expected outcomes (a cache miss, a pruned candidate) are enums or optionals; an Error means that
// a request could not be carried out. Its text says what was tried, on what, and what to do next.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace vitune {

enum class ErrorCode {
  kFailure,       // anything without a code of its own
  kUsage,         // a malformed argument, problem text or file given by the user
  kUnsupported,   // well formed, but outside what the kernels do
  kNoDevice,      // no usable GPU or driver
  kVerification,  // a kernel gave a wrong result
  kDatabase,      // locked, damaged, foreign or of a newer schema
  kInterrupted,   // SIGINT or SIGTERM; results so far are saved
  kNoCompiler,    // libnvrtc cannot be opened
};

// The exit status of the command for an error of this code (see docs/environment.md).
int exit_status(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& what) : std::runtime_error(what), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace vitune
