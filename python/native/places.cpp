// python/native/places.cpp -- Compares where tensors lie, and words of memory, with what they were.
//
// A step of training that starts on an idle machine finds none of this in the caches: each object
// costs a read of memory and a walk through page tables. So the objects that come next are
// prefetched while the present one is compared.
// SPDX-License-Identifier: Apache-2.0
#include "python/native/places.h"

#include <memory>
#include <vector>

namespace {

constexpr std::size_t kWordsAhead = 24, kHandlesAhead = 24, kTensorsAhead = 12, kStoragesAhead = 6;
constexpr int64_t kLine = 64, kLinesOfTensor = 3;

struct Word {
  const uint64_t* address;
  uint64_t value;
};

// Appends a tensor's address, type, rank, shape and strides.
bool read(AtenTensorHandle tensor, std::vector<int64_t>& facts) {
  void* address = nullptr;
  int64_t rank = 0;
  int64_t *shape = nullptr, *strides = nullptr;
  int32_t dtype = 0;
  if (aoti_torch_get_data_ptr(tensor, &address) != AOTI_TORCH_SUCCESS ||
      aoti_torch_get_dtype(tensor, &dtype) != AOTI_TORCH_SUCCESS ||
      aoti_torch_get_dim(tensor, &rank) != AOTI_TORCH_SUCCESS ||
      aoti_torch_get_sizes(tensor, &shape) != AOTI_TORCH_SUCCESS ||
      aoti_torch_get_strides(tensor, &strides) != AOTI_TORCH_SUCCESS) {
    return false;
  }
  facts.insert(facts.end(), {reinterpret_cast<int64_t>(address), dtype, rank});
  facts.insert(facts.end(), shape, shape + rank);
  facts.insert(facts.end(), strides, strides + rank);
  return true;
}

}  // namespace

struct vitune_torch_places {
  std::vector<AtenTensorHandle> tensors;
  std::vector<int64_t> facts;
  std::vector<Word> words;
  mutable std::vector<int64_t> now;  // its memory lives from call to call

  bool read_all(std::vector<int64_t>& found) const;
  bool same_words() const;
  void prefetch(std::size_t tensor) const;
};

// A handle points to a pointer to PyTorch's tensor, in whose first line are a table of functions, a
// count, its storage and what autograd keeps. Nothing but the prefetches relies on that: one of a
// wrong address does nothing.
void vitune_torch_places::prefetch(std::size_t tensor) const {
  const auto fields = [this](std::size_t each) {
    return *reinterpret_cast<const char* const* const*>(tensors[each]);
  };
  if (tensor + kHandlesAhead < tensors.size()) {
    __builtin_prefetch(tensors[tensor + kHandlesAhead]);
  }
  if (tensor + kTensorsAhead < tensors.size()) {
    const auto* const object = reinterpret_cast<const char*>(fields(tensor + kTensorsAhead));
    for (int64_t line = 0; line < kLinesOfTensor; ++line) {
      __builtin_prefetch(object + line * kLine);
    }
  }
  if (tensor + kStoragesAhead < tensors.size()) {
    __builtin_prefetch(fields(tensor + kStoragesAhead)[2]);
    __builtin_prefetch(fields(tensor + kStoragesAhead)[3]);
  }
}

bool vitune_torch_places::read_all(std::vector<int64_t>& found) const {
  found.clear();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    prefetch(i);
    if (!read(tensors[i], found)) {
      return false;
    }
  }
  return true;
}

bool vitune_torch_places::same_words() const {
  uint64_t differs = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i + kWordsAhead < words.size()) {
      __builtin_prefetch(words[i + kWordsAhead].address);
    }
    differs |= *words[i].address ^ words[i].value;
  }
  return differs == 0;
}

vitune_torch_places* vitune_torch_places_create(const AtenTensorHandle* tensors,
                                                int64_t tensor_count, const uint64_t* const* words,
                                                int64_t word_count) {
  auto places = std::make_unique<vitune_torch_places>();
  places->tensors.assign(tensors, tensors + tensor_count);
  for (int64_t i = 0; i < word_count; ++i) {
    places->words.push_back({words[i], *words[i]});
  }
  return places->read_all(places->facts) ? places.release() : nullptr;
}

int32_t vitune_torch_places_hold(const vitune_torch_places* places) {
  return places->same_words() && places->read_all(places->now) && places->now == places->facts ? 1
                                                                                               : 0;
}

void vitune_torch_places_destroy(vitune_torch_places* places) { delete places; }
