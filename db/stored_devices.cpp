// db/stored_devices.cpp -- Devices of every layer, each once.
// SPDX-License-Identifier: Apache-2.0
#include "db/stored_devices.h"

#include <map>
#include <string>
#include <utility>

#include "db/sqlite.h"

namespace vitune {

std::vector<DeviceInfo> stored_devices(LayeredStore& store) {
  std::map<std::string, DeviceInfo> by_key;
  const auto add = [&](Store& layer) {
    for (DeviceInfo& device : layer.devices()) by_key.emplace(device.key(), std::move(device));
  };
  if (store.serves_defaults_only()) return {};
  if (Store* const user = store.given_user()) add(*user);
  for (const LayeredStore::Lower& lower : store.lower()) {
    try {
      add(*lower.store);
    } catch (const DatabaseError& error) {
      if (error.fault() == DatabaseFault::kLocked || error.fault() == DatabaseFault::kNoLocks) {
        throw;
      }
    }
  }
  std::vector<DeviceInfo> devices;
  for (auto& [key, device] : by_key) devices.push_back(std::move(device));
  return devices;
}

}  // namespace vitune
