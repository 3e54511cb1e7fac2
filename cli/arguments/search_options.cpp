// cli/arguments/search_options.cpp -- Turns the options of a search into what the tuner takes.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/search_options.h"

#include <charconv>
#include <string>

#include "cli/arguments/options.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

Strategy parse_strategy(const std::string& name) {
  if (name == "exhaustive") return Strategy::kExhaustive;
  if (name == "random") return Strategy::kRandom;
  if (name == "local") return Strategy::kLocal;
  throw Error(ErrorCode::kUsage,
              formatted("--strategy '{}' is not one of exhaustive, random, local", name));
}

std::uint64_t parse_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) {
    throw Error(ErrorCode::kUsage,
                formatted("--seed '{}' is not an integer from 0 to 2^64-1", text));
  }
  return seed;
}

}  // namespace

void add_search_options(boost::program_options::options_description& options) {
  add_value(options, "strategy", "NAME", "exhaustive, random or local", "local");
  add_value(options, "budget", "LIMIT",
            "per problem: a time (30s, 2m) or a number of trials (200)");
  add_value(options, "effort", "HOW",
            "in place of a budget: quick (40 trials per problem), normal (until nothing better "
            "turns up) or thorough (2000 trials)",
            "normal");
  add_value(options, "seed", "N", "of the random choices; the same seed repeats a search", "1");
  add_value(options, "objective", "WHICH",
            "cold (L2 flushed before each call) or warm (graph replay)", "cold");
}

SearchOptions search_options(const Session& session) {
  const Strategy strategy = parse_strategy(session.text("strategy"));
  const std::uint64_t seed = parse_seed(session.text("seed"));
  const bool sweeps = session.has("record") && !session.has("trials");
  if (strategy == Strategy::kExhaustive || sweeps) {
    session.refuse({"seed"}, "is of random choices, and a sweep of the whole space makes none");
  }
  if (session.has("budget")) {
    session.refuse({"effort"}, "stands for a budget, and --budget is one; leave one of them");
  }
  const Budget budget = session.has("budget") ? parse_budget(session.text("budget"))
                                              : parse_effort(session.text("effort"));
  return {strategy, budget, seed};
}

}  // namespace vitune
