// core/error.cpp -- Which exit status each error code gives.
// SPDX-License-Identifier: Apache-2.0
#include "core/error.h"

namespace vitune {

int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kFailure:
    case ErrorCode::kNoCompiler:
      return 1;
    case ErrorCode::kUsage:
    case ErrorCode::kUnsupported:
      return 2;
    case ErrorCode::kNoDevice:
      return 3;
    case ErrorCode::kVerification:
      return 4;
    case ErrorCode::kDatabase:
      return 5;
    case ErrorCode::kInterrupted:
      return 130;
  }
  return 1;
}

}  // namespace vitune
