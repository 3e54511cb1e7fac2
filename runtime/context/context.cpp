// runtime/context/context.cpp -- Making and ending a context; one plan per problem, made by one
// thread.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/context/context.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "runtime/api/last_error.h"
#include "runtime/api/struct_check.h"
#include "runtime/context/explanation.h"
#include "runtime/dispatch/selection.h"

namespace vitune {

RuntimeContext::RuntimeContext(const Settings& settings)
    : settings_(settings),
      messages_(settings.log, settings.log_user, settings.environment.log_level),
      primary_(CudaDriver::open(), settings.device),
      device_query_(primary_.driver(), settings.device),
      databases_(settings.places, messages_.sink()),
      device_(device_query_.answer()) {
  for (const std::string& warning : settings_.warnings) messages_.log(LogLevel::kWarning, warning);
  loader_.emplace(primary_, device_, settings_.environment, databases_, settings_.may_compile,
                  messages_.sink());
  resolver_.emplace(device_, settings_.objective, settings_.on_miss, databases_, *loader_,
                    messages_.sink());
  if (settings_.environment.capture) {
    capture_.emplace(*settings_.environment.capture, messages_.sink());
  }
  if (settings_.refresh_seconds > 0) {
    refresher_ =
        std::thread([this] { refresh_every(std::chrono::seconds(settings_.refresh_seconds)); });
  }
}

RuntimeContext::~RuntimeContext() {
  if (refresher_.joinable()) {
    {
      const std::lock_guard lock(stopping_mutex_);
      stopping_ = true;
    }
    stop_.notify_all();
    refresher_.join();
  }
  try {
    flush();
  } catch (const std::exception& error) {
    messages_.log(LogLevel::kWarning, std::string("what was missed is not kept: ") + error.what());
  }
  // Modules are unloaded in the context that they were loaded in.
  const CurrentContext current(primary_);
  entries_.clear();
  resolver_.reset();
  loader_.reset();
}

void RuntimeContext::map_key(const PlanKey& key, Entry& entry) {
  if (table_.find(key) != nullptr) return;
  entry.calls.push_back(&table_.insert(key, entry.ready_plan()));
}

// Several descriptions may ask for the same (with the default scale spelled out, say). Without a
// key nothing is mapped: a problem that was named by its text.
Entry* RuntimeContext::find_entry(const Problem& problem, const PlanKey* key) {
  const std::lock_guard lock(mutex_);
  const auto at = entries_.find(problem.text());
  if (at == entries_.end()) return nullptr;
  if (key != nullptr) map_key(*key, *at->second);
  return at->second.get();
}

Entry& RuntimeContext::entry_of(const ProblemPtr& problem, const PlanKey* key) {
  if (Entry* known = find_entry(*problem, key)) return *known;
  if (capture_) capture_->add(problem);
  std::unique_lock lock(mutex_);
  auto at = entries_.find(problem->text());
  const bool is_new = at == entries_.end();
  if (is_new) at = entries_.emplace(problem->text(), std::make_unique<Entry>(problem)).first;
  Entry& entry = *at->second;
  if (key != nullptr) map_key(*key, entry);
  lock.unlock();
  if (is_new && settings_.environment.log_command) {
    messages_.say(formatted("vitune bench \"{}\"", problem->text()));
  }
  return entry;
}

// Called and left with the lock held; not held meanwhile.
void RuntimeContext::make_plan_of(Entry& entry, std::unique_lock<std::mutex>& lock) {
  entry.resolving = true;
  const std::uint64_t refreshes = refreshes_;
  lock.unlock();
  std::unique_ptr<Plan> plan;
  try {
    plan = resolver_->resolve(entry.problem);
  } catch (...) {
    lock.lock();
    entry.resolving = false;
    changed_.notify_all();
    throw;
  }
  lock.lock();
  entry.resolving = false;
  changed_.notify_all();  // of those who wait, whether or not there is room for the plan
  // It may have been worked out from databases that were replaced meanwhile: the next refresh
  // looks.
  if (refreshes != refreshes_) plan->provisional = true;
  entry.take(std::move(plan));
}

void RuntimeContext::make_stand_in_of(Entry& entry, std::unique_lock<std::mutex>& lock) {
  entry.resolving_stand_in = true;
  lock.unlock();
  std::unique_ptr<Plan> plan;
  try {
    plan = resolver_->resolve_default(entry.problem);
  } catch (const std::exception& error) {
    // Whoever makes the plan meets the same and reports it.
    messages_.log(LogLevel::kDebug, formatted("no stand-in: {}", error.what()));
  }
  lock.lock();
  // Without success the flag stays, so that nobody tries again.
  if (plan && plan->status == VITUNE_OK) {
    entry.take_stand_in(std::move(plan));
  }
  changed_.notify_all();
}

const Plan& RuntimeContext::wait_for_plan(Entry& entry, bool stand_in_will_do) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (const Plan* plan = entry.plan.load(std::memory_order_acquire)) return *plan;
    if (!entry.resolving) {
      make_plan_of(entry, lock);
      continue;
    }
    if (stand_in_will_do) {
      if (const Plan* plan = entry.stand_in.load(std::memory_order_acquire)) return *plan;
      if (!entry.resolving_stand_in) {
        make_stand_in_of(entry, lock);
        continue;
      }
    }
    changed_.wait(lock);
  }
}

vitune_status RuntimeContext::prepare(const ProblemPtr& problem, const PlanKey* key) {
  if (disabled()) return fail(VITUNE_DISABLED, "nothing is prepared: VITUNE_DISABLE is set");
  Entry& entry = entry_of(problem, key);
  const bool is_new = entry.plan.load(std::memory_order_acquire) == nullptr;
  const Plan& plan = wait_for_plan(entry, false);
  if (is_new && plan.outcome != LookupOutcome::kExact) note_first_miss(entry);
  return plan.status == VITUNE_OK ? VITUNE_OK : fail(plan.status, plan.sentence);
}

vitune_status RuntimeContext::workspace(const ProblemPtr& problem, std::size_t& bytes) {
  if (const auto status = prepare(problem, nullptr)) return status;
  bytes = static_cast<std::size_t>(plan_of(problem->text())->launch->scratch_bytes());
  return VITUNE_OK;
}

vitune_status RuntimeContext::query(const ProblemPtr& problem, vitune_selection* selection) {
  // Size in version 0.1, the first public one.
  constexpr std::size_t kFirstBytes = 3240;
  static_assert(sizeof(vitune_selection) >= kFirstBytes);
  const std::size_t size = selection->size;
  check_output_struct("selection", selection, size, kFirstBytes, sizeof(*selection));
  const std::string& text = problem->text();
  vitune_selection answer{};
  if (const Plan* plan = plan_of(text)) {
    if (plan->status != VITUNE_OK) return fail(plan->status, plan->sentence);
    answer = describe(*plan, text);
  } else {
    const Resolver::Preview preview = resolver_->preview(problem);
    if (preview.status != VITUNE_OK) return fail(preview.status, preview.sentence);
    answer = describe(preview, text);
  }
  answer.size = size;
  std::memcpy(selection, &answer, std::min(size, sizeof(answer)));
  return VITUNE_OK;
}

std::string RuntimeContext::explain(const ProblemPtr& problem) {
  std::string text = describe_problem(*problem, device_, settings_.objective);
  if (const Plan* plan = plan_of(problem->text())) {
    if (plan->status != VITUNE_OK) return text + describe_refusal(plan->sentence);
    text += describe_served(describe(*plan, problem->text()));
    return text + describe_passed_over(plan->passed_over);
  }
  const Resolver::Preview preview = resolver_->preview(problem);
  if (preview.status != VITUNE_OK) return text + describe_refusal(preview.sentence);
  text += describe_served(describe(preview, problem->text()));
  return text + describe_passed_over(preview.passed_over);
}

const Plan* RuntimeContext::plan_of(const std::string& text) {
  const std::lock_guard lock(mutex_);
  const auto at = entries_.find(text);
  return at == entries_.end() ? nullptr : at->second->plan.load(std::memory_order_acquire);
}

}  // namespace vitune
