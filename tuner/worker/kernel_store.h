// tuner/worker/kernel_store.h -- The kernels a bench worker was sent, the recently used ones
// loaded.
//
// Images are kept as long as the worker lives, since the parent sends each only once. One thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "core/cuda_driver.h"
#include "core/digest.h"
#include "tuner/worker/protocol.h"

namespace vitune {

class KernelStore {
 public:
  // At most `loaded` modules stay on the device.
  KernelStore(const CudaDriver& driver, std::size_t loaded) : driver_(driver), limit_(loaded) {}

  // The kernels of `ref`, loaded; they stay usable while the result is held. Throws Error(kFailure)
  // for an image that is malformed or that never came, CudaError if the driver refuses it.
  std::shared_ptr<const CudaModule> load(const KernelRef& ref);

 private:
  struct Loaded {
    Digest key;
    std::shared_ptr<const CudaModule> module;
  };

  const CudaDriver& driver_;
  std::size_t limit_;
  std::map<Digest, std::vector<std::byte>> images_;
  std::list<Loaded> loaded_;  // used last first
};

}  // namespace vitune
