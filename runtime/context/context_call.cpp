// runtime/context/context_call.cpp -- What happens in a call: the prepared one, and the first.
#include <utility>

#include "core/error.h"
#include "generator/attention/tensor_maps.h"
#include "runtime/api/call_check.h"
#include "runtime/api/last_error.h"
#include "runtime/context/context.h"

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

vitune_status fail_with_maps(const CudaDriver& driver, CuResult result) noexcept {
  try {
    check_replaced_addresses(driver, result);
    return VITUNE_OK;
  } catch (...) {
    return fail_with_current_exception();
  }
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
    PlanKey key;
    const bool has_key = set_key(key, *desc, call_alignments(*desc, tensors));
    const PreparedCall* const call = has_key ? table_.find(key) : nullptr;
    const Plan* const plan = call != nullptr ? call->plan.load(std::memory_order_acquire) : nullptr;
    if (plan != nullptr && !settings_.check_pointers) [[likely]] {
      if (const auto status = check_call(*desc, plan->footprint, tensors)) [[unlikely]]
        return status;
      return answer(*plan, tensors, stream);
    }
  }
  try {
    return first_call(read_description(desc), tensors, stream);
  } catch (...) {
    return fail_with_current_exception();
  }
}

// Of a call whose description and pointers were found to be sound.
vitune_status RuntimeContext::answer(const Plan& plan, const Tensors& tensors,
                                     CuStreamTag* stream) noexcept {
  if (plan.status == VITUNE_OK) [[likely]]
    return launch(plan, tensors, stream);
  return refuse(plan);
}

vitune_status RuntimeContext::launch(const Plan& plan, const Tensors& tensors,
                                     CuStreamTag* stream) noexcept {
  AttentionParams params = plan.params;
  set_pointers(params, tensors);
  const CurrentContext current(primary_);
  if (current.result() != kCuSuccess) [[unlikely]] {
    return fail_with_driver(primary_.driver(), current.result(), current.call());
  }
  AttentionTensorMaps maps;  // nothing is in them where the kernel has no such parameter
  if (plan.has_maps) {
    maps = plan.maps;
    const CuResult replaced = replace_addresses(primary_.driver(), params, plan.has_bias_map, maps);
    if (replaced != kCuSuccess) [[unlikely]]
      return fail_with_maps(primary_.driver(), replaced);
  }
  const CuResult result = plan.kernel->kernel.try_launch(plan.shape, &params, stream, &maps);
  if (result != kCuSuccess) [[unlikely]] {
    return fail_with_driver(primary_.driver(), result, "cuLaunchKernel of attention");
  }
  counters_.add(kind_of(plan.outcome));
  // A stand-in says nothing of what the problem will be served by.
  if (plan.outcome != LookupOutcome::kExact &&
      &plan != plan.entry->stand_in.load(std::memory_order_relaxed)) {
    plan.entry->misses.fetch_add(1, std::memory_order_relaxed);
  }
  return VITUNE_OK;
}

vitune_status RuntimeContext::refuse(const Plan& plan) noexcept {
  plan.entry->misses.fetch_add(1, std::memory_order_relaxed);
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

// Asks the driver whose memory the pointers are; once per problem unless the options want more.
vitune_status RuntimeContext::check_pointers(Entry& entry, const Tensors& tensors) {
  const auto status = check_with_driver(primary_.driver(), settings_.device, tensors);
  if (status != VITUNE_OK) return status;
  const std::lock_guard lock(mutex_);
  if (!std::exchange(entry.pointers_checked, true)) entry.tell_calls();
  return VITUNE_OK;
}

vitune_status RuntimeContext::call_in_capture(const Request& request, const Tensors& tensors,
                                              CuStreamTag* stream) {
  Entry* const entry = find_entry(request);
  const Plan* const plan = entry != nullptr ? entry->plan.load(std::memory_order_acquire) : nullptr;
  if (plan != nullptr) return answer(*plan, tensors, stream);
  return fail(VITUNE_NOT_PREPARED, "the stream is being captured and nothing is loaded for '" +
                                       request.text +
                                       "': call vitune_prepare() before the capture");
}

vitune_status RuntimeContext::first_call(const vitune_attention_desc& desc, const Tensors& tensors,
                                         CuStreamTag* stream) {
  // The pointers first: a tensor that is missing has no alignment.
  if (const auto status = check_tensors(desc, tensors)) return status;
  const Request request = request_of(desc, call_alignments(desc, tensors));
  if (const auto status = check_call(desc, footprint_of(request.problem), tensors)) return status;

  const CurrentContext current(primary_);
  primary_.driver().check(current.result(), current.call());
  if (is_capturing(stream)) return call_in_capture(request, tensors, stream);
  Entry& entry = entry_of(request);
  const bool is_new = entry.plan.load(std::memory_order_acquire) == nullptr;
  const Plan& plan = wait_for_plan(entry, settings_.stand_in_while_busy);
  if (plan.status == VITUNE_OK) {
    if (const auto status = check_pointers(entry, tensors)) return status;
  }
  const vitune_status status = answer(plan, tensors, stream);
  // After the launch, so that the GPU does not wait for the disk.
  const bool is_stand_in = &plan == entry.stand_in.load(std::memory_order_relaxed);
  if (is_new && !is_stand_in && plan.outcome != LookupOutcome::kExact) note_first_miss(entry);
  return status;
}

}  // namespace vitune
