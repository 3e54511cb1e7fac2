// cli/verbs/made_today.h -- Which stored winners have a kernel that this version's templates make.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "db/store.h"

namespace vitune {

// Holds for a winner whose kernel key is that of its config today, by the compiler that it was made
// with: no compiler is needed, and a machine without one decides alike. Others are not served.
// Remembers each answer.
MakesKernel makes_kernel_today();

}  // namespace vitune
