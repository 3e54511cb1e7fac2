// runtime/api/problem_call.cpp -- From texts of any operator to the context's plans.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/problem_call.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/digest.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/operator.h"
#include "runtime/api/failed.h"
#include "runtime/api/last_error.h"
#include "runtime/api/struct_check.h"
#include "runtime/context/pointer_check.h"
#include "runtime/context/texts.h"

namespace vitune {
namespace {

constexpr std::size_t kFirstTensorBytes = 128;
static_assert(sizeof(vitune_tensor) >= kFirstTensorBytes);
constexpr std::size_t kMostTensors = 16;

// A canonical text is all that decides; its SHA-256 stands for it.
PlanKey key_of_text(const std::string& text) {
  PlanKey key{};
  const Digest digest = sha256(text);
  key.words[0] = std::uint64_t{1} << 31;  // apart from the keys of descriptions
  static_assert(sizeof(digest.bytes) + sizeof(key.words[0]) <= sizeof(key.words));
  std::memcpy(key.words + 1, digest.bytes.data(), sizeof(digest.bytes));
  key.hash = XXH3_64bits(key.words, sizeof(key.words));
  return key;
}

std::int32_t type_code(ElementType type) {
  switch (type) {
    case ElementType::kBf16:
      return VITUNE_BF16;
    case ElementType::kFp16:
      return VITUNE_FP16;
    case ElementType::kFp32:
      return VITUNE_FP32;
    case ElementType::kU8:
      return VITUNE_U8;
    case ElementType::kI32:
      return VITUNE_I32;
    case ElementType::kBool:
      break;
  }
  return VITUNE_BOOL;
}

vitune_status check_tensor(const TensorSpec& spec, std::uintptr_t address) noexcept {
  if (spec.given != (address != 0)) {
    return failed(VITUNE_INVALID_ARGUMENT,
                  spec.given
                      ? "%s is NULL or left out, but the problem has it"
                      : "%s is not NULL, but the problem has none: say so there or pass NULL",
                  spec.name.c_str());
  }
  if (address % static_cast<std::uintptr_t>(spec.alignment) == 0) return VITUNE_OK;
  return failed(VITUNE_INVALID_ARGUMENT,
                "%s is at %#llx, which is no multiple of the %lld bytes that the problem says: "
                "align it, or state a smaller align= there",
                spec.name.c_str(), static_cast<unsigned long long>(address),
                static_cast<long long>(spec.alignment));
}

vitune_status check_tensors(const vitune_problem& problem,
                            std::span<const std::uintptr_t> addresses) noexcept {
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (const auto status = check_tensor(problem.tensors[i], addresses[i])) [[unlikely]]
      return status;
  }
  return check_overlap(problem.footprint, addresses);
}

vitune_status try_run(RuntimeContext& runtime, const vitune_problem* problem,
                      std::span<void* const> tensors, Call& call) noexcept {
  if (runtime.disabled()) [[unlikely]] {
    return fail(VITUNE_DISABLED, "nothing is launched: VITUNE_DISABLE is set");
  }
  if (problem == nullptr) return failed(VITUNE_INVALID_ARGUMENT, "problem is NULL");
  // Callers of a version whose problems had fewer tensors leave the new ones out.
  if (tensors.empty() || tensors.size() > problem->tensors.size()) {
    return failed(VITUNE_INVALID_ARGUMENT, "%zu tensors are given: calls of this problem have %zu",
                  tensors.size(), problem->tensors.size());
  }
  std::array<std::uintptr_t, kMostTensors> addresses = {};
  std::transform(tensors.begin(), tensors.end(), addresses.begin(),
                 [](void* at) { return reinterpret_cast<std::uintptr_t>(at); });
  call.tensors = std::span(addresses.data(), problem->tensors.size());
  if (const auto status = check_tensors(*problem, call.tensors)) [[unlikely]]
    return status;
  if (const Plan* const plan = runtime.ready_plan(problem->request.key)) [[likely]]
    return runtime.answer(*plan, call);
  try {
    return runtime.first_call(problem->request, call);
  } catch (...) {
    return fail_with_current_exception();
  }
}

}  // namespace

void describe_tensor(const vitune_problem& problem, std::size_t place, vitune_tensor& tensor) {
  const std::size_t size = tensor.size;
  check_output_struct("tensor", &tensor, size, kFirstTensorBytes, sizeof(tensor));
  if (place >= problem.tensors.size()) {
    throw Error(ErrorCode::kUsage, formatted("there is no tensor {}: the problem has {}", place,
                                             problem.tensors.size()));
  }
  const TensorSpec& spec = problem.tensors[place];
  vitune_tensor result = VITUNE_TENSOR_INIT;
  result.size = size;
  copy_text(result.name, sizeof(result.name), spec.name);
  result.given = spec.given ? 1 : 0;
  result.output = spec.role == Role::kOutput ? 1 : 0;
  result.type = type_code(spec.type);
  result.alignment = static_cast<std::int32_t>(spec.alignment);
  std::copy(spec.extents.begin(), spec.extents.end(), std::begin(result.extents));
  std::copy(spec.strides.begin(), spec.strides.end(), std::begin(result.strides));
  result.bytes = spec.given ? spec.bytes() : 0;
  std::memcpy(&tensor, &result, std::min(size, sizeof(result)));
}

vitune_status run_problem(RuntimeContext& runtime, const vitune_problem* problem,
                          std::span<void* const> tensors, Call call) noexcept {
  const vitune_status status = try_run(runtime, problem, tensors, call);
  if (status != VITUNE_OK) [[unlikely]]
    runtime.count_failure();
  return status;
}

}  // namespace vitune

vitune_problem::vitune_problem(vitune::ProblemPtr problem)
    : request{vitune::key_of_text(problem->text()), problem},
      tensors(problem->op().tensors(*problem)),
      footprint(vitune::footprint_of(*problem)) {
  if (tensors.size() > vitune::kMostTensors) {
    throw vitune::Error(vitune::ErrorCode::kFailure, "a problem has too many tensors");
  }
}
