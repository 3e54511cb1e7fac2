// runtime/dispatch/source_winners.h -- Winners of other devices, for problems that this one has no
// winner of.
//
// Which devices: core/source_devices.h. Only a winner's config is taken from there. Its kernel is
// made here, as a default's is, and its times say nothing of this device but in a prediction. Each
// source's winners are read when the first problem asks for them. One thread at a time; the caller
// owns the databases.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/device_info.h"
#include "db/store.h"
#include "generator/parameter_space.h"
#include "generator/problem.h"
#include "runtime/dispatch/winner_index.h"

namespace vitune {

// A winner of this very problem on a source device.
struct SourceWinner {
  WinnerEntry row;
  Layer layer = Layer::kUser;
  double predicted_us = 0;  // here: its time by the wanted objective, times the ratio of floors
};

class SourceWinners {
 public:
  SourceWinners(DeviceInfo device, Objective objective)
      : device_(std::move(device)), objective_(objective) {}

  // The winner of `problem` on the most alike source with as many SMs, so that waves of CTAs are
  // the same, that has a verified one inside `space`, which is the problem's on this device; by the
  // wanted objective, else by the other.
  std::optional<SourceWinner> find(const Problem& problem, const ParameterSpace& space,
                                   LayeredStore& store);
  // The winners of the most alike source that has some of problems of the same class, or null.
  const WinnerIndex* of_class(const Problem& problem, LayeredStore& store);
  // Forgets everything; pointers handed out are no longer valid.
  void forget();

 private:
  std::vector<std::unique_ptr<WinnerIndex>>& sources(LayeredStore& store);

  DeviceInfo device_;
  Objective objective_;
  bool are_listed_ = false;
  std::vector<std::unique_ptr<WinnerIndex>> sources_;  // the most alike first; each reads itself
};

}  // namespace vitune
