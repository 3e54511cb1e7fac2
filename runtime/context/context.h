// runtime/context/context.h -- What stands behind a vitune_context: the problems in use and what
// serves them.
//
// Any number of threads. A call whose kernel is prepared takes no lock: it reads the table, copies
// the prepared parameters and launches. Locks, in the order in which they may be taken together:
// refreshing_, reporting_, mutex_; the loader's and the databases' own are never held around these.
// None of them is held while a kernel is compiled or loaded but refreshing_.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/primary_context.h"
#include "runtime/context/call_counters.h"
#include "runtime/context/capture.h"
#include "runtime/context/device_query.h"
#include "runtime/context/entry.h"
#include "runtime/context/kernel_table.h"
#include "runtime/context/messages.h"
#include "runtime/context/request.h"
#include "runtime/context/settings.h"
#include "runtime/dispatch/resolver.h"
#include "runtime/load/databases.h"
#include "runtime/load/loader.h"
#include "vitune/vitune.h"

namespace vitune {

class RuntimeContext {
 public:
  // Throws Error(kNoDevice) without a driver or this GPU.
  explicit RuntimeContext(const Settings& settings);
  // Ends the refreshing thread, writes what was missed, unloads the kernels.
  ~RuntimeContext();
  RuntimeContext(const RuntimeContext&) = delete;
  RuntimeContext& operator=(const RuntimeContext&) = delete;

  // The functions of vitune.h, the same for every operator. Those that are not noexcept
  // throw for what vitune_last_error() then says.

  // True if nothing is to be launched: VITUNE_DISABLE is set.
  bool disabled() const noexcept { return settings_.environment.disable; }
  // The plan that serves calls of this key, if they need nothing more than its answer(); or null.
  // Takes no lock.
  const Plan* ready_plan(const PlanKey& key) const noexcept;
  // Answers a call whose pointers were found to fit the plan's footprint.
  vitune_status answer(const Plan& plan, const Call& call) noexcept;
  // Answers a call whose pointers fit its description, but which has no ready plan.
  vitune_status first_call(const Request& request, const Call& call);
  // The GPU that is worked on.
  const PrimaryContext& primary() const noexcept { return primary_; }
  const CudaDriver& driver() const noexcept { return primary_.driver(); }
  const DeviceInfo& device() const noexcept { return device_; }
  // Throws CudaError where the driver cannot tell.
  bool is_capturing(CuStreamTag* stream) const;
  // Counts a call that gave an error.
  void count_failure() noexcept { counters_.add(CallCounters::kFailed); }

  vitune_status prepare(const ProblemPtr& problem, const PlanKey* key);
  vitune_status query(const ProblemPtr& problem, vitune_selection* selection);
  // The scratch memory that calls of the problem need, in bytes; makes the plan if there is none.
  vitune_status workspace(const ProblemPtr& problem, std::size_t& bytes);
  // Describes the problem and the kernel that would serve it; loads nothing.
  std::string explain(const ProblemPtr& problem);
  vitune_status stats(vitune_stats* stats);
  std::int32_t refresh();
  vitune_status flush();

 private:
  // --- the call (context_call.cpp)
  vitune_status call_in_capture(const Request& request, const Call& call);
  vitune_status check_pointers(Entry& entry, const Plan& plan, const Call& call);
  vitune_status launch(const Plan& plan, const Call& call) noexcept;
  vitune_status refuse(const Plan& plan) noexcept;

  // --- problems and plans (context.cpp)
  const Plan* plan_of(const std::string& text);
  Entry* find_entry(const Problem& problem, const PlanKey* key);
  Entry& entry_of(const ProblemPtr& problem, const PlanKey* key);
  void map_key(const PlanKey& key, Entry& entry);
  const Plan& wait_for_plan(Entry& entry, bool stand_in_will_do);
  void make_plan_of(Entry& entry, std::unique_lock<std::mutex>& lock);
  void make_stand_in_of(Entry& entry, std::unique_lock<std::mutex>& lock);

  // --- upkeep (context_upkeep.cpp)
  bool renew(Entry& entry, bool everything);
  void refresh_every(std::chrono::seconds interval);
  void note_first_miss(Entry& entry) noexcept;
  std::optional<std::string> report(const std::vector<Entry*>& entries);
  std::vector<Entry*> all_entries();

  const Settings settings_;
  Messages messages_;
  const PrimaryContext primary_;
  DeviceQuery device_query_;  // goes on while the databases are opened
  Databases databases_;
  const DeviceInfo device_;
  std::optional<Loader> loader_;
  std::optional<Resolver> resolver_;
  std::optional<ProblemCapture> capture_;

  KernelTable table_;  // inserts under mutex_
  CallCounters counters_;
  std::mutex mutex_;                 // guards entries_ and what is not atomic in them
  std::uint64_t refreshes_ = 0;      // that found other databases; guarded by mutex_
  std::condition_variable changed_;  // a plan or a stand-in was made, or could not be
  std::unordered_map<std::string, std::unique_ptr<Entry>> entries_;  // by canonical text

  std::mutex reporting_;  // guards Entry::reported and what follows
  std::chrono::steady_clock::duration spent_on_first_misses_{0};
  bool may_note_first_misses_ = true;

  std::mutex refreshing_;
  std::mutex stopping_mutex_;  // guards stopping_
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread refresher_;
};

}  // namespace vitune
