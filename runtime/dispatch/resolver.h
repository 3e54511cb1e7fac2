// runtime/dispatch/resolver.h -- From a problem to a plan: which choices there are, and the first
// that works.
//
// Stored kernels are tried before anything is compiled, but for a first choice that is transferred
// from another device, and unless the policy is kCompile: then each choice is compiled where no
// kernel of it is stored before the next one is looked at. Any number of threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/log.h"
#include "runtime/dispatch/dispatcher.h"
#include "runtime/load/databases.h"
#include "runtime/load/loader.h"
#include "runtime/load/plan.h"

namespace vitune {

class Resolver {
 public:
  Resolver(DeviceInfo device, Objective objective, MissPolicy policy, Databases& databases,
           Loader& loader, LogSink log_sink);

  // The plan that serves `problem`; one whose status is not VITUNE_OK if nothing can. Throws
  // CudaError if the device is lost or out of memory: then a later try may succeed.
  std::unique_ptr<Plan> resolve(const ProblemPtr& problem);
  // The same with a default kernel, whatever else there may be.
  std::unique_ptr<Plan> resolve_default(const ProblemPtr& problem);

  // The choice of resolve() if nothing were to fail; loads and compiles nothing.
  struct Preview {
    vitune_status status = VITUNE_OK;
    std::string sentence;       // unless VITUNE_OK
    Choice choice;              // if VITUNE_OK
    std::optional<Digest> key;  // nothing: its kernel would have to be compiled
    PassedOver passed_over;
  };
  Preview preview(const ProblemPtr& problem);

  // The next problems are looked up in what the databases hold now.
  void forget();

 private:
  // The state of the choices so far.
  struct Search {
    explicit Search(const ProblemPtr& asked) : problem(asked) {}
    const ProblemPtr& problem;
    std::vector<Choice> choices;
    std::size_t promising = 0;     // at the front of `choices`; what is behind is much slower
    bool winner_is_alone = false;  // what lies behind it is not in `choices` yet
    bool provisional = false;      // a database could not be read
    bool device_failed = false;
    bool may_compile = true;
    std::string no_compiler;  // why nothing can be compiled here, once that was tried
    int judged_left = kMostJudged;
    PassedOver passed_over;

    bool can_compile() const { return may_compile && no_compiler.empty(); }
  };
  // A stored kernel predicted to take longer than so many times the best choice is no reason not to
  // compile: that is paid once, a slow kernel by every call.
  static constexpr double kWorthCompiling = 1.25;
  // A kernel takes a quarter of a second to compile; who waits for more than a few is better served
  // by an error.
  static constexpr int kMostJudged = 5;

  Search search(const ProblemPtr& problem, MissPolicy policy);
  std::vector<Choice> choices(const ProblemPtr& problem, bool& provisional);
  void add_behind_winner(Search& search, MissPolicy policy);
  std::vector<Choice> other_choices(Search& search);
  const Choice* choice_at(Search& search, std::size_t place);
  static std::size_t promising_first(std::vector<Choice>& choices);
  std::unique_ptr<Plan> first_that_works(Search& search, bool compile_at_once);
  std::unique_ptr<Plan> first_of(Search& search, std::size_t first, std::size_t end);
  std::unique_ptr<Plan> try_stored(Search& search, const Choice& choice);
  std::unique_ptr<Plan> try_compiling(Search& search, const Choice& choice, bool judge);
  std::unique_ptr<Plan> try_judged(Search& search, const Choice& choice);
  std::unique_ptr<Plan> try_all_judged(Search& search, std::size_t first, std::size_t end);
  std::unique_ptr<Plan> try_any_default(Search& search);
  std::unique_ptr<Plan> prepared(Search& search, const Choice& choice,
                                 std::shared_ptr<const LoadedKernel> kernel);
  std::unique_ptr<Plan> accept(Search& search, const Choice& choice, Found found);
  std::unique_ptr<Plan> refusal(const Search& search) const;
  std::unique_ptr<Plan> no_choice(const Problem& problem) const;
  void report(const Search& search, const Plan& plan);

  const DeviceInfo device_;
  const MissPolicy policy_;
  Databases& databases_;
  Loader& loader_;
  const LogSink log_sink_;
  Dispatcher dispatcher_;            // used by the reader of databases_ only
  std::atomic<bool> warned_{false};  // that what the policy wants compiled cannot be
};

}  // namespace vitune
