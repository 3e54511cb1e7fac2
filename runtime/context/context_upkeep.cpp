// runtime/context/context_upkeep.cpp -- New winners, the record of what was missed, figures.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "runtime/api/last_error.h"
#include "runtime/api/struct_check.h"
#include "runtime/context/context.h"

namespace vitune {
namespace {

// Most time that a program loses by writing its misses at once instead of at the end.
constexpr std::chrono::seconds kMostForFirstMisses{2};

bool same_evidence(const Choice& a, const Choice& b) {
  if (a.outcome != b.outcome || a.config != b.config || a.layer != b.layer) return false;
  if (!a.row || !b.row) return !a.row && !b.row;
  return a.row->problem == b.row->problem && a.row->winner == b.row->winner;
}

}  // namespace

std::vector<Entry*> RuntimeContext::all_entries() {
  const std::lock_guard lock(mutex_);
  std::vector<Entry*> all;
  for (const auto& [text, entry] : entries_) all.push_back(entry.get());
  return all;
}

// Looks the problem up again, if its plan may be out of date; true if another kernel serves it now.
bool RuntimeContext::renew(Entry& entry, bool everything) {
  const Plan* const old = entry.plan.load(std::memory_order_acquire);
  if (old == nullptr) return false;
  const bool served = old->status == VITUNE_OK;
  if (!everything && served && !old->provisional) return false;
  std::unique_ptr<Plan> fresh = resolver_->resolve(entry.problem);
  // A plan that works is not given up for a failure.
  if (served && fresh->status != VITUNE_OK) return false;
  const bool same_kernel = fresh->kernel == old->kernel && fresh->status == old->status;
  if (same_kernel && served && old->provisional == fresh->provisional &&
      same_evidence(old->choice, fresh->choice)) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  entry.take(std::move(fresh));
  return !same_kernel;
}

std::int32_t RuntimeContext::refresh() {
  const std::lock_guard refreshing(refreshing_);
  const bool everything = databases_.refresh();
  if (everything) {
    resolver_->forget();
    const std::lock_guard lock(mutex_);
    ++refreshes_;
  }
  loader_->forgive();
  std::int32_t changed = 0;
  for (Entry* entry : all_entries()) {
    try {
      changed += renew(*entry, everything) ? 1 : 0;
    } catch (const Error& error) {
      // The device is lost or full, say: the calls will say so themselves, and others go on.
      messages_.log(LogLevel::kWarning, "refreshing '" + entry->text() + "': " + error.what());
    }
  }
  return changed;
}

void RuntimeContext::refresh_every(std::chrono::seconds interval) {
  std::unique_lock lock(stopping_mutex_);
  while (!stop_.wait_for(lock, interval, [this] { return stopping_; })) {
    lock.unlock();
    try {
      refresh();
    } catch (const std::exception& error) {
      messages_.log(LogLevel::kWarning, std::string("refreshing failed: ") + error.what());
    }
    lock.lock();
  }
}

// With reporting_ held. Counts stay as they are if writing fails, for the next time.
std::optional<std::string> RuntimeContext::report(const std::vector<Entry*>& entries) {
  std::vector<ProblemRequest> requests;
  std::vector<std::uint64_t> seen;
  for (Entry* entry : entries) {
    seen.push_back(entry->misses.load(std::memory_order_relaxed));
    const Plan* const plan = entry->plan.load(std::memory_order_acquire);
    const double each = plan != nullptr ? plan->call_us(settings_.objective) : 0;
    const std::uint64_t calls = seen.back() - entry->reported;
    requests.push_back({entry->problem->operator_name(), entry->text(),
                        static_cast<std::int64_t>(calls), each * static_cast<double>(calls)});
  }
  if (auto why = databases_.write("the list of missed problems",
                                  [&](Store& store) { store.add_requests(requests); })) {
    return why;
  }
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i]->reported = seen[i];
  return std::nullopt;
}

vitune_status RuntimeContext::flush() {
  const std::lock_guard reporting(reporting_);
  std::vector<Entry*> missed = all_entries();
  std::erase_if(missed, [](const Entry* entry) {
    return entry->misses.load(std::memory_order_relaxed) == entry->reported;
  });
  if (missed.empty() || databases_.read_only()) return VITUNE_OK;
  if (const auto why = report(missed)) return fail(VITUNE_DATABASE, *why);
  return VITUNE_OK;
}

// A process may end without a word, so a new problem is written down at once, within limits.
void RuntimeContext::note_first_miss(Entry& entry) noexcept {
  if (databases_.read_only()) return;
  const std::unique_lock reporting(reporting_, std::try_to_lock);
  if (!reporting || !may_note_first_misses_) return;
  const auto start = std::chrono::steady_clock::now();
  try {
    may_note_first_misses_ = !report({&entry});
  } catch (...) {
    may_note_first_misses_ = false;
  }
  spent_on_first_misses_ += std::chrono::steady_clock::now() - start;
  if (spent_on_first_misses_ > kMostForFirstMisses) may_note_first_misses_ = false;
}

vitune_status RuntimeContext::stats(vitune_stats* out) {
  // Size in version 0.1, the first public one.
  constexpr std::size_t kFirstBytes = 72;
  static_assert(sizeof(vitune_stats) >= kFirstBytes);
  if (out == nullptr) throw Error(ErrorCode::kUsage, "stats is NULL");
  vitune_stats answer{};
  answer.size = out->size;
  check_output_struct("stats", out, out->size, kFirstBytes, sizeof(answer));
  answer.exact_calls = counters_.total(CallCounters::kExact);
  answer.nearest_calls = counters_.total(CallCounters::kNearest);
  answer.default_calls = counters_.total(CallCounters::kDefault);
  answer.failed_calls = counters_.total(CallCounters::kFailed);
  answer.problems = all_entries().size();
  answer.kernels_loaded = loader_->loaded();
  answer.kernels_compiled = loader_->compiled();
  answer.rejected = loader_->rejected();
  answer.without_block_list = databases_.openings_without_blocks();
  answer.transferred_calls = counters_.total(CallCounters::kTransferred);
  std::memcpy(out, &answer, std::min(answer.size, sizeof(answer)));
  return VITUNE_OK;
}

}  // namespace vitune
