// tests/runtime/shipped_evidence.h -- What the shipped database knows of a config's time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "db/store.h"

namespace vitune {

inline std::unique_ptr<Store> shipped() {
  return Store::open(std::string(VITUNE_SOURCE_DIR) + "/data/winners.db", Access::kReadOnly);
}

inline DeviceInfo shipped_device(Store& store, std::string_view name) {
  for (DeviceInfo& device : store.devices()) {
    if (device.name.find(name) != std::string::npos) return device;
  }
  throw std::runtime_error("no such GPU is shipped");
}

// The time of `config` over the winner's on the winner's device: by the final race, else by the
// trials of both. Nothing if it was not measured there. (The race's time of the default is of what
// was the default then.)
inline std::optional<double> loss_of(Store& all, const WinnerEntry& entry, const Config& config) {
  const Winner& winner = entry.winner;
  if (config == winner.config) return 0;
  if (config == winner.runner_up) return std::max(0.0, winner.lead_percent / 100);
  const auto us = [&](const Config& each) {
    const auto trial = all.find_trial(entry.device, entry.problem, each);
    return trial && trial->status == TrialStatus::kOk
               ? trial->measurement.by(winner.objective).median_us
               : 0.0;
  };
  const double own = us(winner.config), other = us(config);
  if (own > 0 && other > 0) return std::max(0.0, other / own - 1);
  return std::nullopt;
}

}  // namespace vitune
