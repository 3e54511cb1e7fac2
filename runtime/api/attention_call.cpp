// runtime/api/attention_call.cpp -- From descriptions of attention to the context's plans.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/attention_call.h"

#include "core/error.h"
#include "runtime/api/call_check.h"
#include "runtime/api/descriptor.h"
#include "runtime/api/last_error.h"

namespace vitune {
namespace {

// The description's problem, the sizes of buffers checked.
vitune_status sized_problem(const vitune_attention_desc& desc, ProblemPtr& problem) {
  problem = problem_from(desc, stated_alignments(desc));
  return check_sizes(desc, footprint_of(*problem));
}

vitune_status first_call(RuntimeContext& runtime, const vitune_attention_desc& desc,
                         const Tensors& tensors, const Call& call) {
  // The pointers first: a tensor that is missing has no alignment.
  if (const auto status = check_tensors(desc, tensors)) return status;
  const Request request = request_of(desc, call_alignments(desc, tensors));
  if (const auto status = check_call(desc, footprint_of(*request.problem), tensors, call.tensors))
    return status;
  return runtime.first_call(request, call);
}

vitune_status try_forward(RuntimeContext& runtime, const vitune_attention_desc* desc,
                          const Tensors& tensors, const Call& call) noexcept {
  if (runtime.disabled()) [[unlikely]] {
    return fail(VITUNE_DISABLED, "nothing is launched: VITUNE_DISABLE is set");
  }
  if (desc != nullptr && desc->size == sizeof(*desc)) [[likely]] {
    PlanKey key;
    const bool has_key = set_key(key, *desc, call_alignments(*desc, tensors));
    const Plan* const plan = has_key ? runtime.ready_plan(key) : nullptr;
    if (plan != nullptr) [[likely]] {
      if (const auto status = check_call(*desc, plan->footprint, tensors, call.tensors))
          [[unlikely]]
        return status;
      return runtime.answer(*plan, call);
    }
  }
  try {
    return first_call(runtime, read_description(desc), tensors, call);
  } catch (...) {
    return fail_with_current_exception();
  }
}

}  // namespace

vitune_status attention_forward(RuntimeContext& runtime, const vitune_attention_desc* desc,
                                const Tensors& tensors, Call call) noexcept {
  const auto addresses = tensors.addresses();
  call.tensors = addresses;
  const vitune_status status = try_forward(runtime, desc, tensors, call);
  if (status != VITUNE_OK) [[unlikely]]
    runtime.count_failure();
  return status;
}

vitune_status attention_prepare(RuntimeContext& runtime, const vitune_attention_desc* given) {
  if (runtime.disabled()) return runtime.prepare(nullptr, nullptr);
  const vitune_attention_desc desc = read_description(given);
  const Request request = request_of(desc, stated_alignments(desc));
  if (const auto status = check_sizes(desc, footprint_of(*request.problem))) return status;
  return runtime.prepare(request.problem, &request.key);
}

vitune_status attention_query(RuntimeContext& runtime, const vitune_attention_desc* given,
                              vitune_selection* selection) {
  if (selection == nullptr) throw Error(ErrorCode::kUsage, "selection is NULL");
  const vitune_attention_desc desc = read_description(given);
  ProblemPtr problem;
  if (const auto status = sized_problem(desc, problem)) return status;
  return runtime.query(problem, selection);
}

vitune_status attention_workspace(RuntimeContext& runtime, const vitune_attention_desc* given,
                                  std::size_t& bytes) {
  const vitune_attention_desc desc = read_description(given);
  ProblemPtr problem;
  if (const auto status = sized_problem(desc, problem)) return status;
  return runtime.workspace(problem, bytes);
}

}  // namespace vitune
