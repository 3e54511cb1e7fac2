// generator/prepared_matmul.cpp -- Writing a product down for cuBLASLt, and calling it.
// SPDX-License-Identifier: Apache-2.0
#include "generator/prepared_matmul.h"

#include <algorithm>

#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

using Api = CublasLtApi;

// Most workspace that a call may ask for; cuBLAS's own default on Hopper.
constexpr std::size_t kMostWorkspaceBytes = std::size_t{32} << 20;

int library_type(ElementType type) {
  switch (type) {
    case ElementType::kFp16:
      return Api::kFp16;
    case ElementType::kBf16:
      return Api::kBf16;
    case ElementType::kFp32:
      return Api::kFp32;
    case ElementType::kBool:
    case ElementType::kU8:
    case ElementType::kI32:
      break;
  }
  throw Error(ErrorCode::kFailure, "a product of bytes");
}

[[noreturn]] void refuse(const CublasLtHandle& library, const char* what, int status) {
  throw Error(ErrorCode::kUnsupported,
              formatted("{} does not take {}: {}", cublaslt_name(library.library->version), what,
                        library.library->api.status_name(status)));
}

// A call in the library's own structures.
struct Description {
  Api::Operation operation;
  Api::Layout a, b, c, d;

  Description(const MatmulCall& call, const CublasLtHandle& library) : library_(library) {
    const Api& api = library.library->api;
    require(api.operation_init(&operation, sizeof(operation), Api::kCompute32F, Api::kFp32),
            "a product in fp32");
    if (call.transpose_a) set(Api::kTransposeA, Api::kTransposed);
    if (call.transpose_b) set(Api::kTransposeB, Api::kTransposed);
    std::uint32_t epilogue = call.bias ? Api::kBias : 0;
    if (call.activation == MatmulCall::Activation::kRelu) epilogue += Api::kRelu;
    if (call.activation == MatmulCall::Activation::kGeluTanh) epilogue += Api::kGelu;
    if (call.b_sums) epilogue += Api::kSumsOfB;
    set(Api::kEpilogue, epilogue == 0 ? Api::kPlain : epilogue);
    if (const auto& vector = call.bias ? call.bias : call.b_sums) {
      set(Api::kBiasType, std::int32_t{library_type(vector->type)});
      // The pointer of a vector to come; only its alignment counts.
      set(Api::kBiasPointer, kNoAddress + static_cast<std::uintptr_t>(vector->alignment));
    }
    lay_out(a, call.a);
    lay_out(b, call.b);
    lay_out(c, call.c.value_or(call.d));
    lay_out(d, call.d);
  }

 private:
  void require(int status, const char* what) const {
    if (status != Api::kSuccess) refuse(library_, what, status);
  }
  template <class Value>
  void set(int attribute, Value value) {
    require(library_.library->api.operation_set(&operation, attribute, &value, sizeof(value)),
            "an attribute of the product");
  }
  void lay_out(Api::Layout& layout, const MatrixSlot& matrix) const {
    require(library_.library->api.layout_init(&layout, sizeof(layout), library_type(matrix.type),
                                              static_cast<std::uint64_t>(matrix.rows),
                                              static_cast<std::uint64_t>(matrix.columns),
                                              matrix.stride),
            "a matrix");
  }

  const CublasLtHandle& library_;
};

Api::Preference preference_of(const MatmulCall& call, const CublasLtHandle& library) {
  const Api& api = library.library->api;
  Api::Preference preference;
  const auto require = [&](int status) {
    if (status != Api::kSuccess) refuse(library, "a preference", status);
  };
  const auto set = [&](int attribute, auto value) {
    require(api.preference_set(&preference, attribute, &value, sizeof(value)));
  };
  const auto alignment = [](const MatrixSlot& matrix) {
    return static_cast<std::uint32_t>(matrix.alignment);
  };
  require(api.preference_init(&preference, sizeof(preference)));
  set(Api::kMostWorkspace, std::uint64_t{kMostWorkspaceBytes});
  set(Api::kReductionMask, Api::kReduceInComputeType);
  set(Api::kAlignmentA, alignment(call.a));
  set(Api::kAlignmentB, alignment(call.b));
  set(Api::kAlignmentC, alignment(call.c.value_or(call.d)));
  set(Api::kAlignmentD, alignment(call.d));
  return preference;
}

MatmulAlgorithm written_down(const Api::Proposal& proposal, std::int64_t version) {
  MatmulAlgorithm algorithm;
  algorithm.version = version;
  std::copy(std::begin(proposal.algorithm.data), std::end(proposal.algorithm.data),
            algorithm.words.begin());
  algorithm.workspace_bytes = static_cast<std::int64_t>(proposal.workspace_bytes);
  return algorithm;
}

}  // namespace

std::vector<MatmulAlgorithm> proposed_algorithms(const MatmulCall& call,
                                                 const CublasLtHandle& library, int most) {
  const Api& api = library.library->api;
  Description call_of(call, library);
  Api::Preference preference = preference_of(call, library);
  std::vector<Api::Proposal> proposals(static_cast<std::size_t>(most));
  int count = 0;
  const int status =
      api.propose(library.handle, &call_of.operation, &call_of.a, &call_of.b, &call_of.c,
                  &call_of.d, &preference, most, proposals.data(), &count);
  if (status == Api::kNotSupported) return {};
  if (status != Api::kSuccess) refuse(library, "the question for algorithms", status);
  proposals.resize(static_cast<std::size_t>(std::clamp(count, 0, most)));
  std::vector<MatmulAlgorithm> algorithms;
  for (const Api::Proposal& proposal : proposals) {
    if (proposal.state != Api::kSuccess || proposal.workspace_bytes > kMostWorkspaceBytes) continue;
    algorithms.push_back(written_down(proposal, library.library->version));
  }
  return algorithms;
}

PreparedMatmul::Place PreparedMatmul::place_of(const MatrixSlot& slot) {
  return {slot.tensor, static_cast<std::uintptr_t>(slot.offset)};
}

PreparedMatmul::PreparedMatmul(const MatmulCall& call,
                               std::shared_ptr<const CublasLtHandle> library)
    : library_(std::move(library)) {
  const CublasLt& opened = *library_->library;
  const MatmulAlgorithm& wanted = call.algorithm;
  if (opened.version != wanted.version) {
    throw Error(ErrorCode::kUnsupported,
                formatted("the plan calls {}, and {} is {}", cublaslt_name(wanted.version),
                          opened.path, cublaslt_name(opened.version)));
  }
  Description described(call, *library_);
  operation_ = described.operation;
  a_layout_ = described.a;
  b_layout_ = described.b;
  c_layout_ = described.c;
  d_layout_ = described.d;
  std::copy(wanted.words.begin(), wanted.words.end(), std::begin(algorithm_.data));
  Api::Proposal checked = {};
  const int status = opened.api.check(library_->handle, &operation_, &a_layout_, &b_layout_,
                                      &c_layout_, &d_layout_, &algorithm_, &checked);
  if (status != Api::kSuccess) refuse(*library_, "this algorithm for this problem", status);
  workspace_bytes_ = static_cast<std::size_t>(wanted.workspace_bytes);
  if (checked.workspace_bytes > workspace_bytes_) {
    throw Error(ErrorCode::kUnsupported,
                formatted("the algorithm needs {} bytes of workspace for this problem, the plan "
                          "has {}",
                          checked.workspace_bytes, workspace_bytes_));
  }
  a_ = place_of(call.a);
  b_ = place_of(call.b);
  d_ = place_of(call.d);
  c_ = place_of(call.c.value_or(call.d));
  beta_ = call.c ? 1 : 0;
  if (const auto& vector = call.bias ? call.bias : call.b_sums) bias_ = place_of(*vector);
  workspace_ = {PointerSlot::kScratch, static_cast<std::uintptr_t>(call.workspace_at)};
}

// The library's functions take pointers to what they only read as if they would write it.
int PreparedMatmul::launch(std::span<const std::uintptr_t> addresses, std::uintptr_t scratch,
                           CuStreamTag* stream) const noexcept {
  const Api& api = library_->library->api;
  const auto at = [&](const Place& place) {
    return reinterpret_cast<void*>(place.address(addresses, scratch));
  };
  Api::Operation operation = operation_;
  if (bias_) {
    const void* const bias = at(*bias_);
    const int status = api.operation_set(&operation, Api::kBiasPointer, &bias, sizeof(bias));
    if (status != Api::kSuccess) return status;
  }
  Api::Layout a = a_layout_, b = b_layout_, c = c_layout_, d = d_layout_;
  const float alpha = 1;
  return api.matmul(library_->handle, &operation, &alpha, at(a_), &a, at(b_), &b, &beta_, at(c_),
                    &c, at(d_), &d, &algorithm_, workspace_bytes_ > 0 ? at(workspace_) : nullptr,
                    workspace_bytes_, stream);
}

void PreparedMatmul::fail(int status) const {
  throw Error(ErrorCode::kFailure,
              formatted("{} refused a product that it took when it was prepared: {}",
                        cublaslt_name(library_->library->version),
                        library_->library->api.status_name(status)));
}

}  // namespace vitune
