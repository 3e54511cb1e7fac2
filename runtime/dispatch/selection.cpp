// runtime/dispatch/selection.cpp -- What vitune_query() says of a plan.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/dispatch/selection.h"

#include <cmath>
#include <string>

#include "generator/config_family.h"
#include "runtime/context/texts.h"

namespace vitune {
namespace {

std::int32_t code_of(LookupOutcome outcome) {
  switch (outcome) {
    case LookupOutcome::kExact:
      return VITUNE_EXACT;
    case LookupOutcome::kNearest:
      return VITUNE_NEAREST;
    case LookupOutcome::kTransferred:
      return VITUNE_TRANSFERRED;
    case LookupOutcome::kDefault:
      break;
  }
  return VITUNE_DEFAULT;
}

// Bytes of a reason for what was passed over; the others are for what serves.
constexpr std::size_t kRest = 200;

double known_or_negative(double error) { return std::isfinite(error) ? error : -1; }

// The kernel and the reason come first and are cut last, so that it is there however long the rest
// is.
std::string reason_of(const Choice& choice, const std::string& rest) {
  constexpr std::size_t kRoom = sizeof(vitune_selection::reason) - 1;
  if (rest.empty()) return shortened(choice.reason, kRoom);
  return shortened(choice.reason, kRoom - 2 - rest.size()) + "; " + rest;
}

// `text`: of the problem.
std::string shown_config(const Config& config, std::string_view text) {
  const Operator* op = find_operator(text.substr(0, text.find(' ')));
  return op == nullptr ? config.text() : shown_text(*op, config);
}

vitune_selection describe(const Choice& choice, std::string_view text, const std::string& rest) {
  vitune_selection selection = VITUNE_SELECTION_INIT;
  selection.outcome = code_of(choice.outcome);
  selection.predicted_us = choice.predicted_us;
  selection.max_error = selection.rms_error = -1;
  if (choice.row) copy_text(selection.row, choice.row->problem.text);
  // Times and errors of another device's kernel are none of this one.
  if (choice.row && choice.outcome != LookupOutcome::kTransferred) {
    const Winner& winner = choice.row->winner;
    selection.low_confidence = winner.measurement.low_confidence ? 1 : 0;
    selection.cold_us = winner.measurement.cold.median_us;
    selection.warm_us = winner.measurement.warm.median_us;
    selection.max_error = known_or_negative(winner.error.max_error);
    selection.rms_error = known_or_negative(winner.error.rms_error);
  }
  copy_text(selection.problem, text);
  copy_text(selection.config, shown_config(choice.config, text));
  copy_text(selection.source, choice.layer);
  copy_text(selection.reason, reason_of(choice, rest));
  return selection;
}

}  // namespace

vitune_selection describe(const Plan& plan, std::string_view text) {
  vitune_selection selection = describe(plan.choice, text, plan.passed_over.summary(kRest));
  selection.loaded = 1;
  selection.compiled = plan.kernel->compiled ? 1 : 0;
  copy_text(selection.kernel_key, plan.kernel->key.hex());
  return selection;
}

vitune_selection describe(const Resolver::Preview& preview, std::string_view text) {
  const std::string rest = preview.key
                               ? preview.passed_over.summary(kRest)
                               : "no kernel of it is stored: the first call would compile it";
  vitune_selection selection = describe(preview.choice, text, rest);
  if (preview.key) copy_text(selection.kernel_key, preview.key->hex());
  return selection;
}

}  // namespace vitune
