// runtime/resolver.h -- From a problem to a plan: which choices there are, and the first that
// works.
//
// Stored kernels are tried before anything is compiled. Any number of threads.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/log.h"
#include "runtime/databases.h"
#include "runtime/dispatcher.h"
#include "runtime/loader.h"
#include "runtime/plan.h"

namespace vitune {

class Resolver {
 public:
  Resolver(DeviceInfo device, Objective objective, MissPolicy policy, Databases& databases,
           Loader& loader, LogSink log_sink);

  // The plan that serves `problem`; one whose status is not VITUNE_OK if nothing can. Throws
  // CudaError if the device is lost or out of memory: then a later try may succeed.
  std::unique_ptr<Plan> resolve(const AttentionProblem& problem);
  // The same with a default kernel, whatever else there may be.
  std::unique_ptr<Plan> resolve_default(const AttentionProblem& problem);

  // What resolve() would take, if nothing were to fail; loads and compiles nothing.
  struct Preview {
    vitune_status status = VITUNE_OK;
    std::string sentence;       // unless VITUNE_OK
    Choice choice;              // if VITUNE_OK
    std::optional<Digest> key;  // nothing: its kernel would have to be compiled
    std::string passed_over;
  };
  Preview preview(const AttentionProblem& problem);

  // The next problems are looked up in what the databases hold now.
  void forget();

 private:
  // What became of the choices so far.
  struct Search {
    explicit Search(const AttentionProblem& asked) : problem(asked) {}
    const AttentionProblem& problem;
    std::vector<Choice> choices;
    bool provisional = false;  // a database could not be read
    bool device_failed = false;
    bool may_compile = true;
    std::vector<std::string> passed_over;

    std::string passed_over_text() const;
  };

  Search search(const AttentionProblem& problem, MissPolicy policy);
  std::vector<Choice> choices(const AttentionProblem& problem, bool& provisional);
  std::unique_ptr<Plan> first_that_works(Search& search, bool compile_at_once);
  std::unique_ptr<Plan> try_stored(Search& search, const Choice& choice);
  std::unique_ptr<Plan> try_compiling(Search& search, const Choice& choice, bool judge);
  std::unique_ptr<Plan> try_compiling_all(Search& search);
  std::unique_ptr<Plan> accept(Search& search, const Choice& choice, Found found);
  std::unique_ptr<Plan> refusal(const Search& search, const std::string& compiler_problem) const;
  std::string no_choice_sentence(const AttentionProblem& problem) const;

  const DeviceInfo device_;
  const MissPolicy policy_;
  Databases& databases_;
  Loader& loader_;
  const LogSink log_sink_;
  Dispatcher dispatcher_;  // used by the reader of databases_ only
};

}  // namespace vitune
