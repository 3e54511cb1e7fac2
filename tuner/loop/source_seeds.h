// tuner/loop/source_seeds.h -- Winners of other devices, at which a search begins where this device
// has none.
//
// Transfer tuning: whatever a search tries is judged and timed here, so that any other device may
// propose, the most alike first (core/source_devices.h). Each device's winners are read when the
// first problem asks for them. One thread at a time; the caller owns the databases.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/device_info.h"
#include "core/log.h"
#include "db/store.h"
#include "generator/problem.h"

namespace vitune {

class SourceSeeds {
 public:
  SourceSeeds(DeviceInfo device, Objective objective, LayeredStore& store, LogSink log_sink)
      : device_(std::move(device)),
        objective_(objective),
        store_(store),
        log_sink_(std::move(log_sink)) {}

  // Configs inside the space of `problem` on this device, each once: those that won it on other
  // devices; then, unless this device has winners of problems of its class, those that won the
  // problems nearest to it on the most alike device that has some. At most eight; none if no other
  // device has winners. Says once from which device they are.
  std::vector<Config> of(const ProblemPtr& problem);

 private:
  struct SourceWinner {
    ProblemPtr problem;
    std::string problem_class;
    Config config;
  };
  struct Source {
    DeviceInfo device;
    std::optional<std::vector<SourceWinner>> winners;  // nothing: not read yet
  };
  class Picked;
  void list_devices();
  void add_exact(const Problem& problem, Picked& picked);
  void add_near(const Problem& problem, Picked& picked);
  const std::vector<SourceWinner>& winners_of(Source& source);
  void say(const DeviceInfo& source);

  DeviceInfo device_;
  Objective objective_;
  LayeredStore& store_;
  LogSink log_sink_;
  std::vector<Source> sources_;  // this device, then the others, the most alike first
  bool has_spoken_ = false;
};

}  // namespace vitune
