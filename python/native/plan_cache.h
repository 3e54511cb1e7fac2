// python/native/plan_cache.h -- The plans of an operator, one per signature of a call.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_PYTHON_NATIVE_PLAN_CACHE_H_
#define VITUNE_PYTHON_NATIVE_PLAN_CACHE_H_

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "python/native/operand.h"
#include "python/native/renewed.h"

namespace vitune::torch_ops {

// The words of a key: at most four operands of 2 * kMaxRank + 1 and the options.
class PlanKey {
 public:
  void add(int64_t word) {
    words_[count_++] = word;
    hash_ = (hash_ ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15U;
  }
  void add(const Operand& operand) {
    add(int64_t{operand.view.rank} << 48 | int64_t{operand.dtype} << 32 |
        int64_t{operand.device_type} << 16 | (operand.device_index & 0xFFFF));
    for (int i = 0; i < std::min(operand.view.rank, kMaxRank); ++i) {
      add(operand.view.shape[static_cast<std::size_t>(i)]);
      add(operand.view.strides[static_cast<std::size_t>(i)]);
    }
  }
  bool operator==(const PlanKey& other) const {
    return count_ == other.count_ &&
           std::memcmp(words_.data(), other.words_.data(), count_ * sizeof(int64_t)) == 0;
  }
  std::size_t hash() const { return hash_ ^ hash_ >> 32; }

 private:
  std::array<int64_t, 4 * (2 * kMaxRank + 1) + 2> words_;
  std::size_t count_ = 0;
  uint64_t hash_ = 0;
};

template <typename Plan>
class PlanCache {
 public:
  using Pointer = std::shared_ptr<const Plan>;

  static PlanCache& instance() { return renewed_after_fork<PlanCache>(); }

  // `make` runs without the lock, for the first call of a key; two threads may both make one.
  template <typename Make>
  Pointer find_or_make(const PlanKey& key, Make make) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = plans_.find(key); known != plans_.end()) {
        return known->second;
      }
    }
    Pointer plan = make();
    const std::lock_guard lock(mutex_);
    if (plans_.size() >= kMaxPlans) {
      plans_.clear();
    }
    return plans_.emplace(key, std::move(plan)).first->second;
  }

 private:
  static constexpr std::size_t kMaxPlans = 4096;
  struct Hash {
    std::size_t operator()(const PlanKey& key) const { return key.hash(); }
  };
  std::mutex mutex_;
  std::unordered_map<PlanKey, Pointer, Hash> plans_;
};

}  // namespace vitune::torch_ops

#endif  // VITUNE_PYTHON_NATIVE_PLAN_CACHE_H_
