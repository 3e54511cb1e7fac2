// db/stored_devices.h -- The devices that the layers of a store know.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/device_info.h"
#include "db/store.h"

namespace vitune {

// The devices that any layer stores something of, each once, in the order of their keys; none where
// no winner is found. Damage in a lower layer is a miss. Throws Error(kDatabase) if the user's
// database cannot be read, or any is locked.
std::vector<DeviceInfo> stored_devices(LayeredStore& store);

}  // namespace vitune
