// generator/launch_plan.cpp -- Plans of other problems as parts of a call's.
// SPDX-License-Identifier: Apache-2.0
#include "generator/launch_plan.h"

#include <algorithm>

#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

// Where `tensor` of a part lies in the call.
TensorPlace place_of(const SubPlan& part, int tensor, std::int64_t scratch_at) {
  if (tensor == PointerSlot::kScratch) return {PointerSlot::kScratch, scratch_at};
  if (tensor >= 0 && static_cast<std::size_t>(tensor) < part.tensors.size()) {
    return part.tensors[static_cast<std::size_t>(tensor)];
  }
  throw Error(ErrorCode::kFailure,
              formatted("a part of a plan uses tensor {}, of which the plan does not say where it "
                        "lies ({} are given)",
                        tensor, part.tensors.size()));
}

template <class Slot>
void move_to(Slot& slot, const TensorPlace& place) {
  slot.tensor = place.tensor;
  slot.offset += place.offset;
}

}  // namespace

void append(LaunchPlan& plan, const SubPlan& part, std::int64_t scratch_at) {
  if (scratch_at < 0 || scratch_at % kScratchUnit != 0) {
    throw Error(ErrorCode::kFailure,
                formatted("the scratch memory of a part begins at {}, which is no multiple of {}",
                          scratch_at, kScratchUnit));
  }
  std::vector<MatmulCall> matmuls = part.plan.matmuls;
  for (MatmulCall& call : matmuls) {
    call.before += plan.kernels.size();
    call.workspace_at += scratch_at;
    for (MatrixSlot* slot : {&call.a, &call.b, &call.d}) {
      move_to(*slot, place_of(part, slot->tensor, scratch_at));
    }
    for (std::optional<MatrixSlot>* slot : {&call.c, &call.bias, &call.b_sums}) {
      if (*slot) move_to(**slot, place_of(part, (*slot)->tensor, scratch_at));
    }
  }
  plan.matmuls.insert(plan.matmuls.end(), matmuls.begin(), matmuls.end());
  std::vector<KernelLaunch> kernels = part.plan.kernels;
  for (KernelLaunch& launch : kernels) {
    launch.kernel += part.first_kernel;
    for (PointerSlot& slot : launch.pointers) {
      move_to(slot, place_of(part, slot.tensor, scratch_at));
    }
    for (TensorMapSlot& slot : launch.maps) move_to(slot, place_of(part, slot.tensor, scratch_at));
  }
  plan.kernels.insert(plan.kernels.end(), kernels.begin(), kernels.end());
  if (part.plan.scratch_bytes > 0) {
    plan.scratch_bytes = std::max(plan.scratch_bytes, scratch_at + part.plan.scratch_bytes);
  }
}

}  // namespace vitune
