// python/native/remembered.h -- Calls of operators that Python computes, launched again without it.
//
// The first calls of a kind go to Python, which says what it launches: each problem, by its text,
// and the addresses that the launch was given. Where every address is that of an argument or a
// result, twice alike, and PyTorch computed nothing beside, later calls of that kind allocate their
// results and launch. A kind is all that a launch may depend on: types, extents, strides, alignment
// and identity of the tensors, and every other argument. What does not fit stays Python's.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_PYTHON_NATIVE_REMEMBERED_H_
#define VITUNE_PYTHON_NATIVE_REMEMBERED_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "python/native/operand.h"
#include "python/native/operators.h"
#include "vitune/vitune.h"

namespace vitune::torch_ops {

// Where a launch finds an address: a tensor of the call, arguments first, then results, and bytes
// behind its first element. -1: no address.
struct Slot {
  int32_t tensor = -1;
  int64_t offset = 0;
  bool operator==(const Slot&) const = default;
};

struct RememberedLaunch {
  std::string text;  // of the problem
  std::shared_ptr<const vitune_problem> problem;
  std::vector<Slot> slots;
  uint64_t scratch_bytes = 0;
};

struct RememberedCall {
  std::vector<RememberedLaunch> launches;
  std::vector<Operand> results;
};

// Launches all of a call. Throws Refusal.
using LaunchRemembered = void (*)(const RememberedCall& call,
                                  std::span<const AtenTensorHandle> tensors);
void launch_remembered_on_gpu(const RememberedCall& call,
                              std::span<const AtenTensorHandle> tensors);
// Of a launch, the addresses of its problem's tensors, given those of the call's.
std::vector<void*> addresses_of(const RememberedLaunch& launch, std::span<char* const> tensors);

// One row for each operator, in the namespace vitune_native: its schema is Python's.
struct RememberedOperator {
  const char* name;
  Boxed run;
};

// The call of operator `index` of that table.
void run_remembered(std::size_t index, StableIValue* stack, LaunchRemembered launch);

inline constexpr const char* kRemembered[] = {
    "linear_train",          "linear_act_train",   "act_linear_train",         "linear_input_grad",
    "linear_act_input_grad", "linear_weight_grad", "linear_scale_weight_grad", "norm_train",
    "norm_backward",         "attention_backward", "attention_qkv_backward"};
inline constexpr std::size_t kRememberedCount = std::size(kRemembered);

template <LaunchRemembered launch, std::size_t... kIndices>
std::vector<RememberedOperator> remembered_table(std::index_sequence<kIndices...>) {
  return {{kRemembered[kIndices], [](StableIValue* stack, uint64_t, uint64_t) {
             run_remembered(kIndices, stack, launch);
           }}...};
}
template <LaunchRemembered launch>
const std::vector<RememberedOperator>& remembered_operators() {
  static const auto table = remembered_table<launch>(std::make_index_sequence<kRememberedCount>());
  return table;
}

}  // namespace vitune::torch_ops

// Functions that the Python package calls by ctypes.
extern "C" {
// What an operator's schema says: a letter for each argument (t: a tensor, o: one that may be
// missing, w: a number, a type or a truth value, v: one that may be missing). 0 if there is no
// operator of that name here.
VITUNE_API int32_t vitune_torch_describe(const char* name, const char* arguments, int32_t results);
// Whether the thread is in a call that is to be remembered; then what it does: a launch of the
// problem with this text, or what no launch can repeat.
VITUNE_API int32_t vitune_torch_is_learning(void);
VITUNE_API void vitune_torch_note_launch(const char* text, const uint64_t* addresses, size_t count,
                                         uint64_t scratch_bytes);
VITUNE_API void vitune_torch_note_other(void);
// What it raised, in any call, and whether that was Ctrl-C.
VITUNE_API void vitune_torch_note_error(const char* text, int32_t is_interrupt);
// Calls that were launched without Python, since the process began.
VITUNE_API uint64_t vitune_torch_remembered(void);
}

#endif  // VITUNE_PYTHON_NATIVE_REMEMBERED_H_
