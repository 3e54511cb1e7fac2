// benchmarks/cudnn_attention.cpp -- A graph with one SDPA node over the tensors of a problem.
// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cudnn_attention.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "core/format.h"

namespace vitune::bench {
namespace {

namespace fe = cudnn_frontend;
using Graph = fe::graph::Graph;
using TensorOptions = fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<TensorOptions>;

enum Uid : std::int64_t { kQ = 1, kK, kV, kO, kLse, kBias };

void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw Error(ErrorCode::kFailure, formatted("{}: {}", call, cudnnGetErrorString(status)));
}

void check(fe::error_t status, ErrorCode code, const char* step) {
  if (status.is_good()) return;
  throw Error(code, formatted("cuDNN cannot {} this problem: {}", step, status.get_message()));
}

fe::DataType_t data_type(ElementType type) {
  if (type == ElementType::kBf16) return fe::DataType_t::BFLOAT16;
  return type == ElementType::kFp16 ? fe::DataType_t::HALF : fe::DataType_t::FLOAT;
}

TensorOptions options(Uid uid, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides) {
  TensorOptions result;
  result.set_uid(uid).set_dim(std::move(sizes)).set_stride(std::move(strides));
  return result;
}

TensorOptions view(Uid uid, std::int64_t batch, std::int64_t heads, std::int64_t rows,
                   std::int64_t d, const TensorStrides& s) {
  return options(uid, {batch, heads, rows, d}, {s.batch, s.head, s.row, 1});
}

// Where vitune broadcasts by a stride of 0, cuDNN does by a size of 1.
TensorOptions bias_view(const AttentionProblem& p) {
  const ScoreOperand& bias = *p.bias;
  if (bias.batches != 1 && bias.batches != p.batch) {
    throw Error(
        ErrorCode::kUnsupported,
        formatted("cuDNN has no bias of {} entries for a batch of {}", bias.batches, p.batch));
  }
  std::vector<std::int64_t> sizes = {bias.batches, p.heads, p.nq, p.nk};
  std::vector<std::int64_t> strides(bias.strides.begin(), bias.strides.end());
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (strides[i] != 0 && sizes[i] != 1) continue;
    sizes[i] = 1;
    strides[i] = i + 1 == strides.size() ? 1 : p.nq * p.nk;
  }
  TensorOptions result = options(kBias, std::move(sizes), std::move(strides));
  result.set_data_type(data_type(bias.type));
  return result;
}

std::shared_ptr<Graph> graph_of(const AttentionProblem& p) {
  auto graph = std::make_shared<Graph>();
  graph->set_io_data_type(data_type(p.dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const Tensor q = graph->tensor(view(kQ, p.batch, p.heads, p.nq, p.d, p.q));
  const Tensor k = graph->tensor(view(kK, p.batch, p.kv_heads, p.nk, p.d, p.k));
  const Tensor v = graph->tensor(view(kV, p.batch, p.kv_heads, p.nk, p.d, p.v));
  auto sdpa = fe::graph::SDPA_attributes()
                  .set_name("attention")
                  .set_generate_stats(p.lse)
                  .set_causal_mask(p.causal)
                  .set_attn_scale(static_cast<float>(p.scale));
  if (p.bias) sdpa.set_bias(graph->tensor(bias_view(p)));
  const auto [out, stats] = graph->sdpa(q, k, v, sdpa);
  out->set_output(true)
      .set_uid(kO)
      .set_dim({p.batch, p.heads, p.nq, p.d})
      .set_stride({p.o.batch, p.o.head, p.o.row, 1});
  if (p.lse) {
    stats->set_output(true)
        .set_uid(kLse)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({p.batch, p.heads, p.nq, 1})
        .set_stride({p.heads * p.nq, p.nq, 1, 1});
  }
  return graph;
}

void* pointer(CuPointer address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

}  // namespace

struct CudnnAttention::Plan {
  cudnnHandle_t handle = nullptr;
  std::shared_ptr<Graph> graph;
  std::unordered_map<std::int64_t, void*> tensors;
  DeviceBuffer workspace;

  Plan() { check(cudnnCreate(&handle), "cudnnCreate"); }
  ~Plan() { cudnnDestroy(handle); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
};

CudnnAttention::CudnnAttention(const CudaDriver& driver, const CudaStream& stream,
                               const AttentionProblem& p, const AttentionPointers& at) {
  if (p.mask) throw Error(ErrorCode::kUnsupported, "cuDNN has no bool mask");
  plan_ = std::make_unique<Plan>();
  check(cudnnSetStream(plan_->handle, reinterpret_cast<cudaStream_t>(stream.get())),
        "cudnnSetStream");
  plan_->graph = graph_of(p);
  check(plan_->graph->build(plan_->handle, {fe::HeurMode_t::A}), ErrorCode::kUnsupported, "plan");
  std::int64_t bytes = 0;
  check(plan_->graph->get_workspace_size(bytes), ErrorCode::kFailure, "size the workspace of");
  plan_->workspace =
      DeviceBuffer(driver, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 16)));
  plan_->tensors = {
      {kQ, pointer(at.q)}, {kK, pointer(at.k)}, {kV, pointer(at.v)}, {kO, pointer(at.o)}};
  if (p.lse) plan_->tensors[kLse] = pointer(at.lse);
  if (p.bias) plan_->tensors[kBias] = pointer(at.bias);
}

CudnnAttention::~CudnnAttention() = default;

void CudnnAttention::launch() const {
  check(plan_->graph->execute(plan_->handle, plan_->tensors, pointer(plan_->workspace.address())),
        ErrorCode::kFailure, "run");
}

}  // namespace vitune::bench
