// tests/faults/spoilt_calls.cpp -- File calls that fail, and processes killed at them.
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <algorithm>
#include <memory>
#include <random>

#include "tests/faults/engines.h"
#include "tests/faults/spoilt_run.h"

namespace vitune::faults {
namespace {

const std::vector<FaultKind> kFailures = {
    {EIO, false},   {EIO, true},     {ENOSPC, false}, {ENOSPC, true},  {EINTR, false},
    {EACCES, true}, {ENOLCK, false}, {EMFILE, false}, {kShort, false}, {kShort, true}};
const std::vector<FaultKind> kKills = {
    {kKillBefore, false}, {kKillAfter, false}, {kKillHalfway, false}};

// One operation and all that can befall it, shuffled.
struct Deck {
  explicit Deck(const Operation& chosen) : operation(chosen), run(chosen) {}
  const Operation& operation;
  SpoiltRun run;
  std::vector<Fault> faults;
};

std::vector<std::unique_ptr<Deck>> decks_of(const std::vector<FaultKind>& kinds,
                                            std::uint32_t seed) {
  std::vector<std::unique_ptr<Deck>> decks;
  std::mt19937 random(seed);
  for (const Operation& operation : operations()) {
    auto deck = std::make_unique<Deck>(operation);
    deck->faults = possible_faults(deck->run.record([] {}), kinds);
    std::shuffle(deck->faults.begin(), deck->faults.end(), random);
    decks.push_back(std::move(deck));
  }
  return decks;
}

// A single error in a call that cleans nothing up: the command can and must leave nothing.
Leavings leavings_after(const Fault& fault, const State& state) {
  const auto what = static_cast<Call>(state.what);
  const bool cleans = what == Call::kUnlink || what == Call::kLook || what == Call::kClose;
  return fault.kind < 0 || fault.for_ever || cleans ? Leavings::kUnfinished : Leavings::kNone;
}

void try_fault(Deck& deck, const Fault& fault, Tally& tally) {
  const Ended ended = deck.run.run(fault);
  ++tally.runs;
  tally.effective += deck.run.state().spoilt > 0;
  const auto report = [&](const std::string& line) {
    tally.findings.push_back(deck.operation.name() + ", " + text_of(fault) + " (" +
                             kCallNames[deck.run.state().what] + "): " + line +
                             "; it said: " + ended.err.substr(0, 300));
  };
  const bool was_killed = fault.kind < 0 && fault.kind != kShort && deck.run.state().spoilt > 0;
  if ((ended.status == 128 + SIGKILL) != was_killed) report("killed?");
  const Leavings leavings = leavings_after(fault, deck.run.state());
  for (const std::string& line : deck.operation.check(deck.run.folder(), ended, leavings))
    report(line);
  for (const std::string& line : deck.operation.check_again(deck.run.folder())) report(line);
}

Tally try_faults(const std::vector<FaultKind>& kinds, const Work& work) {
  const auto decks = decks_of(kinds, work.seed);
  Tally tally;
  for (const auto& deck : decks) tally.possible += deck->faults.size();
  for (std::size_t i = work.share; i < work.count; i += work.shares) {
    Deck& deck = *decks[i % decks.size()];
    try_fault(deck, deck.faults[i / decks.size() % deck.faults.size()], tally);
  }
  return tally;
}

}  // namespace

Tally fail_calls(const Work& work) { return try_faults(kFailures, work); }

Tally kill_at_calls(const Work& work) { return try_faults(kKills, work); }

}  // namespace vitune::faults
