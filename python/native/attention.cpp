// python/native/attention.cpp -- Runs attention: a plan, the outputs, the launches; PyTorch's own
// where that is wanted.
#include "python/native/attention.h"

#include <torch/csrc/stable/ops.h>

#include <cmath>
#include <limits>

#include "python/native/attention_plan.h"
#include "python/native/host.h"
#include "python/native/refusal.h"

namespace vitune::torch_ops {
namespace {

Tensor empty(const View& view, int32_t dtype, const Tensor& like) {
  int32_t device_type = 0, device_index = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(like.get(), &device_index));
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(view.rank, view.shape.data(), view.strides.data(),
                                                  dtype, device_type, device_index, &handle));
  return Tensor(handle);
}

int32_t dtype_of(const Tensor& tensor) {
  int32_t dtype = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &dtype));
  return dtype;
}

struct Outputs {
  Tensor out;
  std::optional<Tensor> lse;
};

Tensor contiguous(const Tensor& tensor, const View& view) {
  if (tensor.is_contiguous()) {
    return tensor;
  }
  View dense{view.rank, view.shape, {}};
  int64_t step = 1;
  for (auto i = static_cast<std::size_t>(view.rank); i-- > 0;) {
    dense.strides[i] = step;
    step *= view.shape[i];
  }
  Tensor copy = empty(dense, dtype_of(tensor), tensor);
  torch::stable::copy_(copy, tensor);
  return copy;
}

Outputs run(const AttentionArguments& arguments, bool window_masks, LaunchAttention launch) {
  const auto plan = plan_of(arguments, window_masks);
  Outputs made{empty(plan->out, dtype_of(arguments.q), arguments.q), {}};
  if (arguments.return_lse) {
    made.lse = empty(plan->lse, aoti_torch_dtype_float32(), arguments.q);
  }
  if (plan->is_empty) {
    // No key at all is a row without any key; PyTorch gives the same.
    torch::stable::zero_(made.out);
    if (made.lse) {
      torch::stable::fill_(*made.lse, -std::numeric_limits<double>::infinity());
    }
  } else {
    launch(*plan, {&arguments.q, &arguments.k, &arguments.v, arguments.mask, &made.out,
                   made.lse ? &*made.lse : nullptr});
    count_served();
  }
  if (made.lse) {
    made.lse = contiguous(*made.lse, plan->lse);
  }
  return made;
}

// PyTorch's own answer.
Tensor torch_attention(const AttentionArguments& arguments) {
  using torch::stable::detail::from;
  std::array<StableIValue, 8> stack = {
      from(arguments.q),
      from(arguments.k),
      from(arguments.v),
      from(arguments.mask != nullptr ? std::optional<Tensor>(*arguments.mask) : std::nullopt),
      from(0.0),
      from(arguments.is_causal),
      from(arguments.scale),
      from(arguments.enable_gqa)};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::scaled_dot_product_attention", "",
                                               stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

// The shape and strides that _torch_op.py promises a compiler: q's shape, its leading extents of 1
// broadcast to those of k and v.
View promised(const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto rank = static_cast<int>(q.dim());
  View view{rank, {}, {}};
  Extents v_strides{};
  for (int i = 0; i < rank; ++i) {
    const auto index = static_cast<std::size_t>(i);
    view.shape[index] = q.size(i);
    if (i < rank - 2 && view.shape[index] == 1 && k.dim() == rank && v.dim() == rank) {
      view.shape[index] = k.size(i) != 1 ? k.size(i) : v.size(i);
    }
    v_strides[index] = v.dim() == rank ? v.stride(i) : 0;
  }
  view.strides = output_strides(rank, view.shape, v_strides);
  return view;
}

// A text that is the same for all calls that fail alike.
std::string reason_of(const Refusal& refusal) {
  const vitune_status status = refusal.status();
  if (status == VITUNE_INVALID_ARGUMENT || status == VITUNE_UNSUPPORTED) {
    return refusal.what();
  }
  return std::string(api().status_name(status)) + ": " + refusal.what();
}

Tensor fallen_back(const AttentionArguments& arguments) {
  Tensor out = torch_attention(arguments);
  if (arguments.q.dim() > kMaxRank) {
    return out;
  }
  Tensor wanted =
      empty(promised(arguments.q, arguments.k, arguments.v), dtype_of(arguments.q), arguments.q);
  torch::stable::copy_(wanted, out);
  return wanted;
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
  const int32_t device = tensors[0]->get_device_index();
  AttentionPointers pointers{};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    pointers[i] = tensors[i] == nullptr ? nullptr : static_cast<char*>(tensors[i]->data_ptr());
  }
  launch_pointers(context_of(device), plan, pointers, current_stream(device));
}

Tensor run_attention(const AttentionArguments& arguments, bool fall_back, LaunchAttention launch) {
  try {
    return run(arguments, !fall_back, launch).out;
  } catch (const Refusal& refusal) {
    if (!fall_back) {
      remember(refusal.status(), refusal.what());
      throw;
    }
    count_fallback(reason_of(refusal));
  }
  return fallen_back(arguments);
}

std::tuple<Tensor, Tensor> run_attention_lse(const AttentionArguments& arguments,
                                             LaunchAttention launch) {
  try {
    Outputs made = run(arguments, true, launch);
    return {std::move(made.out), std::move(*made.lse)};
  } catch (const Refusal& refusal) {
    remember(refusal.status(), refusal.what());
    throw;
  }
}

}  // namespace vitune::torch_ops
