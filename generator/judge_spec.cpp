// generator/judge_spec.cpp -- Element types as the judge's kernels number them.
// SPDX-License-Identifier: Apache-2.0
#include "generator/judge_spec.h"

#include "core/error.h"
#include "templates/reference/support_params.cuh"

namespace vitune {

int judge_type(ElementType type) {
  switch (type) {
    case ElementType::kFp16:
      return kSupportFp16;
    case ElementType::kBf16:
      return kSupportBf16;
    case ElementType::kFp32:
      return kSupportFp32;
    case ElementType::kU8:
      return kSupportU8;
    case ElementType::kI32:
      throw Error(ErrorCode::kFailure, "whole numbers are not drawn or compared");
    case ElementType::kBool:
      break;
  }
  return kSupportBool;
}

}  // namespace vitune
