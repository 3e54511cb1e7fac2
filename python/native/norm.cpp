// python/native/norm.cpp -- LayerNorm over the last dimension: a plan, the output, one launch;
// PyTorch's own where the kernels have no answer.
// SPDX-License-Identifier: Apache-2.0
#include "python/native/norm.h"

#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/core/ScalarType.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "python/native/host.h"
#include "python/native/operand.h"
#include "python/native/plan_cache.h"
#include "python/native/refusal.h"
#include "python/native/tensors.h"

namespace vitune::torch_ops {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

struct Call {
  Operand x;
  std::optional<Operand> weight, bias;
  double eps;
  uint64_t alignment;  // of all pointers
};

const char* type_word(int32_t dtype) {
  switch (static_cast<ScalarType>(dtype)) {
    case ScalarType::BFloat16:
      return "bf16";
    case ScalarType::Half:
      return "fp16";
    case ScalarType::Float:
      return "fp32";
    default:
      return nullptr;
  }
}

// Elements from a row of x to the next, its rows one after the other; nothing if they do not lie
// so, or their elements are apart (tokens that a convolution made).
std::optional<int64_t> row_stride(const View& view) {
  const auto last = static_cast<std::size_t>(view.rank - 1);
  if (view.strides[last] != 1 && view.shape[last] != 1) {
    return std::nullopt;
  }
  std::optional<int64_t> first;
  int64_t next = 0;  // what the stride of the dimension before must be
  for (std::size_t i = last; i-- > 0;) {
    if (view.shape[i] == 1) {
      continue;
    }
    if (!first) {
      first = view.strides[i];
    } else if (view.strides[i] != next) {
      return std::nullopt;
    }
    next = view.strides[i] * view.shape[i];
  }
  return first.value_or(view.shape[last]);
}

// True if no kernel can read it as it lies.
bool must_be_copied(const View& view) {
  return view.rank >= 1 && view.rank <= kMaxRank && !row_stride(view);
}

int64_t rows_of(const View& view) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < view.rank; ++i) {
    rows *= view.shape[static_cast<std::size_t>(i)];
  }
  return rows;
}

// True if it is a parameter of x's columns with a type that PyTorch takes beside x's.
bool fits(const std::optional<Operand>& parameter, const Operand& x, int64_t columns) {
  if (!parameter) {
    return true;
  }
  const View& view = parameter->view;
  return view.rank == 1 && view.shape[0] == columns && (view.strides[0] == 1 || columns == 1) &&
         parameter->device_type == x.device_type && parameter->device_index == x.device_index &&
         (parameter->dtype == x.dtype ||
          static_cast<ScalarType>(parameter->dtype) == ScalarType::Float);
}

// The problem's text (docs/problems.md); nothing where PyTorch has to answer.
std::optional<std::string> text_of(const Call& call) {
  const View& view = call.x.view;
  if (view.rank < 1 || view.rank > kMaxRank || type_word(call.x.dtype) == nullptr) {
    return std::nullopt;
  }
  const int64_t columns = view.shape[static_cast<std::size_t>(view.rank - 1)];
  const int64_t rows = rows_of(view);
  const std::optional<int64_t> stride = row_stride(view);
  const bool one_type = !call.weight || !call.bias || call.weight->dtype == call.bias->dtype;
  if (rows == 0 || columns == 0 || !stride || !one_type || !fits(call.weight, call.x, columns) ||
      !fits(call.bias, call.x, columns)) {
    return std::nullopt;
  }
  std::string text = std::string("norm ") + type_word(call.x.dtype) + " m=" + std::to_string(rows) +
                     " d=" + std::to_string(columns) + " x=@" + std::to_string(*stride);
  if (call.weight) {
    text += " weight";
  }
  if (call.bias) {
    text += " bias";
  }
  if (const auto& parameter = call.weight ? call.weight : call.bias) {
    text += std::string(" params=") + type_word(parameter->dtype);
  }
  char eps[32] = {};
  std::to_chars(eps, eps + sizeof(eps) - 1, call.eps);
  text += std::string(" eps=") + eps;
  if (call.alignment != 16) {
    text += " align=" + std::to_string(call.alignment);
  }
  return text;
}

std::shared_ptr<NormPlan> make_plan(const Call& call) {
  auto plan = std::make_shared<NormPlan>();
  const std::optional<std::string> text = text_of(call);
  // A problem that libvitune refuses (too many columns) is PyTorch's, as all others without a text.
  if (text && api().problem_create(text->c_str(), &plan->problem) != VITUNE_OK) {
    plan->problem = nullptr;
  }
  return plan;
}

uint64_t alignment_of(AtenTensorHandle x, AtenTensorHandle weight, AtenTensorHandle bias) {
  const uint64_t bits = 16 | reinterpret_cast<uint64_t>(address_of(x)) |
                        reinterpret_cast<uint64_t>(address_of(weight)) |
                        reinterpret_cast<uint64_t>(address_of(bias));
  return bits & (~bits + 1);
}

std::shared_ptr<const NormPlan> plan_of(const Call& call) {
  PlanKey key;
  key.add(call.x);
  int64_t eps = 0;
  std::memcpy(&eps, &call.eps, sizeof(eps));
  key.add(eps);
  key.add(static_cast<int64_t>(call.alignment << 2 | (call.weight ? 1 : 0) | (call.bias ? 2 : 0)));
  if (call.weight) {
    key.add(*call.weight);
  }
  if (call.bias) {
    key.add(*call.bias);
  }
  return PlanCache<NormPlan>::instance().find_or_make(key, [&] { return make_plan(call); });
}

Tensor torch_layer_norm(AtenTensorHandle x, AtenTensorHandle weight, AtenTensorHandle bias,
                        double eps) {
  using torch::stable::detail::from;
  const auto optional = [](AtenTensorHandle tensor) {
    return tensor != nullptr ? std::optional<Tensor>(shared(tensor)) : std::nullopt;
  };
  int64_t rank = 0, *shape = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(x, &rank));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(x, &shape));
  // PyTorch says itself of a number that it has no last dimension.
  const std::vector<int64_t> normalized(shape + (rank > 0 ? rank - 1 : 0), shape + rank);
  std::array<StableIValue, 6> stack = {
      from(shared(x)),      from(normalized), from(optional(weight)),
      from(optional(bias)), from(eps),        from(true)};
  TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher("aten::layer_norm", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

// PyTorch's result is contiguous, whatever x is; so is what it reads, copied where x is not.
View dense(const View& x) {
  View view{x.rank, x.shape, {}};
  int64_t step = 1;
  for (auto i = static_cast<std::size_t>(view.rank); i-- > 0;) {
    view.strides[i] = step;
    step *= view.shape[i];
  }
  return view;
}

}  // namespace

NormPlan::~NormPlan() {
  if (problem != nullptr) {
    api().problem_destroy(problem);
  }
}

void launch_norm_pointers(vitune_context* context, const NormPlan& plan,
                          const NormPointers& pointers, void* stream) {
  check(api().run(context, plan.problem, pointers.data(), pointers.size(), nullptr, 0, stream));
}

void launch_norm_on_gpu(const NormPlan& plan, const NormTensors& tensors) {
  const int32_t device = device_of(tensors[kNormX]);
  NormPointers pointers{};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    pointers[i] = address_of(tensors[i]);
  }
  launch_norm_pointers(context_of(device), plan, pointers, current_stream(device));
}

Held run_layer_norm_or_torch(AtenTensorHandle x, AtenTensorHandle weight, AtenTensorHandle bias,
                             double eps, LaunchNorm launch) {
  try {
    Call call{operand_of(x), {}, {}, eps, 0};
    const bool is_copied = must_be_copied(call.x.view);
    if (is_copied) {
      call.x.view = dense(call.x.view);
    }
    call.alignment = alignment_of(is_copied ? nullptr : x, weight, bias);
    if (weight != nullptr) {
      call.weight = operand_of(weight);
    }
    if (bias != nullptr) {
      call.bias = operand_of(bias);
    }
    if (const auto plan = plan_of(call); plan->problem != nullptr) {
      Held out = empty(dense(call.x.view), call.x.dtype, x), copy;
      if (is_copied) {
        copy = empty(call.x.view, call.x.dtype, x);
        TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(copy.get(), x, 0));
      }
      NormTensors tensors{};
      tensors[kNormX] = is_copied ? copy.get() : x;
      tensors[kNormWeight] = weight;
      tensors[kNormBias] = bias;
      tensors[kNormOut] = out.get();
      launch(*plan, tensors);
      count_norm();
      return out;
    }
  } catch (const Refusal&) {
    // No kernel, or none that may be prepared while a graph is captured: as without vitune.
  }
  return held(torch_layer_norm(x, weight, bias, eps));
}

}  // namespace vitune::torch_ops
