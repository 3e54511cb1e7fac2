// python/native/attention.h -- The operators vitune::attention, vitune::attention_lse,
// vitune::attend and vitune::attend_or_torch.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_PYTHON_NATIVE_ATTENTION_H_
#define VITUNE_PYTHON_NATIVE_ATTENTION_H_

#include <array>
#include <optional>

#include "python/native/boxed.h"
#include "python/native/layout.h"
#include "python/native/refusal.h"
#include "vitune/vitune.h"

namespace vitune::torch_ops {

inline constexpr const char* kAttentionSchema =
    "attention(Tensor q, Tensor k, Tensor v, Tensor? attn_mask, bool is_causal, float? scale,"
    " bool enable_gqa, bool fall_back, int order=0) -> Tensor";
inline constexpr const char* kAttentionLseSchema =
    "attention_lse(Tensor q, Tensor k, Tensor v, Tensor? attn_mask, bool is_causal, float? scale,"
    " bool enable_gqa, int order=0) -> (Tensor, Tensor)";
// The usual call, where nothing compiles: what the other arguments cost to unpack is a tenth of it.
inline constexpr const char* kAttendSchema =
    "attend(Tensor q, Tensor k, Tensor v, Tensor? attn_mask=None) -> Tensor";
inline constexpr const char* kAttendOrTorchSchema =
    "attend_or_torch(Tensor q, Tensor k, Tensor v, Tensor? attn_mask=None) -> Tensor";

// All of a call that does not depend on addresses.
struct AttentionPlan {
  vitune_attention_desc desc = VITUNE_ATTENTION_DESC_INIT;
  int64_t launches = 1;
  std::array<int64_t, 6> steps{};  // bytes from one launch to the next: q, k, v, mask, out, lse
  View out, lse;
  Extents wanted_strides{};  // of the result: where out's are others it is copied
  bool is_empty = false;
  bool mask_is_bias = false;
  std::optional<Refusal> refusal;  // there is no plan, and never will be
};

// q, k, v, mask, out, lse; null where there is none.
using AttentionTensors = std::array<AtenTensorHandle, 6>;
using AttentionPointers = std::array<char*, 6>;

// How the operators reach a device.
using LaunchAttention = void (*)(const AttentionPlan& plan, const AttentionTensors& tensors);

void launch_on_gpu(const AttentionPlan& plan, const AttentionTensors& tensors);
// All launches of a plan. Throws Refusal.
void launch_pointers(vitune_context* context, const AttentionPlan& plan, AttentionPointers pointers,
                     void* stream);

struct AttentionArguments {
  AtenTensorHandle q, k, v;
  AtenTensorHandle mask = nullptr;
  bool is_causal = false;
  std::optional<double> scale = std::nullopt;
  bool enable_gqa = false;
  bool return_lse = false;
  Order order = Order::kTorchs;
};

struct AttentionResult {
  Held out, lse;
};

// Throws Refusal, after its status was kept for the thread.
AttentionResult run_attention(const AttentionArguments& arguments, LaunchAttention launch);
// PyTorch's answer where vitune has none.
Held run_attention_or_torch(const AttentionArguments& arguments, LaunchAttention launch);
// The same, but operands of one rank that contradict each other are a Refusal: of what PyTorch says
// to them only its own call from Python has the words.
Held run_attention_or_refuse(const AttentionArguments& arguments, LaunchAttention launch);

// The order that an operator's argument names. Throws Refusal.
Order order_of(int64_t number);

// --- boxed, as PyTorch calls them

template <LaunchAttention launch>
void attention(StableIValue* stack, uint64_t, uint64_t) {
  const Held q = take_tensor(stack[0]), k = take_tensor(stack[1]), v = take_tensor(stack[2]),
             mask = take_optional_tensor(stack[3]);
  const auto scale = take<std::optional<double>>(stack[5]);
  const AttentionArguments arguments{q.get(),
                                     k.get(),
                                     v.get(),
                                     mask.get(),
                                     take<bool>(stack[4]),
                                     scale,
                                     take<bool>(stack[6]),
                                     false,
                                     order_of(take<int64_t>(stack[8]))};
  stack[0] = give(take<bool>(stack[7]) ? run_attention_or_torch(arguments, launch)
                                       : run_attention(arguments, launch).out);
}

template <LaunchAttention launch>
void attention_lse(StableIValue* stack, uint64_t, uint64_t) {
  const Held q = take_tensor(stack[0]), k = take_tensor(stack[1]), v = take_tensor(stack[2]),
             mask = take_optional_tensor(stack[3]);
  const auto scale = take<std::optional<double>>(stack[5]);
  AttentionResult result =
      run_attention({q.get(), k.get(), v.get(), mask.get(), take<bool>(stack[4]), scale,
                     take<bool>(stack[6]), true, order_of(take<int64_t>(stack[7]))},
                    launch);
  stack[0] = give(std::move(result.out));
  stack[1] = give(std::move(result.lse));
}

template <LaunchAttention launch>
void attend(StableIValue* stack, uint64_t, uint64_t) {
  const Held q = take_tensor(stack[0]), k = take_tensor(stack[1]), v = take_tensor(stack[2]),
             mask = take_optional_tensor(stack[3]);
  stack[0] = give(run_attention({q.get(), k.get(), v.get(), mask.get()}, launch).out);
}

template <LaunchAttention launch>
void attend_or_torch(StableIValue* stack, uint64_t, uint64_t) {
  const Held q = take_tensor(stack[0]), k = take_tensor(stack[1]), v = take_tensor(stack[2]),
             mask = take_optional_tensor(stack[3]);
  stack[0] = give(run_attention_or_refuse({q.get(), k.get(), v.get(), mask.get()}, launch));
}

}  // namespace vitune::torch_ops

#endif  // VITUNE_PYTHON_NATIVE_ATTENTION_H_
