// tuner/evaluate/variant_cache.h -- Compiled kernels by their key, so that each is compiled once in
// a run.
//
// Bounded in bytes: the images that were used least recently go first. One thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>

#include "core/digest.h"
#include "generator/compiler.h"

namespace vitune {

class VariantCache {
 public:
  explicit VariantCache(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Null if it is not (or no longer) there.
  std::shared_ptr<const CompileResult> find(const Digest& key) {
    const auto at = entries_.find(key);
    if (at == entries_.end()) return nullptr;
    order_.splice(order_.begin(), order_, at->second.place);
    return at->second.result;
  }

  std::shared_ptr<const CompileResult> add(const Digest& key, CompileResult result) {
    if (auto known = find(key)) return known;
    order_.push_front(key);
    auto shared = std::make_shared<const CompileResult>(std::move(result));
    entries_[key] = {shared, order_.begin()};
    bytes_ += size(*shared);
    while (bytes_ > limit_bytes_ && entries_.size() > 1) drop_oldest();
    return shared;
  }

  std::size_t bytes() const { return bytes_; }
  std::size_t count() const { return entries_.size(); }

 private:
  struct Entry {
    std::shared_ptr<const CompileResult> result;
    std::list<Digest>::iterator place;
  };

  static std::size_t size(const CompileResult& result) {
    return result.cubin.size() + result.log.size() + sizeof(CompileResult);
  }

  void drop_oldest() {
    const auto at = entries_.find(order_.back());
    bytes_ -= size(*at->second.result);
    entries_.erase(at);
    order_.pop_back();
  }

  std::size_t limit_bytes_;
  std::size_t bytes_ = 0;
  std::list<Digest> order_;  // used last first
  std::map<Digest, Entry> entries_;
};

}  // namespace vitune
