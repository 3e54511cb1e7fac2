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

// The tensor of that view, or a copy of it with those strides.
Held laid_out(Held tensor, const View& view, const Extents& strides) {
  if (view.strides == strides) {
    return tensor;
  }
  Held copy = empty({view.rank, view.shape, strides}, dtype_of(tensor.get()), tensor.get());
  TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(copy.get(), tensor.get(), 0));
  return copy;
}

Held contiguous(Held tensor, const View& view) {
  return shared(tensor.get()).is_contiguous()
             ? std::move(tensor)
             : laid_out(std::move(tensor), view, contiguous_strides(view.rank, view.shape));
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
  made.out = laid_out(std::move(made.out), plan->out, plan->wanted_strides);
  if (made.lse) {
    made.lse = contiguous(std::move(made.lse), plan->lse);
  }
  return made;
}

// A bias of fp32, as autocast leaves it, in the type of a 16-bit q: not every kernel of PyTorch's
// takes another. Null where the mask stays as it is: PyTorch refuses all further types, and shall.
Held bias_of_q(const AttentionArguments& arguments) {
  const int32_t of_q = dtype_of(arguments.q);
  if (arguments.mask == nullptr || dtype_of(arguments.mask) != aoti_torch_dtype_float32() ||
      (of_q != aoti_torch_dtype_bfloat16() && of_q != aoti_torch_dtype_float16())) {
    return {};
  }
  View view = view_of(arguments.mask);
  if (view.rank > kMaxRank) {
    return {};
  }
  view.strides = contiguous_strides(view.rank, view.shape);
  Held bias = empty(view, of_q, arguments.q);
  TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(bias.get(), arguments.mask, 0));
  return bias;
}

// PyTorch's own answer.
Tensor torch_attention(const AttentionArguments& arguments) {
  const Held bias = bias_of_q(arguments);
  std::array<StableIValue, 8> stack = torch_stack(arguments, bias ? bias.get() : arguments.mask);
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::scaled_dot_product_attention", "",
                                               stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

// The shape and strides that _ops/order.py promises a compiler in an order but kTorchs: q's
// shape, its leading extents of 1 broadcast to those of k and v, and v's last.
View promised(Order order, const AttentionArguments& arguments) {
  const View q = view_of(arguments.q), k = view_of(arguments.k), v = view_of(arguments.v);
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
  if (order == Order::kOfQ && view.shape == q.shape) {
    view.strides = strides_like(arguments.q);
  } else if (order == Order::kRows) {
    view.strides = output_strides(q.rank, view.shape, same_rank ? v.strides : Extents{});
  } else {
    view.strides = contiguous_strides(q.rank, view.shape);
  }
  return view;
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
  Held out = held(torch_attention(arguments));
  const View given = view_of(out.get());
  if (arguments.order == Order::kTorchs || view_of(arguments.q).rank > kMaxRank) {
    return out;
  }
  const View wanted = promised(arguments.order, arguments);
  // For operands of several ranks nothing is promised: no compiler sees such a call.
  return given.rank == wanted.rank && given.shape == wanted.shape
             ? laid_out(std::move(out), given, wanted.strides)
             : std::move(out);
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

Order order_of(int64_t number) {
  if (number < static_cast<int64_t>(Order::kTorchs) || number > static_cast<int64_t>(Order::kOfQ)) {
    refuse_argument("order " + std::to_string(number) + " is none: 0 to 3 are");
  }
  return static_cast<Order>(number);
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

Held run_attention_or_refuse(const AttentionArguments& arguments, LaunchAttention launch) {
  try {
    return run(arguments, false, launch).out;
  } catch (const Refusal& refusal) {
    count_fallback(reason_of(refusal));
    const int rank = view_of(arguments.q).rank;
    if (refusal.status() == VITUNE_INVALID_ARGUMENT && view_of(arguments.k).rank == rank &&
        view_of(arguments.v).rank == rank) {
      throw;
    }
  }
  return fallen_back(arguments);
}

}  // namespace vitune::torch_ops
