// tuner/heard_stop.h -- A run's stop flag, heard by the database too while the run lasts.
#pragma once

#include <atomic>

#include "db/store.h"

namespace vitune {

class HeardStop {
 public:
  HeardStop(Store& store, const std::atomic<bool>& stop)
      : store_(store), before_(store.hear(&stop)) {}
  ~HeardStop() {
    try {
      store_.hear(before_);
    } catch (...) {
      // SQLite refuses this to a connection that is closed only.
    }
  }
  HeardStop(const HeardStop&) = delete;
  HeardStop& operator=(const HeardStop&) = delete;

 private:
  Store& store_;
  const std::atomic<bool>* before_;
};

}  // namespace vitune
