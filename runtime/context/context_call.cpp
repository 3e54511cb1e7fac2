// runtime/context/context_call.cpp -- What happens in a call: the prepared one, and the first.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "core/error.h"
#include "runtime/api/last_error.h"
#include "runtime/context/context.h"
#include "runtime/context/pointer_check.h"

namespace vitune {
namespace {

CallCounters::Kind kind_of(LookupOutcome outcome) noexcept {
  switch (outcome) {
    case LookupOutcome::kExact:
      return CallCounters::kExact;
    case LookupOutcome::kNearest:
      return CallCounters::kNearest;
    case LookupOutcome::kTransferred:
      return CallCounters::kTransferred;
    case LookupOutcome::kDefault:
      break;
  }
  return CallCounters::kDefault;
}

vitune_status fail_with_launch(const PreparedPlan& plan, const LaunchResult& launched) noexcept {
  try {
    plan.check(launched);
    return VITUNE_OK;
  } catch (...) {
    return fail_with_current_exception();
  }
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

const Plan* RuntimeContext::ready_plan(const PlanKey& key) const noexcept {
  const PreparedCall* const call = table_.find(key);
  if (call == nullptr || settings_.check_pointers) [[unlikely]]
    return nullptr;
  return call->plan.load(std::memory_order_acquire);
}

vitune_status RuntimeContext::answer(const Plan& plan, const Call& call) noexcept {
  if (plan.status == VITUNE_OK) [[likely]]
    return launch(plan, call);
  return refuse(plan);
}

vitune_status RuntimeContext::launch(const Plan& plan, const Call& call) noexcept {
  const auto needed = static_cast<std::uint64_t>(plan.launch->scratch_bytes());
  if (needed > 0) [[unlikely]] {
    if (const auto status = check_workspace(plan.footprint, call, needed)) return status;
  }
  const CurrentContext current(primary_);
  if (current.result() != kCuSuccess) [[unlikely]] {
    return fail_with_driver(primary_.driver(), current.result(), current.call());
  }
  const LaunchResult launched = plan.launch->launch(call.tensors, call.workspace, call.stream);
  if (launched.result != kCuSuccess) [[unlikely]]
    return fail_with_launch(*plan.launch, launched);
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
vitune_status RuntimeContext::check_pointers(Entry& entry, const Plan& plan, const Call& call) {
  const bool has_scratch = plan.launch && plan.launch->scratch_bytes() > 0;
  const auto status = check_with_driver(primary_.driver(), settings_.device, plan.footprint,
                                        call.tensors, has_scratch ? call.workspace : 0);
  if (status != VITUNE_OK) return status;
  const std::lock_guard lock(mutex_);
  if (!std::exchange(entry.pointers_checked, true)) entry.tell_calls();
  return VITUNE_OK;
}

vitune_status RuntimeContext::call_in_capture(const Request& request, const Call& call) {
  Entry* const entry = find_entry(*request.problem, &request.key);
  const Plan* const plan = entry != nullptr ? entry->plan.load(std::memory_order_acquire) : nullptr;
  if (plan != nullptr) return answer(*plan, call);
  return fail(VITUNE_NOT_PREPARED, "the stream is being captured and nothing is loaded for '" +
                                       request.problem->text() +
                                       "': call vitune_prepare() before the capture");
}

vitune_status RuntimeContext::first_call(const Request& request, const Call& call) {
  const CurrentContext current(primary_);
  primary_.driver().check(current.result(), current.call());
  if (is_capturing(call.stream)) return call_in_capture(request, call);
  Entry& entry = entry_of(request.problem, &request.key);
  const bool is_new = entry.plan.load(std::memory_order_acquire) == nullptr;
  const Plan& plan = wait_for_plan(entry, settings_.stand_in_while_busy);
  if (plan.status == VITUNE_OK) {
    if (const auto status = check_pointers(entry, plan, call)) return status;
  }
  const vitune_status status = answer(plan, call);
  // After the launch, so that the GPU does not wait for the disk.
  const bool is_stand_in = &plan == entry.stand_in.load(std::memory_order_relaxed);
  if (is_new && !is_stand_in && plan.outcome != LookupOutcome::kExact) note_first_miss(entry);
  return status;
}

}  // namespace vitune
