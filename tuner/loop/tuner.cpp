// tuner/loop/tuner.cpp -- The whole loop: propose, compile, prune, verify, measure, race, promote.
//
// Reads top down: a run goes over its problems (Run), a problem through its phases (ProblemRun).
// SPDX-License-Identifier: Apache-2.0
#include "tuner/loop/tuner.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "db/sqlite.h"
#include "generator/operator.h"
#include "tuner/evaluate/open_evaluator.h"
#include "tuner/loop/candidate_runner.h"
#include "tuner/loop/final_race.h"
#include "tuner/loop/progress.h"
#include "tuner/loop/source_seeds.h"
#include "tuner/loop/tune_plan.h"
#include "tuner/loop/turn_to_tune.h"
#include "tuner/recording/record_sweep.h"
#include "tuner/search/halving.h"
#include "tuner/search/search_extent.h"

namespace vitune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kFinalists = 6;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// State that all problems of a run share.
struct Session {
  Evaluator& evaluator;
  const TuneOptions& options;
  LayeredStore& store;
  SourceSeeds& sources;
  ProgressReporter& reporter;
  const LogSink& log_sink;
  const std::atomic<bool>& stop;
};

// One problem from its space to its stored winner.
class ProblemRun {
 public:
  ProblemRun(const Session& session, const NamedProblem& problem)
      : session_(session),
        evaluator_(session.evaluator),
        problem_(problem),
        key_{problem.problem->operator_name(), problem.problem->text()},
        space_(evaluator_.space(problem.problem)),
        book_(session.store, evaluator_.device(), key_, space_, evaluator_.origin(),
              kernel_keys(evaluator_)),
        runner_(evaluator_, problem.problem, space_, book_, session.log_sink, session.stop) {}

  // `similar`: configs that won problems like this one.
  TuneOutcome run(const std::vector<Config>& similar);
  void record(SweepRecorder& recorder) {
    recorder.add(problem_.name, book_, space_, sample_, outcome_.winner.has_value());
  }

 private:
  std::optional<Winner> stored_winner() const;
  bool lacks_recorded() const;
  bool holds(const Winner& winner);
  void gather_seeds(const std::vector<Config>& similar);
  std::int64_t size() const { return static_cast<std::int64_t>(space_.size()); }
  double searched_seconds() const;
  std::unique_ptr<SearchStrategy> make_strategy() const;
  void search();
  bool search_ends(const SearchStrategy& strategy, std::int64_t proposed) const;
  void propose(SearchStrategy& strategy, std::int64_t& proposed);
  void try_remaining();
  void refine();
  std::vector<RaceEntry> contestants() const;
  bool confirm(std::size_t index);
  std::optional<Winner> decide();
  void keep_without_library(const Config& winner);
  void promote(Winner winner);
  void give_up(const std::string& why);
  // Says how long the part took that ends.
  void end_part(const char* part);
  void update_progress(bool force = false) {
    session_.reporter.update(book_, session_.options.objective, force);
  }

  const Session& session_;
  Evaluator& evaluator_;
  const NamedProblem& problem_;
  ProblemKey key_;
  SearchSpace space_;
  TrialBook book_;
  CandidateRunner runner_;
  std::optional<Config> default_;
  std::optional<Config> previous_;  // the winner before this run
  SearchExtent searched_;           // by earlier runs, and by this one once its search has ended
  std::vector<std::size_t> seeds_;
  std::vector<std::size_t> sample_;    // to be recorded; empty: the whole space, or nothing
  std::set<std::size_t> crowded_out_;  // no memory was free to judge them once more
  bool exhausted_ = false;             // nothing is left to propose
  TuneOutcome outcome_;
  Clock::time_point begin_ = Clock::now();
  double told_ = 0;  // seconds until the end of the part before
};

TuneOutcome ProblemRun::run(const std::vector<Config>& similar) {
  outcome_.problem = problem_;
  if (!session_.options.fresh) {
    book_.resume();
  }
  if (const auto count = session_.options.record_sample) {
    sample_ = seeded_sample(space_.size(), static_cast<std::size_t>(*count), session_.options.seed);
  }
  const auto stored = stored_winner();
  if (stored && !session_.options.fresh && holds(*stored)) {
    outcome_.winner = stored;
    outcome_.resumed = true;
  } else {
    if (stored) previous_ = stored->config;
    gather_seeds(similar);
    try {
      end_part("space");
      search();
      end_part("search");
      if (outcome_.message.empty()) try_remaining();
      if (outcome_.message.empty()) refine();
      end_part("refine");
      if (outcome_.message.empty()) {
        if (auto winner = decide()) promote(std::move(*winner));
      }
      end_part("race");
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInterrupted) runner_.withdraw();
      throw;
    }
  }
  book_.flush();
  outcome_.trials = book_.tried();
  outcome_.pruned = book_.pruned();
  outcome_.failed = book_.failed();
  outcome_.seconds = seconds_since(begin_);
  return outcome_;
}

void ProblemRun::end_part(const char* part) {
  const double now = seconds_since(begin_);
  log(session_.log_sink, LogLevel::kDebug,
      formatted("{}: {} took {:.2f} s, {} candidates tried", problem_.name, part, now - told_,
                book_.tried()));
  told_ = now;
}

void stop_here() {
  throw Error(ErrorCode::kInterrupted, "interrupted; what was measured is saved");
}

std::optional<Winner> ProblemRun::stored_winner() const {
  return session_.store.find_winner(evaluator_.device(), key_, session_.options.objective);
}

// True if something that the recording is to have has not been tried.
bool ProblemRun::lacks_recorded() const {
  if (sample_.empty()) return book_.tried() < size();
  return std::ranges::any_of(sample_, [&](std::size_t index) { return !book_.find(index); });
}

// True if a run would only find again what is stored: decided here, on these kernels, after a
// search as long as is asked for.
bool ProblemRun::holds(const Winner& winner) {
  if (session_.options.record && lacks_recorded()) return false;
  const auto own =
      session_.store.user().find_winner(evaluator_.device(), key_, session_.options.objective);
  if (!own || !winner.verified || winner.origin == Origin::kImported) return false;
  if (winner.origin == Origin::kMeasured && evaluator_.origin() == Origin::kReplayed) return true;
  if (winner.origin != evaluator_.origin()) return false;
  const auto index = space_.find(winner.config);
  if (!index || winner.kernel_key != evaluator_.key(winner.config)) return false;
  if (!book_.suspects().empty() || book_.blocked(winner.config)) return false;
  searched_ =
      extent_behind(winner, book_.tried(),
                    session_.store.user().find_search(evaluator_.device(), key_, winner.objective));
  return reaches(searched_, session_.options, size());
}

void ProblemRun::gather_seeds(const std::vector<Config>& similar) {
  if (space_.preset) default_ = space_.configs[*space_.preset];
  std::vector<Config> seeds;
  if (default_) seeds.push_back(*default_);
  if (previous_) seeds.push_back(*previous_);
  if (!previous_ && !session_.options.fresh) {
    for (Config& config : session_.sources.of(problem_.problem)) seeds.push_back(std::move(config));
  }
  for (const std::size_t index : space_.proposed) seeds.push_back(space_.configs[index]);
  for (const std::size_t index : space_.of_families) seeds.push_back(space_.configs[index]);
  seeds.insert(seeds.end(), similar.begin(), similar.end());
  for (const Config& config : seeds) {
    const auto index = space_.find(config);
    if (index && std::find(seeds_.begin(), seeds_.end(), *index) == seeds_.end()) {
      seeds_.push_back(*index);
    }
  }
  seeds_.insert(seeds_.end(), sample_.begin(), sample_.end());
}

// --- search

std::unique_ptr<SearchStrategy> ProblemRun::make_strategy() const {
  switch (session_.options.strategy) {
    case Strategy::kExhaustive:
      return make_exhaustive_search(space_);
    case Strategy::kRandom:
      return make_random_search(space_, session_.options.seed);
    case Strategy::kLocal:
      break;
  }
  return make_local_search(space_, session_.options.seed, seeds_);
}

// A larger budget of time is one for all runs together.
double ProblemRun::searched_seconds() const {
  return static_cast<double>(searched_.seconds) + seconds_since(begin_);
}

bool ProblemRun::search_ends(const SearchStrategy& strategy, std::int64_t proposed) const {
  const Budget& budget = session_.options.budget;
  if (session_.stop || exhausted_ || proposed >= planned_trials(session_.options, size()))
    return true;
  if (budget.time && searched_seconds() >= static_cast<double>(budget.time->count())) return true;
  return !budget.time && !budget.trials && strategy.converged();
}

// Puts the next proposal on its way, unless it is known already or to be tried last.
void ProblemRun::propose(SearchStrategy& strategy, std::int64_t& proposed) {
  const auto index = strategy.propose();
  exhausted_ = !index;
  if (!index) return;
  ++proposed;
  if (const Trial* known = book_.find(*index)) {
    strategy.report(*index, trial_cost(*known, session_.options.objective));
  } else if (!book_.suspect(*index)) {
    runner_.submit(*index, MeasureEffort{}, true, true);
  }
}

void ProblemRun::search() {
  const auto strategy = make_strategy();
  session_.reporter.begin_phase("search", planned_trials(session_.options, size()), book_.tried());
  std::int64_t proposed = 0;
  while (runner_.busy() || !search_ends(*strategy, proposed)) {
    while (!runner_.full() && !search_ends(*strategy, proposed) && !runner_.hopeless()) {
      propose(*strategy, proposed);
    }
    if (session_.stop) stop_here();
    if (!runner_.busy()) {
      if (runner_.hopeless()) break;
      continue;
    }
    if (const auto index = runner_.collect()) {
      strategy->report(*index, trial_cost(*book_.find(*index), session_.options.objective));
    }
    update_progress();
  }
  if (session_.stop) stop_here();
  if (runner_.hopeless()) {
    give_up(
        "more than half of the last 20 candidates hung, crashed or gave wrong results: the GPU, "
        "the driver or the kernels are at fault, not single candidates; `vitune doctor` tests "
        "the device");
  }
  const Budget& budget = session_.options.budget;
  searched_.seconds = static_cast<std::int64_t>(searched_seconds());
  searched_.ended |= !budget.time && !budget.trials;
}

// Tries the configs that the race needs: the default, the previous winner, and the suspects that an
// earlier run may have died of, which come last.
void ProblemRun::try_remaining() {
  std::vector<std::size_t> remaining;
  const auto add = [&](const std::optional<Config>& config) {
    const auto index = config ? space_.find(*config) : std::nullopt;
    if (index && book_.find(*index) == nullptr && !book_.suspect(*index))
      remaining.push_back(*index);
  };
  add(default_);
  if (previous_ != default_) add(previous_);
  remaining.insert(remaining.end(), book_.suspects().begin(), book_.suspects().end());
  runner_.run(remaining, MeasureEffort{}, true, true, [this] { update_progress(); });
  if (session_.stop) stop_here();
}

void ProblemRun::refine() {
  if (evaluator_.origin() == Origin::kReplayed) return;  // one figure per candidate is all there is
  session_.reporter.begin_phase("refine", book_.tried(), book_.tried());
  halve(runner_, book_, session_.options.objective, [this] { update_progress(); });
  if (session_.stop) stop_here();
}

// --- race

std::vector<RaceEntry> ProblemRun::contestants() const {
  std::vector<RaceEntry> entries;
  for (const std::size_t index : book_.ranking(session_.options.objective)) {
    const Config& config = space_.configs[index];
    const RaceEntry entry{config, config == default_, config == previous_,
                          book_.find(index)->compile.registers};
    if (crowded_out_.contains(index)) continue;
    if (entries.size() < kFinalists || entry.is_default || entry.is_previous)
      entries.push_back(entry);
  }
  return entries;
}

// Judges the very binary that is to be stored once more; false if it is not right after all.
bool ProblemRun::confirm(std::size_t index) {
  if (evaluator_.origin() == Origin::kReplayed) return true;
  const std::optional<bool> right = runner_.confirm(index);
  if (session_.stop) stop_here();
  if (!right) crowded_out_.insert(index);
  return right.value_or(false);
}

std::optional<Winner> ProblemRun::decide() {
  session_.reporter.begin_phase("race", book_.tried(), book_.tried());
  update_progress(true);
  while (true) {
    const std::vector<RaceEntry> entries = contestants();
    if (entries.empty() && !crowded_out_.empty()) {
      give_up(
          "the device has too little free memory to judge a winner once more, or the machine no "
          "time "
          "to compile it; try again later");
      return std::nullopt;
    }
    if (entries.empty()) {
      give_up(formatted("none of the {} candidates works: {} were pruned, {} failed", book_.tried(),
                        book_.pruned(), book_.failed()));
      return std::nullopt;
    }
    const FinalRace race = hold_race(evaluator_, book_, space_, entries, session_.options.objective,
                                     session_.log_sink);
    if (race.entries.empty()) continue;
    const Config& first = race.entries[race.decision.winner].config;
    if (!confirm(*space_.find(first))) continue;
    Winner winner = winner_of(race, session_.options.objective, evaluator_);
    winner.error = book_.find(*space_.find(first))->error;
    winner.trials = book_.tried();
    return winner;
  }
}

// Where the winner calls a library, the best kernels that do without are stored too: they serve
// where it is not there, or of another version.
void ProblemRun::keep_without_library(const Config& winner) {
  const Operator& op = problem_.problem->op();
  if (op.library_version(winner) == 0) return;
  for (const std::size_t index : book_.ranking(session_.options.objective)) {
    if (op.library_version(space_.configs[index]) != 0) continue;
    if (const auto binary = evaluator_.binary(space_.configs[index])) {
      session_.store.user().put_binary(*binary);
    }
    return;
  }
}

void ProblemRun::promote(Winner winner) {
  if (session_.stop) stop_here();
  book_.flush();
  std::optional<Binary> binary;
  try {
    binary = evaluator_.binary(winner.config);
    keep_without_library(winner.config);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kFailure) throw;
    return give_up(error.what());
  }
  if (binary) winner.compiler_version = binary->compiler_version;
  const SearchRecord search{winner.kernel_key, searched_.seconds, searched_.ended};
  const bool stored = session_.store.user().promote(evaluator_.device(), key_, winner,
                                                    binary ? &*binary : nullptr, search);
  if (!stored) {
    outcome_.message = "a measured winner is stored, which a replayed one does not replace";
    log(session_.log_sink, LogLevel::kInfo, problem_.name + ": " + outcome_.message);
  }
  // As it is stored: with the image that it stands for.
  outcome_.winner =
      stored ? session_.store.user().find_winner(evaluator_.device(), key_, winner.objective)
             : stored_winner();
}

void ProblemRun::give_up(const std::string& why) {
  outcome_.message = why;
  log(session_.log_sink, LogLevel::kWarning, problem_.name + ": " + why);
}

}  // namespace

TuneReport tune_with(Evaluator& evaluator, const TuneOptions& options, LayeredStore& store,
                     const std::function<void(const TuneProgress&)>& progress,
                     const LogSink& log_sink, const std::atomic<bool>& stop) {
  const auto begin = Clock::now();
  ProgressReporter reporter(progress, options.problems.size());
  SourceSeeds sources(evaluator.device(), options.objective, store, log_sink);
  const Session session{evaluator, options, store, sources, reporter, log_sink, stop};
  TuneReport report;
  report.device = evaluator.device();
  report.origin = evaluator.origin();
  report.outcomes = untouched(options.problems);
  std::optional<SweepRecorder> recorder;
  if (options.record) recorder.emplace(*options.record, evaluator, log_sink);
  std::vector<Config> similar;
  try {
    // Problems that another process works on come last.
    std::vector<std::size_t> left = tuning_order(options.problems);
    for (const bool wait : {false, true}) {
      for (const std::size_t position : std::exchange(left, {})) {
        if (stop) stop_here();
        const NamedProblem& problem = options.problems[position];
        const auto turn = turn_to_tune(store.user(), report.device, problem, options.objective,
                                       wait, log_sink, stop);
        if (!turn) {
          left.push_back(position);
          continue;
        }
        reporter.begin_problem(problem.name, options.budget);
        ProblemRun run(session, problem);
        TuneOutcome& outcome = report.outcomes[position];
        outcome = run.run(similar);
        if (recorder) run.record(*recorder);
        if (outcome.winner) remember(similar, outcome.winner->config);
        reporter.end_problem();
        if (options.finished) options.finished(outcome, report.device);
      }
    }
  } catch (const InterruptedWait& error) {
    log(log_sink, LogLevel::kWarning, error.what());
    report.interrupted = true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) throw;
    report.interrupted = true;
  }
  report.seconds = seconds_since(begin);
  return report;
}

TuneReport tune(const TuneOptions& options, LayeredStore& store,
                const std::function<void(const TuneProgress&)>& progress, const LogSink& log_sink,
                const std::atomic<bool>& stop) {
  check_options(options);
  try {
    const std::unique_ptr<Evaluator> evaluator = open_evaluator(options, log_sink, stop);
    return tune_with(*evaluator, options, store, progress, log_sink, stop);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) throw;
    TuneReport report;  // interrupted before there was anything to tune on
    report.outcomes = untouched(options.problems);
    report.interrupted = true;
    return report;
  }
}

}  // namespace vitune
