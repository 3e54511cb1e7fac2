// runtime/dispatch/source_winners.cpp -- Exact rows and indices of the source devices.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/dispatch/source_winners.h"

#include <cmath>
#include <utility>

#include "core/source_devices.h"
#include "db/stored_devices.h"
#include "runtime/dispatch/nearest.h"

namespace vitune {

std::vector<std::unique_ptr<WinnerIndex>>& SourceWinners::sources(LayeredStore& store) {
  if (are_listed_) return sources_;
  for (DeviceInfo& device : serving_sources(stored_devices(store), device_)) {
    sources_.push_back(std::make_unique<WinnerIndex>(std::move(device), objective_));
  }
  are_listed_ = true;
  return sources_;
}

std::optional<SourceWinner> SourceWinners::find(const Problem& problem, const ParameterSpace& space,
                                                LayeredStore& store) {
  const ProblemKey key{problem.operator_name(), problem.text()};
  for (const auto& source : sources(store)) {
    const DeviceInfo& from = source->device();
    if (from.sm_count != device_.sm_count) continue;
    for (const Objective objective : {objective_, other_objective(objective_)}) {
      for (LayeredStore::Found& found : store.find_winners(from, key, objective)) {
        const double us = found.winner.measurement.by(objective_).median_us;
        if (!found.winner.verified || !(us > 0) || !std::isfinite(us)) continue;
        if (space.explain(space.completed(found.winner.config))) continue;
        const double here =
            us * least_us(problem, device_, objective_) / least_us(problem, from, objective_);
        return SourceWinner{{from, key, std::move(found.winner)}, found.layer, here};
      }
    }
  }
  return std::nullopt;
}

const WinnerIndex* SourceWinners::of_class(const Problem& problem, LayeredStore& store) {
  for (const auto& source : sources(store)) {
    source->read(store);
    if (!source->same_class(problem).empty()) return source.get();
  }
  return nullptr;
}

void SourceWinners::forget() {
  sources_.clear();
  are_listed_ = false;
}

}  // namespace vitune
