// generator/attention_backward/tensors.cpp -- The tensors of attention's gradients, where their
// pointers go, and what kernels know of them.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <iterator>
#include <utility>

#include "generator/attention/dropout.h"
#include "generator/attention/facts.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/operator.h"
#include "generator/attention_backward/kernel_spec.h"
#include "generator/config_text.h"
// After what it is made of.
#include "templates/attention_backward/dropout_params.cuh"

namespace vitune {
namespace {

constexpr std::size_t at_call(std::size_t member) {
  return offsetof(AttentionBackwardParams, call) + member;
}

constexpr PointerSlot kPointers[] = {
    {kAttentionBackwardQ, at_call(offsetof(AttentionParams, q))},
    {kAttentionBackwardK, at_call(offsetof(AttentionParams, k))},
    {kAttentionBackwardV, at_call(offsetof(AttentionParams, v))},
    {kAttentionBackwardBias, at_call(offsetof(AttentionParams, bias))},
    {kAttentionBackwardMask, at_call(offsetof(AttentionParams, mask))},
    {kAttentionBackwardOut, at_call(offsetof(AttentionParams, o))},
    {kAttentionBackwardLse, at_call(offsetof(AttentionParams, lse))},
    {kAttentionBackwardDout, offsetof(AttentionBackwardParams, dout)},
    {kAttentionBackwardDq, offsetof(AttentionBackwardParams, dq)},
    {kAttentionBackwardDk, offsetof(AttentionBackwardParams, dk)},
    {kAttentionBackwardDv, offsetof(AttentionBackwardParams, dv)},
    {kAttentionBackwardDbias, offsetof(AttentionBackwardParams, dbias)},
    {PointerSlot::kScratch, offsetof(AttentionBackwardParams, delta)},
};

constexpr PointerSlot kRandom = {
    kAttentionBackwardRandom,
    offsetof(AttentionBackwardDropoutParams, dropout) + offsetof(AttentionDropout, random)};

TensorSpec renamed(TensorSpec spec, std::string name, Role role) {
  spec.name = std::move(name);
  spec.role = role;
  spec.empty_rows = -1;
  return spec;
}

// One of the gradients: views of one allocation are views of another one than q, k and v.
TensorSpec gradient(const TensorSpec& of, std::string name) {
  TensorSpec spec = renamed(of, std::move(name), Role::kOutput);
  if (spec.shared >= 0) spec.shared = 1;
  return spec;
}

TensorSpec bias_gradient(const AttentionBackwardProblem& p) {
  AttentionProblem dense = p.forward;
  if (p.dbias) dense.bias = p.bias_gradient();
  TensorSpec spec = renamed(attention_tensors(dense)[kTensorBias], "dbias", Role::kOutput);
  spec.given = p.dbias.has_value();
  return spec;
}

AttentionView view_of(const TensorStrides& strides) {
  return {strides.batch, strides.head, strides.row};
}

}  // namespace

std::vector<TensorSpec> attention_backward_tensors(const AttentionBackwardProblem& p) {
  AttentionProblem forward = p.forward;
  forward.lse = true;
  forward.dropout = 0;
  std::vector<TensorSpec> specs = attention_tensors(forward);
  specs[kTensorOut] = renamed(specs[kTensorOut], "out", Role::kInput);
  specs[kTensorLse] = renamed(specs[kTensorLse], "lse", Role::kInput);
  const std::vector<TensorSpec> gradients = attention_tensors(p.gradients());
  specs.push_back(renamed(gradients[kTensorOut], "dout", Role::kInput));
  specs.push_back(gradient(gradients[kTensorQ], "dq"));
  specs.push_back(gradient(gradients[kTensorK], "dk"));
  specs.push_back(gradient(gradients[kTensorV], "dv"));
  specs.push_back(bias_gradient(p));
  if (p.forward.dropout != 0) specs.push_back(random_tensor());
  return specs;
}

AttentionBackwardParams attention_backward_params(const AttentionBackwardProblem& p) {
  AttentionBackwardParams params = {};
  params.call = attention_call(p.forward);
  params.dout_view = view_of(p.dout);
  params.dq_view = view_of(p.dq);
  params.dk_view = view_of(p.dk);
  params.dv_view = view_of(p.dv);
  params.parts = 1;
  if (!p.dbias) return params;
  params.dbias_batches = static_cast<int>(p.forward.bias->batches);
  params.dbias_heads = static_cast<int>(p.forward.heads / p.sharing_heads());
  params.sharing_batches = static_cast<int>(p.sharing_batches());
  params.sharing_heads = static_cast<int>(p.sharing_heads());
  return params;
}

std::vector<PointerSlot> attention_backward_pointers() {
  return {std::begin(kPointers), std::end(kPointers)};
}

void set_attention_backward_params(KernelLaunch& launch, const AttentionBackwardProblem& p) {
  const AttentionBackwardParams params = attention_backward_params(p);
  launch.params = parameter_bytes(params);
  launch.pointers = attention_backward_pointers();
  if (p.forward.dropout == 0) return;
  launch.params =
      parameter_bytes(AttentionBackwardDropoutParams{params, dropout_params(p.forward)});
  launch.pointers.push_back(kRandom);
}

std::string attention_backward_facts_text(const AttentionBackwardProblem& p) {
  const AttentionFacts facts = attention_facts(p.forward);
  return config_number("kElement", facts.element) + config_number("kHeadDim", facts.head_dim) +
         config_flag("kCausal", facts.causal) + config_number("kBias", facts.bias) +
         config_number("kBiasVector", facts.bias_vector) + config_flag("kMask", facts.mask) +
         config_number("kMaskVector", facts.mask_vector) +
         config_number("kDbias", p.dbias ? judge_type(*p.dbias) : -1) +
         config_number("kCopyBytes", p.vector_bytes());
}

std::int64_t attention_backward_delta_bytes(const AttentionBackwardProblem& p) {
  return 4 * p.forward.batch * p.forward.heads * p.forward.nq;
}

}  // namespace vitune
