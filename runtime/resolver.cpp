// runtime/resolver.cpp -- Trying one choice after the other.
#include "runtime/resolver.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace vitune {
namespace {

// A kernel takes a quarter of a second to compile; who waits for more than a few is better served
// by an error.
constexpr int kMostCompiles = 6;

bool allows(MissPolicy policy, LookupOutcome outcome) {
  switch (policy) {
    case MissPolicy::kNearest:
    case MissPolicy::kCompile:
      return true;
    case MissPolicy::kDefault:
      return outcome != LookupOutcome::kNearest;
    case MissPolicy::kError:
      break;
  }
  return outcome == LookupOutcome::kExact;
}

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

std::string Resolver::Search::passed_over_text() const {
  return fmt::format("{}", fmt::join(passed_over, "; "));
}

std::vector<Choice> Resolver::choices(const AttentionProblem& problem, bool& provisional) {
  return databases_.read([&](LayeredStore& layers) {
    try {
      return dispatcher_.choices(problem, layers);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDatabase) throw;
      log(log_sink_, LogLevel::kWarning,
          fmt::format("'{}' is served without the databases until they are refreshed: {}",
                      problem.text(), error.what()));
    }
    // A lock or damage is no reason to fail, nor to believe for ever that there is no winner.
    provisional = true;
    LayeredStore nothing(Store::in_memory(), nullptr);
    dispatcher_.invalidate();
    auto found = dispatcher_.choices(problem, nothing);
    dispatcher_.invalidate();
    return found;
  });
}

Resolver::Search Resolver::search(const AttentionProblem& problem, MissPolicy policy) {
  Search search(problem);
  search.choices = choices(problem, search.provisional);
  std::erase_if(search.choices,
                [&](const Choice& choice) { return !allows(policy, choice.outcome); });
  search.may_compile = policy != MissPolicy::kError;
  return search;
}

std::unique_ptr<Plan> Resolver::accept(Search& search, const Choice& choice, Found found) {
  if (found.kernel == nullptr) {
    search.device_failed = search.device_failed || found.by_driver;
    search.passed_over.push_back(fmt::format("{} {}: {}", lookup_outcome_name(choice.outcome),
                                             choice.config.text(), found.why));
    return nullptr;
  }
  auto plan = make_plan(search.problem, device_, choice, std::move(found.kernel));
  plan->provisional = search.provisional;
  plan->passed_over = search.passed_over_text();
  return plan;
}

std::unique_ptr<Plan> Resolver::try_stored(Search& search, const Choice& choice) {
  try {
    return accept(search, choice, loader_.load_stored(search.problem, choice));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDatabase) throw;
    search.provisional = true;
    return accept(search, choice, Found{nullptr, error.what(), false});
  }
}

std::unique_ptr<Plan> Resolver::try_compiling(Search& search, const Choice& choice, bool judge) {
  try {
    return accept(search, choice, loader_.compile(search.problem, choice, judge));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDatabase) throw;
    search.provisional = true;  // the block list could not be read
    return accept(search, choice, Found{nullptr, error.what(), false});
  }
}

// First what looks good, then what merely runs: a slow default is better than none.
std::unique_ptr<Plan> Resolver::try_compiling_all(Search& search) {
  int left = kMostCompiles;
  for (const bool judge : {true, false}) {
    for (const Choice& choice : search.choices) {
      if (!judge && choice.outcome != LookupOutcome::kDefault) continue;
      if (left-- == 0) return nullptr;
      if (auto plan = try_compiling(search, choice, judge)) return plan;
      if (search.device_failed) return nullptr;
    }
  }
  return nullptr;
}

std::unique_ptr<Plan> Resolver::first_that_works(Search& search, bool compile_at_once) {
  if (search.choices.empty()) {
    return make_refusal(policy_ == MissPolicy::kError ? VITUNE_NOT_PREPARED : VITUNE_UNSUPPORTED,
                        no_choice_sentence(search.problem));
  }
  try {
    for (const Choice& choice : search.choices) {
      if (auto plan = try_stored(search, choice)) return plan;
      if (!compile_at_once || !search.may_compile) continue;
      if (auto plan = try_compiling(search, choice, true)) return plan;
    }
    if (search.may_compile) {
      if (auto plan = try_compiling_all(search)) return plan;
    }
    return refusal(search, {});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNoCompiler) throw;
    return refusal(search, error.what());
  }
}

std::string Resolver::no_choice_sentence(const AttentionProblem& problem) const {
  const std::string text = problem.text();
  if (policy_ != MissPolicy::kError) {
    return fmt::format("no kernel for '{}' fits this device ({})", text, device_.arch());
  }
  return fmt::format(
      "'{0}' has no winner on this kind of device, and on_miss (or VITUNE_MISS) says "
      "that this is an error; run `vitune tune --problem '{0}'`",
      text);
}

std::unique_ptr<Plan> Resolver::refusal(const Search& search,
                                        const std::string& compiler_problem) const {
  const std::string text = search.problem.text();
  const std::string found = search.passed_over_text();
  if (!search.may_compile) {
    return make_refusal(VITUNE_NOT_PREPARED,
                        fmt::format("the winner of '{}' cannot be loaded, and on_miss (or "
                                    "VITUNE_MISS) allows nothing else: {}",
                                    text, found));
  }
  if (search.device_failed) {
    return make_refusal(VITUNE_DEVICE_ERROR,
                        fmt::format("no kernel of '{}' could be loaded: {}", text, found));
  }
  if (!compiler_problem.empty()) {
    return make_refusal(
        VITUNE_NO_COMPILER,
        fmt::format("no stored kernel serves '{0}' and none can be compiled here; run `vitune tune "
                    "--problem '{0}'` or `vitune compile` for this database where NVRTC is, or "
                    "install it. {1}{2}{3}",
                    text, compiler_problem, found.empty() ? "" : ". Passed over: ", found));
  }
  return make_refusal(VITUNE_UNSUPPORTED,
                      fmt::format("no kernel of '{}' runs on this device: {}", text, found));
}

std::unique_ptr<Plan> Resolver::resolve(const AttentionProblem& problem) {
  Search found = search(problem, policy_);
  auto plan = first_that_works(found, policy_ == MissPolicy::kCompile);
  plan->provisional = plan->provisional || found.provisional;
  return plan;
}

std::unique_ptr<Plan> Resolver::resolve_default(const AttentionProblem& problem) {
  Search found = search(problem, MissPolicy::kDefault);
  std::erase_if(found.choices,
                [](const Choice& choice) { return choice.outcome != LookupOutcome::kDefault; });
  return first_that_works(found, false);
}

Resolver::Preview Resolver::preview(const AttentionProblem& problem) {
  Preview preview;
  const Search found = search(problem, policy_);
  if (found.choices.empty()) {
    preview.status = policy_ == MissPolicy::kError ? VITUNE_NOT_PREPARED : VITUNE_UNSUPPORTED;
    preview.sentence = no_choice_sentence(problem);
    return preview;
  }
  for (const Choice& choice : found.choices) {
    preview.key = loader_.find_stored(problem, choice);
    preview.choice = choice;
    if (preview.key || policy_ == MissPolicy::kCompile) break;
  }
  if (preview.key) return preview;
  preview.choice = found.choices.front();
  preview.passed_over = "no kernel of any choice is stored: the first call would compile this one";
  if (found.may_compile && loader_.may_compile()) return preview;
  const auto refused = refusal(found, "compiling is switched off");
  preview.status = refused->status;
  preview.sentence = refused->sentence;
  return preview;
}

}  // namespace vitune
