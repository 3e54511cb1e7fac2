// tuner/worker/kernel_store.cpp -- Keeping images and loading them on demand.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/kernel_store.h"

#include <algorithm>

#include "core/error.h"
#include "generator/compiler.h"

namespace vitune {

std::shared_ptr<const CudaModule> KernelStore::load(const KernelRef& ref) {
  const auto same_key = [&](const Loaded& entry) { return entry.key == ref.kernel_key; };
  const auto found = std::find_if(loaded_.begin(), loaded_.end(), same_key);
  if (found != loaded_.end()) {
    loaded_.splice(loaded_.begin(), loaded_, found);
    return loaded_.front().module;
  }
  if (!ref.cubin.empty()) {
    if (!cubin_is_well_formed(ref.cubin)) {
      throw Error(ErrorCode::kFailure, "the image of kernel " + ref.kernel_key.hex() +
                                           " is not a well-formed cubin and was not loaded");
    }
    images_[ref.kernel_key] = ref.cubin;
  }
  const auto image = images_.find(ref.kernel_key);
  if (image == images_.end()) {
    throw Error(ErrorCode::kFailure,
                "kernel " + ref.kernel_key.hex() + " was never sent to this worker");
  }
  auto module = std::make_shared<const CudaModule>(driver_, image->second);
  loaded_.push_front({ref.kernel_key, module});
  if (loaded_.size() > limit_) loaded_.pop_back();
  return module;
}

}  // namespace vitune
