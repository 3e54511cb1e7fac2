// runtime/context_call.cpp -- What happens in a call: the prepared one, and the first.
#include <cstdio>

#include "core/error.h"
#include "runtime/call_check.h"
#include "runtime/context.h"
#include "runtime/descriptor.h"
#include "runtime/last_error.h"

namespace vitune {
namespace {

CallCounters::Kind kind_of(LookupOutcome outcome) noexcept {
  switch (outcome) {
    case LookupOutcome::kExact:
      return CallCounters::kExact;
    case LookupOutcome::kNearest:
      return CallCounters::kNearest;
    case LookupOutcome::kDefault:
      break;
  }
  return CallCounters::kDefault;
}

void set_pointers(AttentionParams& params, const Tensors& tensors) noexcept {
  params.q = reinterpret_cast<const void*>(tensors.q);
  params.k = reinterpret_cast<const void*>(tensors.k);
  params.v = reinterpret_cast<const void*>(tensors.v);
  params.o = reinterpret_cast<void*>(tensors.o);
  params.lse = reinterpret_cast<float*>(tensors.lse);
  params.bias = reinterpret_cast<const void*>(tensors.bias);
  params.mask = reinterpret_cast<const void*>(tensors.mask);
}

vitune_status fail_with_driver(const CudaDriver& driver, CuResult result,
                               const char* call) noexcept {
  try {
    driver.check(result, call);
    return VITUNE_OK;
  } catch (...) {
    return fail_with_current_exception();
  }
}

}  // namespace

vitune_status RuntimeContext::forward(const vitune_attention_desc* desc, const Tensors& tensors,
                                      CuStreamTag* stream) noexcept {
  const vitune_status status = try_forward(desc, tensors, stream);
  if (status != VITUNE_OK) [[unlikely]]
    counters_.add(CallCounters::kFailed);
  return status;
}

vitune_status RuntimeContext::try_forward(const vitune_attention_desc* desc, const Tensors& tensors,
                                          CuStreamTag* stream) noexcept {
  if (settings_.environment.disable) [[unlikely]] {
    return fail(VITUNE_DISABLED, "nothing is launched: VITUNE_DISABLE is set");
  }
  if (desc != nullptr && desc->size == sizeof(*desc)) [[likely]] {
    const auto key = key_of(*desc, call_alignments(*desc, tensors));
    Entry* const entry = key ? table_.find(*key) : nullptr;
    const Plan* const plan =
        entry != nullptr ? entry->plan.load(std::memory_order_acquire) : nullptr;
    if (plan != nullptr) {
      if (plan->status != VITUNE_OK) [[unlikely]]
        return refuse(*entry, *plan);
      if (entry->pointers_checked.load(std::memory_order_relaxed) && !settings_.check_pointers)
          [[likely]] {
        return launch(*entry, *plan, *desc, tensors, stream);
      }
    }
  }
  try {
    return first_call(read_description(desc), tensors, stream);
  } catch (...) {
    return fail_with_current_exception();
  }
}

vitune_status RuntimeContext::launch(Entry& entry, const Plan& plan,
                                     const vitune_attention_desc& desc, const Tensors& tensors,
                                     CuStreamTag* stream) noexcept {
  if (const auto status = check_tensors(desc, tensors)) [[unlikely]]
    return status;
  if (const auto status = check_sizes(desc, plan.footprint)) [[unlikely]]
    return status;
  if (const auto status = check_overlap(plan.footprint, tensors)) [[unlikely]]
    return status;
  AttentionParams params = plan.params;
  set_pointers(params, tensors);
  const CurrentContext current(primary_);
  if (current.result() != kCuSuccess) [[unlikely]] {
    return fail_with_driver(primary_.driver(), current.result(), "cuCtxPushCurrent");
  }
  const CuResult result = plan.kernel->kernel.try_launch(plan.shape, &params, stream);
  if (result != kCuSuccess) [[unlikely]] {
    return fail_with_driver(primary_.driver(), result, "cuLaunchKernel of attention");
  }
  counters_.add(kind_of(plan.outcome));
  // A stand-in says nothing of what the problem will be served by.
  if (plan.outcome != LookupOutcome::kExact &&
      &plan != entry.stand_in.load(std::memory_order_relaxed)) {
    entry.misses.fetch_add(1, std::memory_order_relaxed);
  }
  return VITUNE_OK;
}

vitune_status RuntimeContext::refuse(Entry& entry, const Plan& plan) noexcept {
  entry.misses.fetch_add(1, std::memory_order_relaxed);
  return fail(plan.status, plan.sentence);
}

// Also where the driver says only that it cannot answer because of a capture (900 to 908): then
// loading would break it.
bool RuntimeContext::is_capturing(CuStreamTag* stream) const {
  int status = kCuStreamCaptureStatusNone;
  const CuResult result = primary_.driver().api().stream_is_capturing(stream, &status);
  if (result >= 900 && result <= 908) return true;
  primary_.driver().check(result, "cuStreamIsCapturing");
  return status != kCuStreamCaptureStatusNone;
}

vitune_status RuntimeContext::first_call(const vitune_attention_desc& desc, const Tensors& tensors,
                                         CuStreamTag* stream) {
  const Alignments alignments = call_alignments(desc, tensors);
  if (const auto status = check_tensors(desc, tensors)) return status;
  const AttentionProblem problem = problem_from(desc, alignments);
  const auto key = key_of(desc, alignments);
  if (!key) throw Error(ErrorCode::kFailure, "a description that is valid has no key");
  const std::string text = problem.text();

  const CurrentContext current(primary_);
  primary_.driver().check(current.result(), "cuCtxPushCurrent");
  const bool capturing = is_capturing(stream);
  Entry* const entry = capturing ? find_entry(*key, text) : &entry_of(*key, problem, text);
  const Plan* plan = entry != nullptr ? entry->plan.load(std::memory_order_acquire) : nullptr;
  const bool is_new = plan == nullptr;
  if (is_new && capturing) {
    return fail(VITUNE_NOT_PREPARED, "the stream is being captured and nothing is loaded for '" +
                                         text + "': call vitune_prepare() before the capture");
  }
  if (is_new) plan = &wait_for_plan(*entry, settings_.stand_in_while_busy);
  vitune_status status = VITUNE_OK;
  if (plan->status != VITUNE_OK) {
    status = refuse(*entry, *plan);
  } else {
    if (!capturing) {
      status = check_with_driver(primary_.driver(), settings_.device, tensors);
      if (status != VITUNE_OK) return status;
      entry->pointers_checked.store(true, std::memory_order_relaxed);
    }
    status = launch(*entry, *plan, desc, tensors, stream);
  }
  // After the launch, so that the GPU does not wait for the disk.
  const bool is_stand_in = plan == entry->stand_in.load(std::memory_order_relaxed);
  if (is_new && !is_stand_in && plan->outcome != LookupOutcome::kExact) note_first_miss(*entry);
  return status;
}

}  // namespace vitune
