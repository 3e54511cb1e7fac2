// python/native/attention.h -- The operators vitune::attention and vitune::attention_lse.
#ifndef VITUNE_PYTHON_NATIVE_ATTENTION_H_
#define VITUNE_PYTHON_NATIVE_ATTENTION_H_

#include <torch/csrc/stable/tensor.h>

#include <array>
#include <optional>
#include <tuple>

#include "python/native/layout.h"
#include "vitune/vitune.h"

namespace vitune::torch_ops {

using torch::stable::Tensor;

inline constexpr const char* kAttentionSchema =
    "attention(Tensor q, Tensor k, Tensor v, Tensor? attn_mask, bool is_causal, float? scale,"
    " bool enable_gqa, bool fall_back) -> Tensor";
inline constexpr const char* kAttentionLseSchema =
    "attention_lse(Tensor q, Tensor k, Tensor v, Tensor? attn_mask, bool is_causal, float? scale,"
    " bool enable_gqa) -> (Tensor, Tensor)";

// All of a call that does not depend on addresses.
struct AttentionPlan {
  vitune_attention_desc desc = VITUNE_ATTENTION_DESC_INIT;
  int64_t launches = 1;
  std::array<int64_t, 6> steps{};  // bytes from one launch to the next: q, k, v, mask, out, lse
  View out, lse;
  bool is_empty = false;
  bool mask_is_bias = false;
};

// q, k, v, mask, out, lse; null where there is none.
using AttentionTensors = std::array<const Tensor*, 6>;
using AttentionPointers = std::array<char*, 6>;

// How the operators reach a device.
using LaunchAttention = void (*)(const AttentionPlan& plan, const AttentionTensors& tensors);

void launch_on_gpu(const AttentionPlan& plan, const AttentionTensors& tensors);
// All launches of a plan. Throws Refusal.
void launch_pointers(vitune_context* context, const AttentionPlan& plan, AttentionPointers pointers,
                     void* stream);

struct AttentionArguments {
  const Tensor &q, &k, &v;
  const Tensor* mask;
  bool is_causal;
  std::optional<double> scale;
  bool enable_gqa;
  bool return_lse;
};

// Throws Refusal, after its status was kept for the thread.
Tensor run_attention(const AttentionArguments& arguments, bool fall_back, LaunchAttention launch);
std::tuple<Tensor, Tensor> run_attention_lse(const AttentionArguments& arguments,
                                             LaunchAttention launch);

template <LaunchAttention launch>
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const std::optional<Tensor>& mask, bool is_causal, std::optional<double> scale,
                 bool enable_gqa, bool fall_back) {
  return run_attention({q, k, v, mask ? &*mask : nullptr, is_causal, scale, enable_gqa, false},
                       fall_back, launch);
}

template <LaunchAttention launch>
std::tuple<Tensor, Tensor> attention_lse(const Tensor& q, const Tensor& k, const Tensor& v,
                                         const std::optional<Tensor>& mask, bool is_causal,
                                         std::optional<double> scale, bool enable_gqa) {
  return run_attention_lse({q, k, v, mask ? &*mask : nullptr, is_causal, scale, enable_gqa, true},
                           launch);
}

}  // namespace vitune::torch_ops

#endif  // VITUNE_PYTHON_NATIVE_ATTENTION_H_
