// runtime/dispatch/winner_index.h -- The winners of one device, held compactly for look-ups that
// miss.
//
// The exact look-up asks the database for one row. Only where that fails are all rows of the device
// read, once: each text is parsed once and each config is held once, less than 1 KiB per winner.
// One thread at a time; the caller owns the databases.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/config.h"
#include "core/device_info.h"
#include "db/store.h"
#include "generator/problem.h"

namespace vitune {

// A verified winner: its problem and what the final race measured of it and the runner-up.
struct IndexedWinner {
  ProblemPtr problem;
  const Config* config = nullptr;     // owned by the index, as is the next
  const Config* runner_up = nullptr;  // null: it ran alone
  float us = 0;                       // by the index's objective; above 0 and finite
  float runner_up_us = 0;             // 0: unknown
  float default_loss = 0;  // times as long as the winner's: the default's, in the race; 0: unknown
  Layer layer = Layer::kUser;
  bool replayed = false;  // from a recording: its kernel has not run here
};

class WinnerIndex {
 public:
  WinnerIndex(DeviceInfo device, Objective objective)
      : device_(std::move(device)), objective_(objective) {}

  // Reads the winners if that has not been done: those by the index's objective, and of problems
  // that have none those by the other. Throws Error(kDatabase) if a database cannot be
  // read; the index is then empty and unread.
  void read(LayeredStore& store);
  // Forgets everything; pointers and references handed out are no longer valid.
  void forget();

  const DeviceInfo& device() const { return device_; }
  std::size_t size() const { return winners_.size(); }
  // A winner whose kernel does the same work for `problem`, or null.
  const IndexedWinner* find_same_work(const ProblemPtr& problem) const;
  // The winners of problems of the same class (Operator::kernel_class), in the order they were
  // read: their configs may be outside the space of this problem.
  std::vector<const IndexedWinner*> same_class(const Problem& problem) const;

 private:
  void add(const ProblemKey& key, const Winner& winner, Layer layer);
  const Config* keep(const Config& config);

  DeviceInfo device_;
  Objective objective_;
  bool is_read_ = false;
  std::vector<IndexedWinner> winners_;
  std::unordered_map<std::string, Config> configs_;  // by text; addresses stay
  std::unordered_multimap<std::size_t, std::uint32_t> by_work_;
  std::unordered_map<std::string, std::vector<std::uint32_t>> by_class_;
};

}  // namespace vitune
