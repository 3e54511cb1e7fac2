// generator/attention/plan.cpp -- The one launch of an attention call.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "generator/attention/dropout.h"
#include "generator/attention/family.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/operator.h"
#include "generator/attention/tensor_maps.h"

namespace vitune {
namespace {

constexpr PointerSlot kPointers[] = {
    {kTensorQ, offsetof(AttentionParams, q)},       {kTensorK, offsetof(AttentionParams, k)},
    {kTensorV, offsetof(AttentionParams, v)},       {kTensorBias, offsetof(AttentionParams, bias)},
    {kTensorMask, offsetof(AttentionParams, mask)}, {kTensorOut, offsetof(AttentionParams, o)},
    {kTensorLse, offsetof(AttentionParams, lse)},
};

constexpr PointerSlot kRandom = {
    kTensorRandom, offsetof(AttentionDropoutParams, dropout) + offsetof(AttentionDropout, random)};

}  // namespace

std::vector<PointerSlot> attention_slots() { return {std::begin(kPointers), std::end(kPointers)}; }

LaunchPlan AttentionFamily::plan(const Problem& asked, const Config& config,
                                 const DeviceInfo& device, std::span<const int> resident) const {
  const AttentionProblem& problem = attention_of(asked);
  KernelLaunch launch;
  launch.shape = attention_launch_shape(problem, config, device, resident.front());
  const AttentionParams params = attention_params(problem, config, {}, launch.shape);
  launch.params = parameter_bytes(params);
  launch.pointers = attention_slots();
  if (problem.dropout != 0) {
    launch.params = parameter_bytes(AttentionDropoutParams{params, dropout_params(problem)});
    launch.pointers.push_back(kRandom);
  }
  if (vitune::reads_tensor_maps(config)) {
    launch.map_bytes = sizeof(AttentionTensorMaps);
    launch.maps = attention_maps(problem, config);
  }
  LaunchPlan plan;
  plan.kernels.push_back(std::move(launch));
  return plan;
}

bool AttentionFamily::reads_tensor_maps(const Config& config) const {
  return vitune::reads_tensor_maps(config);
}

}  // namespace vitune
