// python/native/attention_plan.cpp -- Checks a call's tensors, describes it to libvitune, and keeps
// that.
// SPDX-License-Identifier: Apache-2.0
#include "python/native/attention_plan.h"

#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "python/native/operand.h"
#include "python/native/plan_cache.h"
#include "python/native/refusal.h"

namespace vitune::torch_ops {
namespace {

using torch::headeronly::ScalarType;
using PlanPtr = std::shared_ptr<const AttentionPlan>;

// VITUNE_NONE for what is no type of the kernels.
int32_t element_type(int32_t dtype) {
  switch (static_cast<ScalarType>(dtype)) {
    case ScalarType::BFloat16:
      return VITUNE_BF16;
    case ScalarType::Half:
      return VITUNE_FP16;
    case ScalarType::Float:
      return VITUNE_FP32;
    case ScalarType::Bool:
      return VITUNE_BOOL;
    default:
      return VITUNE_NONE;
  }
}

int64_t element_size(int32_t type) { return type == VITUNE_FP32 ? 4 : type == VITUNE_BOOL ? 1 : 2; }

struct Call {
  Operand q, k, v;
  std::optional<Operand> mask;
  bool is_causal;
  double scale;  // 0: the usual one
  bool enable_gqa, return_lse, window_masks;
  Order order;
};

void check_operands(const Call& call, std::optional<double> scale) {
  const int32_t type = element_type(call.q.dtype);
  if (type != VITUNE_BF16 && type != VITUNE_FP16) {
    refuse_unsupported("dtype " + dtype_name(call.q.dtype) +
                       ": the kernels take bfloat16 and float16");
  }
  if (call.k.dtype != call.q.dtype || call.v.dtype != call.q.dtype) {
    refuse_argument("q, k and v have the dtypes " + dtype_name(call.q.dtype) + ", " +
                    dtype_name(call.k.dtype) + " and " + dtype_name(call.v.dtype) +
                    ": they must agree");
  }
  const std::pair<const char*, const Operand*> others[] = {
      {"k", &call.k}, {"v", &call.v}, {"attn_mask", call.mask ? &*call.mask : nullptr}};
  for (const auto& [name, operand] : others) {
    if (operand != nullptr && (operand->device_type != call.q.device_type ||
                               operand->device_index != call.q.device_index)) {
      refuse_argument(std::string(name) + " is on " + device_name(*operand) + " and q on " +
                      device_name(call.q) + ": they must be on one GPU");
    }
  }
  if (call.mask && call.is_causal) {
    refuse_argument("attn_mask and is_causal=True exclude each other, as in PyTorch");
  }
  const int32_t mask_type = call.mask ? element_type(call.mask->dtype) : type;
  if (mask_type != VITUNE_BOOL && mask_type != VITUNE_FP32 && mask_type != type) {
    const std::string of_q = dtype_name(call.q.dtype);
    refuse_unsupported("attn_mask of dtype " + dtype_name(call.mask->dtype) +
                       ": bool, float32 and " + of_q +
                       ", that of q, are understood, as in PyTorch");
  }
  if (call.mask && call.mask->view.rank < 2 && call.q.view.rank == 4) {
    refuse_argument("attn_mask of rank " + std::to_string(call.mask->view.rank) +
                    ": it needs a dimension of queries and one of keys, as in PyTorch");
  }
  if (call.mask && call.mask->view.rank > kMaxRank) {
    refuse_argument("attn_mask of rank " + std::to_string(call.mask->view.rank) +
                    " does not broadcast to the scores");
  }
  if (scale && *scale == 0.0) {
    refuse_unsupported("scale 0: every key would weigh the same");
  }
}

bool has_no_element(const View& view) {
  return std::find(view.shape.begin(), view.shape.begin() + view.rank, 0) !=
         view.shape.begin() + view.rank;
}

// That of the backend which PyTorch would choose at this moment; where it has none for such a call,
// that of cuDNN and flash.
Order torchs_order(const AttentionArguments& arguments) {
  std::array<StableIValue, 8> stack = torch_stack(arguments, arguments.mask);
  if (torch_call_dispatcher("aten::_fused_sdp_choice", "", stack.data(), TORCH_ABI_VERSION) != 0) {
    return view_of(arguments.q).rank == 4 ? Order::kOfQ : Order::kContiguous;
  }
  constexpr int64_t kMath = 0, kEfficient = 2;  // torch.nn.attention.SDPBackend
  const auto backend = take<int64_t>(stack[0]);
  return backend == kMath ? Order::kContiguous : backend == kEfficient ? Order::kRows : Order::kOfQ;
}

// The order of the result, as the call or PyTorch has it.
Order resolved(const Call& call, const AttentionArguments& arguments) {
  if (call.order != Order::kTorchs) {
    return call.order;
  }
  return call.mask && repeats(call.mask->view, call.q.view) ? Order::kRows
                                                            : torchs_order(arguments);
}

std::shared_ptr<AttentionPlan> described(const Call& call, const AttentionArguments& arguments) {
  LayoutOptions options{call.enable_gqa, call.window_masks, resolved(call, arguments), {}};
  if (options.order == Order::kOfQ) {
    options.like_q = strides_like(arguments.q);
  }
  const Layout layout =
      fold(call.q.view, call.k.view, call.v.view, call.mask ? &call.mask->view : nullptr, options);
  auto plan = std::make_shared<AttentionPlan>();
  vitune_attention_desc& desc = plan->desc;
  desc.dtype = element_type(call.q.dtype);
  desc.causal = call.is_causal ? 1 : 0;
  desc.batch = layout.batch;
  desc.heads = layout.heads;
  desc.kv_heads = layout.kv_heads;
  desc.nq = layout.nq;
  desc.nk = layout.nk;
  desc.d = layout.d;
  desc.scale = call.scale;
  desc.q = layout.strides[0];
  desc.k = layout.strides[1];
  desc.v = layout.strides[2];
  desc.o = layout.strides[3];
  desc.lse = call.return_lse ? 1 : 0;
  const int32_t mask_type = call.mask ? element_type(call.mask->dtype) : VITUNE_NONE;
  plan->mask_is_bias = call.mask && mask_type != VITUNE_BOOL;
  if (call.mask) {
    (plan->mask_is_bias ? desc.bias_type : desc.mask_type) = mask_type;
    (plan->mask_is_bias ? desc.bias_batches : desc.mask_batches) = layout.mask_batches;
    std::copy(layout.mask.begin(), layout.mask.end(),
              plan->mask_is_bias ? desc.bias_strides : desc.mask_strides);
  }
  const std::array<int64_t, 6> sizes = {2, 2, 2, element_size(mask_type), 2, 4};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    plan->steps[i] = layout.steps[i] * sizes[i];
  }
  plan->launches = layout.launches;
  plan->out = layout.out;
  plan->wanted_strides = layout.wanted_strides;
  plan->lse = layout.lse;
  plan->is_empty = has_no_element(layout.out) || layout.nk == 0;
  return plan;
}

PlanPtr make_plan(const Call& call, const AttentionArguments& arguments) {
  try {
    check_operands(call, arguments.scale);
    return described(call, arguments);
  } catch (const Refusal& refusal) {
    auto none = std::make_shared<AttentionPlan>();
    none->refusal = refusal;
    return none;
  }
}

// True if PyTorch's backends lay out the result differently, of a call that it takes. That it may
// choose the plain one where others serve, a caller has to say (order).
bool depends_on_switches(const Call& call) {
  const int32_t type = element_type(call.q.dtype);
  return call.q.view.rank == 4 && !has_rows_outside(call.q.view) &&
         (type == VITUNE_BF16 || type == VITUNE_FP16) && (!call.mask || call.mask->view.rank >= 2);
}

const PlanPtr& usable(const PlanPtr& plan) {
  if (plan->refusal) {
    throw *plan->refusal;
  }
  return plan;
}

}  // namespace

PlanPtr plan_of(const AttentionArguments& arguments, bool window_masks) {
  Call call{operand_of(arguments.q),
            operand_of(arguments.k),
            operand_of(arguments.v),
            {},
            arguments.is_causal,
            arguments.scale.value_or(0.0),
            arguments.enable_gqa,
            arguments.return_lse,
            window_masks,
            arguments.order};
  if (arguments.mask != nullptr) {
    call.mask = operand_of(arguments.mask);
  }
  // Else the choice is made once, with the plan: no switch of PyTorch's changes the order then.
  if (call.order == Order::kTorchs && depends_on_switches(call)) {
    call.order = resolved(call, arguments);
  }
  PlanKey key;
  key.add(call.q);
  key.add(call.k);
  key.add(call.v);
  int64_t scale = 0;
  std::memcpy(&scale, &call.scale, sizeof(scale));
  key.add(scale);
  key.add((call.is_causal ? 1 : 0) | (call.enable_gqa ? 2 : 0) | (call.return_lse ? 4 : 0) |
          (window_masks ? 8 : 0) | (arguments.scale ? 16 : 0) | (call.mask ? 32 : 0) |
          static_cast<int64_t>(call.order) << 6);
  if (call.mask) {
    key.add(*call.mask);
  }
  return usable(PlanCache<AttentionPlan>::instance().find_or_make(
      key, [&] { return make_plan(call, arguments); }));
}

std::array<StableIValue, 8> torch_stack(const AttentionArguments& arguments,
                                        AtenTensorHandle mask) {
  using torch::stable::Tensor;
  using torch::stable::detail::from;
  return {from(shared(arguments.q)),
          from(shared(arguments.k)),
          from(shared(arguments.v)),
          from(mask != nullptr ? std::optional<Tensor>(shared(mask)) : std::nullopt),
          from(0.0),
          from(arguments.is_causal),
          from(arguments.scale),
          from(arguments.enable_gqa)};
}

Extents strides_like(AtenTensorHandle q) {
  return view_of(torch::stable::empty_like(shared(q)).get()).strides;
}

}  // namespace vitune::torch_ops
