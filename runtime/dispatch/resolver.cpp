// runtime/dispatch/resolver.cpp -- Trying one choice after the other.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/dispatch/resolver.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

bool allows(MissPolicy policy, LookupOutcome outcome) {
  switch (policy) {
    case MissPolicy::kNearest:
    case MissPolicy::kCompile:
      return true;
    case MissPolicy::kDefault:
      return outcome == LookupOutcome::kExact || outcome == LookupOutcome::kDefault;
    case MissPolicy::kError:
      break;
  }
  return outcome == LookupOutcome::kExact;
}

bool is_transferred(const Choice& choice) { return choice.outcome == LookupOutcome::kTransferred; }

}  // namespace

Resolver::Resolver(DeviceInfo device, Objective objective, MissPolicy policy, Databases& databases,
                   Loader& loader, LogSink log_sink)
    : device_(device),
      policy_(policy),
      databases_(databases),
      loader_(loader),
      log_sink_(std::move(log_sink)),
      dispatcher_(std::move(device), objective) {}

void Resolver::forget() {
  databases_.read([&](LayeredStore&) { dispatcher_.invalidate(); });
}

std::vector<Choice> Resolver::choices(const ProblemPtr& problem, bool& provisional) {
  return databases_.read([&](LayeredStore& layers) {
    try {
      return dispatcher_.first_choices(problem, layers);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDatabase) throw;
      log(log_sink_, LogLevel::kWarning,
          formatted("'{}' is served without the databases until they are refreshed: {}",
                    problem->text(), error.what()));
    }
    // A lock or damage is no reason to fail, nor to believe for ever that there is no winner.
    provisional = true;
    LayeredStore nothing(nullptr, nullptr);
    dispatcher_.invalidate();
    auto found = dispatcher_.first_choices(problem, nothing);
    dispatcher_.invalidate();
    return found;
  });
}

Resolver::Search Resolver::search(const ProblemPtr& problem, MissPolicy policy) {
  Search search(problem);
  search.choices = choices(problem, search.provisional);
  std::erase_if(search.choices,
                [&](const Choice& choice) { return !allows(policy, choice.outcome); });
  search.promising = promising_first(search.choices);
  search.may_compile = policy != MissPolicy::kError;
  search.winner_is_alone =
      !search.choices.empty() && search.choices.front().outcome == LookupOutcome::kExact;
  return search;
}

void Resolver::add_behind_winner(Search& search, MissPolicy policy) {
  if (!std::exchange(search.winner_is_alone, false)) return;
  if (!allows(policy, LookupOutcome::kDefault)) return;
  const bool is_library = search.problem->op().library_version(search.choices.front().config) != 0;
  for (Choice& choice :
       is_library ? other_choices(search) : dispatcher_.behind_winner(search.problem)) {
    if (allows(policy, choice.outcome)) search.choices.push_back(std::move(choice));
  }
}

// A winner that calls a library is refused where that is another one, which says nothing against
// what else was tried on the problem.
std::vector<Choice> Resolver::other_choices(Search& search) {
  const Config refused = search.choices.front().config;
  try {
    std::vector<Choice> others = databases_.read([&](LayeredStore& layers) {
      return dispatcher_.choices_without_winner(search.problem, layers);
    });
    std::erase_if(others, [&](const Choice& choice) { return choice.config == refused; });
    return others;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDatabase) throw;
    search.provisional = true;
    return dispatcher_.behind_winner(search.problem);
  }
}

// The choice number `place`, or null. Most problems never ask for what lies behind their winner.
const Choice* Resolver::choice_at(Search& search, std::size_t place) {
  if (place >= search.choices.size()) add_behind_winner(search, policy_);
  return place < search.choices.size() ? &search.choices[place] : nullptr;
}

// Null if a library refuses its part of the plan.
std::unique_ptr<Plan> Resolver::prepared(Search& search, const Choice& choice,
                                         std::shared_ptr<const LoadedKernel> kernel) {
  // A library may allocate when it is first used, which other threads' captures would forbid.
  const RelaxedCapture relaxed(loader_.context().driver().api());
  try {
    return make_plan(*search.problem, device_, choice, std::move(kernel), loader_.libraries());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    search.passed_over.add(choice, error.what());
    return nullptr;
  }
}

std::unique_ptr<Plan> Resolver::accept(Search& search, const Choice& choice, Found found) {
  if (found.kernel == nullptr) {
    search.device_failed = search.device_failed || found.by_driver;
    search.passed_over.add(choice, std::move(found.why));
    return nullptr;
  }
  search.passed_over.remove(choice);
  // Tensor maps are encoded in a context, which a thread that only prepares may lack.
  const CurrentContext current(loader_.context());
  loader_.context().driver().check(current.result(), current.call());
  auto plan = prepared(search, choice, std::move(found.kernel));
  if (plan == nullptr) return nullptr;
  plan->provisional = search.provisional;
  plan->passed_over = search.passed_over;
  return plan;
}

std::unique_ptr<Plan> Resolver::try_stored(Search& search, const Choice& choice) {
  try {
    return accept(search, choice, loader_.load_stored(*search.problem, choice));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDatabase) throw;
    search.provisional = true;
    return accept(search, choice, Found{nullptr, error.what(), false});
  }
}

std::unique_ptr<Plan> Resolver::try_compiling(Search& search, const Choice& choice, bool judge) {
  try {
    return accept(search, choice, loader_.compile(*search.problem, choice, judge));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNoCompiler) {
      search.no_compiler = error.what();
      search.passed_over.extend(choice, ", and nothing can be compiled here");
      return nullptr;
    }
    if (error.code() != ErrorCode::kDatabase) throw;
    search.provisional = true;  // the block list could not be read
    return accept(search, choice, Found{nullptr, error.what(), false});
  }
}

std::unique_ptr<Plan> Resolver::try_judged(Search& search, const Choice& choice) {
  if (!search.can_compile() || loader_.cannot_launch(*search.problem, choice.config))
    return nullptr;
  if (search.judged_left-- <= 0) return nullptr;
  return try_compiling(search, choice, true);
}

std::unique_ptr<Plan> Resolver::try_all_judged(Search& search, std::size_t first, std::size_t end) {
  for (std::size_t i = first; i < std::min(end, search.choices.size()); ++i) {
    if (auto plan = try_judged(search, search.choices[i])) return plan;
    if (search.device_failed) break;
  }
  return nullptr;
}

// Takes any default that runs: a slow one is better than none.
std::unique_ptr<Plan> Resolver::try_any_default(Search& search) {
  if (!search.can_compile() || search.device_failed) return nullptr;
  const auto first =
      std::find_if(search.choices.begin(), search.choices.end(), [&](const Choice& choice) {
        return choice.outcome == LookupOutcome::kDefault &&
               !loader_.cannot_launch(*search.problem, choice.config);
      });
  return first != search.choices.end() ? try_compiling(search, *first, false) : nullptr;
}

// The first choice stays the first: the dispatcher knows of which default a prediction is no more
// than a guess. Behind it come those predicted to be about as fast as the fastest; how many they
// are. A choice without a prediction (a winner, what lies behind one) stays where it is, and so do
// all beside it.
std::size_t Resolver::promising_first(std::vector<Choice>& choices) {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  const auto slower = [](const Choice& a, const Choice& b) {
    return a.predicted_us < b.predicted_us;
  };
  const auto best = std::min_element(choices.begin(), choices.end(), slower);
  if (best == choices.end() || best->predicted_us <= 0) return kAll;
  const double limit = kWorthCompiling * best->predicted_us;
  const auto behind =
      std::stable_partition(choices.begin() + 1, choices.end(),
                            [&](const Choice& choice) { return choice.predicted_us <= limit; });
  return behind == choices.end() ? kAll : static_cast<std::size_t>(behind - choices.begin());
}

// Takes from the choices in [first, end) one whose kernel is stored, else one that compiles.
std::unique_ptr<Plan> Resolver::first_of(Search& search, std::size_t first, std::size_t end) {
  for (std::size_t i = first; i < end; ++i) {
    const Choice* choice = choice_at(search, i);
    if (choice == nullptr) break;
    if (auto plan = try_stored(search, *choice)) return plan;
  }
  return try_all_judged(search, first, end);
}

std::unique_ptr<Plan> Resolver::first_that_works(Search& search, bool compile_at_once) {
  if (search.choices.empty()) return no_choice(*search.problem);
  if (!compile_at_once) {
    // Its kernel is made here and not stored before that, which those of lesser choices may be.
    const std::size_t tried = is_transferred(search.choices.front()) ? 1 : 0;
    if (auto plan = first_of(search, 0, tried)) return plan;
    constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
    if (auto plan = first_of(search, tried, search.promising)) return plan;
    if (auto plan = first_of(search, search.promising, kAll)) return plan;
  }
  for (std::size_t i = 0; compile_at_once; ++i) {
    const Choice* choice = choice_at(search, i);
    if (choice == nullptr) break;
    if (auto plan = try_stored(search, *choice)) return plan;
    if (auto plan = try_judged(search, *choice)) return plan;
  }
  if (auto plan = try_any_default(search)) return plan;
  return refusal(search);
}

std::unique_ptr<Plan> Resolver::no_choice(const Problem& problem) const {
  const std::string text = problem.text();
  if (policy_ != MissPolicy::kError) {
    return make_refusal(
        problem, VITUNE_UNSUPPORTED,
        formatted("no kernel for '{}' fits this device ({})", text, device_.arch()));
  }
  return make_refusal(
      problem, VITUNE_NOT_PREPARED,
      formatted("'{0}' has no winner on this kind of device, and on_miss (or VITUNE_MISS) says "
                "that this is an error; run `vitune tune --problem '{0}'`",
                text));
}

std::unique_ptr<Plan> Resolver::refusal(const Search& search) const {
  constexpr std::size_t kRoom = 300;  // of the sentence, for what was passed over
  const std::string text = search.problem->text();
  const std::string found = search.passed_over.summary(kRoom);
  const auto refuse = [&](vitune_status status, std::string sentence) {
    return make_refusal(*search.problem, status, std::move(sentence));
  };
  if (!search.may_compile) {
    return refuse(VITUNE_NOT_PREPARED,
                  formatted("the winner of '{}' cannot be loaded, and on_miss (or VITUNE_MISS) "
                            "allows nothing else; {}",
                            text, found));
  }
  if (search.device_failed) {
    return refuse(VITUNE_DEVICE_ERROR,
                  formatted("no kernel of '{}' could be loaded; {}", text, found));
  }
  if (!search.no_compiler.empty()) {
    return refuse(
        VITUNE_NO_COMPILER,
        formatted("no stored kernel serves '{0}' and none can be compiled here; run `vitune tune "
                  "--problem '{0}'` or `vitune compile` for this database where NVRTC is, or "
                  "install it. {1}; {2}",
                  text, search.no_compiler, found));
  }
  return refuse(VITUNE_UNSUPPORTED,
                formatted("no kernel of '{}' runs on this device; {}", text, found));
}

// To the log: what was passed over, and once that the policy cannot be followed.
void Resolver::report(const Search& search, const Plan& plan) {
  const std::string text = search.problem->text();
  if (plan.status == VITUNE_OK && policy_ == MissPolicy::kCompile && !search.no_compiler.empty() &&
      !warned_.exchange(true)) {
    log(log_sink_, LogLevel::kWarning,
        formatted("on_miss (or VITUNE_MISS) is to compile, but nothing can be compiled here; "
                  "'{}' and others are served by what is stored: {}",
                  text, search.no_compiler));
  }
  if (!search.passed_over.empty()) {
    log(log_sink_, LogLevel::kDebug,
        formatted("passed over for '{}': {}", text, search.passed_over.details()));
  }
}

std::unique_ptr<Plan> Resolver::resolve(const ProblemPtr& problem) {
  Search found = search(problem, policy_);
  auto plan = first_that_works(found, policy_ == MissPolicy::kCompile);
  plan->provisional = plan->provisional || found.provisional;
  report(found, *plan);
  return plan;
}

std::unique_ptr<Plan> Resolver::resolve_default(const ProblemPtr& problem) {
  Search found = search(problem, MissPolicy::kDefault);
  add_behind_winner(found, MissPolicy::kDefault);
  std::erase_if(found.choices,
                [](const Choice& choice) { return choice.outcome != LookupOutcome::kDefault; });
  return first_that_works(found, false);
}

Resolver::Preview Resolver::preview(const ProblemPtr& problem) {
  Preview preview;
  Search found = search(problem, policy_);
  const auto refuse = [&](std::unique_ptr<Plan> plan) {
    preview.status = plan->status;
    preview.sentence = std::move(plan->sentence);
    return preview;
  };
  if (found.choices.empty()) return refuse(no_choice(*problem));
  const bool can_compile = found.may_compile && loader_.may_compile();
  for (std::size_t i = 0; const Choice* choice = choice_at(found, i); ++i) {
    std::string why;
    preview.key = loader_.find_stored(*problem, *choice, why);
    preview.choice = *choice;
    if (preview.key || (can_compile && policy_ == MissPolicy::kCompile)) break;
    if (can_compile && i + 1 >= found.promising) break;
    if (can_compile && i == 0 && is_transferred(*choice) &&
        !loader_.cannot_launch(*problem, choice->config)) {
      break;
    }
    found.passed_over.add(*choice, std::move(why));
  }
  if (!preview.key) {
    if (!can_compile) {
      found.no_compiler = "compiling is switched off";
      return refuse(refusal(found));
    }
    // Nothing is stored: the first one that can be launched would be compiled.
    const auto first = std::ranges::find_if(found.choices, [&](const Choice& choice) {
      return !loader_.cannot_launch(*problem, choice.config);
    });
    if (first == found.choices.end()) return refuse(refusal(found));
    preview.choice = *first;
    return preview;
  }
  preview.passed_over = std::move(found.passed_over);
  return preview;
}

}  // namespace vitune
