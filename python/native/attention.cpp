// python/native/attention.cpp -- Runs attention: a plan, the outputs, the launches; PyTorch's own
// where that is wanted.
// SPDX-License-Identifier: Apache-2.0
#include "python/native/attention.h"

#include <torch/csrc/stable/ops.h>

#include <limits>

#include "python/native/attention_plan.h"
#include "python/native/host.h"
#include "python/native/operand.h"
#include "python/native/refusal.h"
#include "python/native/tensors.h"

namespace vitune::torch_ops {
namespace {

using torch::stable::Tensor;

Held contiguous(Held tensor, const View& view) {
  if (shared(tensor.get()).is_contiguous()) {
    return tensor;
  }
  View dense{view.rank, view.shape, {}};
  int64_t step = 1;
  for (auto i = static_cast<std::size_t>(view.rank); i-- > 0;) {
    dense.strides[i] = step;
    step *= view.shape[i];
  }
  Held copy = empty(dense, dtype_of(tensor.get()), tensor.get());
  Tensor filled = shared(copy.get());
  torch::stable::copy_(filled, shared(tensor.get()));
  return copy;
}

// No key at all is a row without any key; PyTorch gives the same.
void fill_empty(const AttentionResult& result) {
  TORCH_ERROR_CODE_CHECK(aoti_torch_zero_(result.out.get()));
  if (result.lse) {
    Tensor lse = shared(result.lse.get());
    torch::stable::fill_(lse, -std::numeric_limits<double>::infinity());
  }
}

AttentionResult run(const AttentionArguments& arguments, bool window_masks,
                    LaunchAttention launch) {
  const auto plan = plan_of(arguments, window_masks);
  AttentionResult made{empty(plan->out, dtype_of(arguments.q), arguments.q), {}};
  if (arguments.return_lse) {
    made.lse = empty(plan->lse, aoti_torch_dtype_float32(), arguments.q);
  }
  if (plan->is_empty) {
    fill_empty(made);
  } else {
    launch(*plan,
           {arguments.q, arguments.k, arguments.v, arguments.mask, made.out.get(), made.lse.get()});
    count_served();
  }
  if (made.lse) {
    made.lse = contiguous(std::move(made.lse), plan->lse);
  }
  return made;
}

// A bias of another type than q, as autocast leaves it, in q's: not every kernel of PyTorch's takes
// another. Null where the mask may stay as it is.
Held bias_of_q(const AttentionArguments& arguments) {
  if (arguments.mask == nullptr) {
    return {};
  }
  const int32_t type = dtype_of(arguments.mask);
  View view = view_of(arguments.mask);
  if (type == aoti_torch_dtype_bool() || type == dtype_of(arguments.q) || view.rank > kMaxRank) {
    return {};
  }
  int64_t stride = 1;
  for (auto i = static_cast<std::size_t>(view.rank); i-- > 0; stride *= view.shape[i]) {
    view.strides[i] = stride;
  }
  Held bias = empty(view, dtype_of(arguments.q), arguments.q);
  Tensor filled = shared(bias.get());
  torch::stable::copy_(filled, shared(arguments.mask));
  return bias;
}

// PyTorch's own answer.
Tensor torch_attention(const AttentionArguments& arguments) {
  const Held bias = bias_of_q(arguments);
  const AtenTensorHandle mask = bias ? bias.get() : arguments.mask;
  using torch::stable::detail::from;
  std::array<StableIValue, 8> stack = {
      from(shared(arguments.q)),
      from(shared(arguments.k)),
      from(shared(arguments.v)),
      from(mask != nullptr ? std::optional<Tensor>(shared(mask)) : std::nullopt),
      from(0.0),
      from(arguments.is_causal),
      from(arguments.scale),
      from(arguments.enable_gqa)};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::scaled_dot_product_attention", "",
                                               stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

// The shape and strides that _torch_op.py promises a compiler: q's shape, its leading extents of 1
// broadcast to those of k and v, and v's last.
View promised(const View& q, const View& k, const View& v) {
  View view{q.rank, q.shape, {}};
  const bool same_rank = k.rank == q.rank && v.rank == q.rank;
  for (int i = 0; same_rank && i < q.rank - 2; ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (view.shape[index] == 1) {
      view.shape[index] = k.shape[index] != 1 ? k.shape[index] : v.shape[index];
    }
  }
  if (same_rank && q.rank > 0) {
    view.shape[static_cast<std::size_t>(q.rank - 1)] =
        v.shape[static_cast<std::size_t>(q.rank - 1)];
  }
  view.strides = output_strides(q.rank, view.shape, same_rank ? v.strides : Extents{});
  return view;
}

bool is_same(const View& a, const View& b) {
  return a.rank == b.rank && a.shape == b.shape && a.strides == b.strides;
}

// A text that is the same for all calls that fail alike, but for the problem in it.
std::string reason_of(const Refusal& refusal) {
  const vitune_status status = refusal.status();
  if (status == VITUNE_INVALID_ARGUMENT || status == VITUNE_UNSUPPORTED) {
    return refusal.what();
  }
  return std::string(api().status_name(status)) + ": " + refusal.what();
}

Held fallen_back(const AttentionArguments& arguments) {
  const Tensor out = torch_attention(arguments);
  const View q = view_of(arguments.q);
  if (q.rank > kMaxRank) {
    return held(out);
  }
  const View wanted = promised(q, view_of(arguments.k), view_of(arguments.v));
  const View given = view_of(out.get());
  // Of operands of several ranks nothing is promised: no compiler sees such a call.
  if (is_same(wanted, given) || given.rank != wanted.rank || given.shape != wanted.shape) {
    return held(out);
  }
  Held copy = empty(wanted, dtype_of(arguments.q), arguments.q);
  Tensor filled = shared(copy.get());
  torch::stable::copy_(filled, out);
  return copy;
}

}  // namespace

void launch_pointers(vitune_context* context, const AttentionPlan& plan, AttentionPointers pointers,
                     void* stream) {
  const auto forward = api().attention_forward;
  for (int64_t launch = 0; launch < plan.launches; ++launch) {
    const auto& [q, k, v, mask, out, lse] = pointers;
    check(forward(context, &plan.desc, q, k, v, plan.mask_is_bias ? mask : nullptr,
                  plan.mask_is_bias ? nullptr : mask, out, reinterpret_cast<float*>(lse), nullptr,
                  0, stream));
    for (std::size_t i = 0; i < pointers.size(); ++i) {
      pointers[i] = pointers[i] == nullptr ? nullptr : pointers[i] + plan.steps[i];
    }
  }
}

void launch_on_gpu(const AttentionPlan& plan, const AttentionTensors& tensors) {
  const int32_t device = device_of(tensors[0]);
  AttentionPointers pointers{};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    pointers[i] = address_of(tensors[i]);
  }
  launch_pointers(context_of(device), plan, pointers, current_stream(device));
}

AttentionResult run_attention(const AttentionArguments& arguments, LaunchAttention launch) {
  try {
    return run(arguments, true, launch);
  } catch (const Refusal& refusal) {
    remember(refusal.status(), refusal.what());
    throw;
  }
}

Held run_attention_or_torch(const AttentionArguments& arguments, LaunchAttention launch) {
  try {
    return run(arguments, false, launch).out;
  } catch (const Refusal& refusal) {
    count_fallback(reason_of(refusal));
  }
  return fallen_back(arguments);
}

}  // namespace vitune::torch_ops
