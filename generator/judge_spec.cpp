// generator/judge_spec.cpp -- Element types as the judge's kernels number them.
// SPDX-License-Identifier: Apache-2.0
#include "generator/judge_spec.h"

#include "templates/reference/support_params.cuh"

namespace vitune {

int judge_type(ElementType type) {
  if (type == ElementType::kFp16) return kSupportFp16;
  return type == ElementType::kBf16 ? kSupportBf16 : kSupportFp32;
}

}  // namespace vitune
