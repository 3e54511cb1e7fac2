// generator/window_attention/plan.cpp -- The one launch of window attention.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <numeric>

#include "core/checked.h"
#include "generator/attention/kernel_spec.h"
#include "generator/window_attention/kernel_spec.h"

namespace vitune {
namespace {

constexpr std::size_t at_call(std::size_t member) {
  return offsetof(WindowAttentionParams, call) + member;
}

constexpr PointerSlot kPointers[] = {
    {kWindowQ, at_call(offsetof(AttentionParams, q))},
    {kWindowK, at_call(offsetof(AttentionParams, k))},
    {kWindowV, at_call(offsetof(AttentionParams, v))},
    {kWindowBias, at_call(offsetof(AttentionParams, bias))},
    {kWindowPadding, offsetof(WindowAttentionParams, padding)},
    {kWindowOut, at_call(offsetof(AttentionParams, o))},
};

AttentionView view_of(const TensorSpec& tensor) {
  return {tensor.strides[0], tensor.strides[2], tensor.strides[1]};
}

AttentionParams scores_params(const WindowAttentionProblem& p) {
  const std::vector<TensorSpec> tensors = window_attention_tensors(p);
  AttentionParams params{};
  params.q_view = view_of(tensors[kWindowQ]);
  params.k_view = view_of(tensors[kWindowK]);
  params.v_view = view_of(tensors[kWindowV]);
  params.o_view = view_of(tensors[kWindowOut]);
  params.bias_view = {0, 0, 0, 0, 1};
  params.mask_view = {0, 0, 0, 0, 1};
  if (p.bias) {
    const TensorSpec::Dims& strides = tensors[kWindowBias].strides;
    params.bias_view = {p.bias->windows == 1 ? 0 : strides[0], p.bias->heads == 1 ? 0 : strides[1],
                        strides[2], strides[3], static_cast<int>(p.bias->windows)};
  }
  params.batch = static_cast<int>(p.images * p.windows());
  params.heads = static_cast<int>(p.heads);
  params.heads_per_kv = 1;
  params.queries = static_cast<int>(p.keys());
  params.keys = static_cast<int>(p.keys());
  params.scale = static_cast<float>(p.scale);
  params.by_heads = attention_divisor(p.heads);
  params.by_bias_batches = attention_divisor(params.bias_view.batches);
  return params;
}

// CTAs, so that those that walk keep what they have in registers: a whole number of rounds over the
// biases that there are.
std::int64_t ctas_of(const WindowAttentionProblem& p, const Config& config,
                     const DeviceInfo& device, std::int64_t resident) {
  const std::int64_t each = config.at("kHeadsPerCta"), all = ceil_div(p.pairs(), each);
  if (config.at("kPersistent") == 0) return all;
  const std::int64_t room =
      std::max<std::int64_t>(device.sm_count, 1) * std::max<std::int64_t>(resident, 1);
  const std::int64_t ctas = std::min(all, room);
  if (config.at("kBiasInRegisters") == 0) return ctas;
  const std::int64_t biases = p.bias->windows * p.heads;
  const std::int64_t round = biases / std::gcd(biases, each);
  return ctas > round ? ctas - ctas % round : ctas;
}

}  // namespace

WindowAttentionParams window_attention_params(const WindowAttentionProblem& p) {
  WindowAttentionParams params{};
  params.call = scores_params(p);
  params.rows = static_cast<int>(p.rows);
  params.columns = static_cast<int>(p.columns);
  params.windows = static_cast<int>(p.windows());
  params.row_step = static_cast<int>(p.grid ? p.rows / p.window_rows : 1);
  params.column_step = static_cast<int>(p.grid ? p.columns / p.window_columns : 1);
  params.shift_rows = static_cast<int>(p.shift_rows);
  params.shift_columns = static_cast<int>(p.shift_columns);
  const auto rolled = [&](std::int64_t extent, std::int64_t windows, std::int64_t window) {
    return static_cast<int>(p.pads_first ? windows * window : extent);
  };
  params.roll_rows = rolled(p.rows, p.windows_down(), p.window_rows);
  params.roll_columns = rolled(p.columns, p.windows_across(), p.window_columns);
  params.by_windows = attention_divisor(p.windows());
  params.by_window_columns = attention_divisor(p.windows_across());
  return params;
}

LaunchPlan window_attention_plan(const WindowAttentionProblem& p, const Config& config,
                                 const DeviceInfo& device, std::span<const int> resident) {
  const WindowTiling t = window_tiling(p, config);
  KernelLaunch launch;
  launch.shape.waits_for_earlier = device.cc_major >= 9;  // wait_for_earlier_grids() in templates
  const std::int64_t at_once = resident.empty() ? 1 : resident.front();
  launch.shape.grid[0] = static_cast<std::uint32_t>(ctas_of(p, config, device, at_once));
  launch.shape.block[0] = static_cast<std::uint32_t>(t.threads());
  launch.shape.shared_bytes = static_cast<std::uint32_t>(t.shared_bytes());
  launch.params = parameter_bytes(window_attention_params(p));
  launch.pointers.assign(std::begin(kPointers), std::end(kPointers));
  LaunchPlan plan;
  plan.kernels.push_back(std::move(launch));
  return plan;
}

Demand window_attention_demand(const WindowAttentionProblem& p, const DeviceInfo& device) {
  // As attention's (generator/attention/floor.cpp): a read of keys serves 64 rows at most, 256
  // where a pair of SMs multiplies together.
  constexpr double kInstructionsPerScore = 4.5;
  const double rows = device.cc_major == 10 || device.cc_major == 11 ? 256 : 64;
  const double keys = static_cast<double>(p.keys());
  const double scores = static_cast<double>(p.pairs()) * keys * keys;
  const double reads = static_cast<double>(p.pairs()) * std::ceil(keys / rows) * keys;
  return {.tensor_flops = p.flops(),
          .exponentials = scores,
          .instructions = kInstructionsPerScore * scores,
          .shared_bytes =
              2 * reads * static_cast<double>(p.d) * static_cast<double>(element_bytes(p.type)),
          .bytes = p.min_bytes()};
}

}  // namespace vitune
