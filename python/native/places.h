// python/native/places.h -- Whether tensors lie where they lay, and words of memory are what they
// were: the look before a step of training is replayed.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_PYTHON_NATIVE_PLACES_H_
#define VITUNE_PYTHON_NATIVE_PLACES_H_

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstdint>

#include "vitune/vitune.h"

// Functions that the Python package calls by ctypes, with the interpreter's lock held.
extern "C" {
typedef struct vitune_torch_places vitune_torch_places;

// Remembers where strided tensors lie, and the values of words; the caller keeps all of them alive.
// Null where PyTorch does not say where a tensor lies.
VITUNE_API vitune_torch_places* vitune_torch_places_create(const AtenTensorHandle* tensors,
                                                           int64_t tensor_count,
                                                           const uint64_t* const* words,
                                                           int64_t word_count);
// 1 if all addresses, types, shapes and strides of the tensors, and all words, are as they were at
// the creation, else 0.
VITUNE_API int32_t vitune_torch_places_hold(const vitune_torch_places* places);
VITUNE_API void vitune_torch_places_destroy(vitune_torch_places* places);
}

#endif  // VITUNE_PYTHON_NATIVE_PLACES_H_
