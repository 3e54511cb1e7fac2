// runtime/dispatch/passed_over.cpp -- The list of choices that do not serve, in short and in full.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/dispatch/passed_over.h"

#include <algorithm>
#include <utility>

#include "core/format.h"
#include "runtime/context/texts.h"

namespace vitune {

std::vector<PassedOver::One>::iterator PassedOver::find(const Choice& choice) {
  return std::find_if(choices_.begin(), choices_.end(), [&](const One& one) {
    return one.outcome == choice.outcome && one.config == choice.config;
  });
}

void PassedOver::add(const Choice& choice, std::string why) {
  const auto known = find(choice);
  if (known != choices_.end()) {
    known->why = std::move(why);
  } else {
    choices_.push_back({choice.outcome, choice.config, std::move(why)});
  }
}

void PassedOver::extend(const Choice& choice, std::string_view more) {
  const auto known = find(choice);
  if (known != choices_.end()) known->why += more;
}

void PassedOver::remove(const Choice& choice) {
  const auto known = find(choice);
  if (known != choices_.end()) choices_.erase(known);
}

std::string PassedOver::summary(std::size_t most_bytes) const {
  if (choices_.empty()) return {};
  const One& first = choices_.front();
  const std::string start =
      formatted("passed over: {} ({}: ", choices_.size(), lookup_outcome_name(first.outcome));
  return start + shortened(first.why, most_bytes - start.size() - 1) + ")";
}

std::string PassedOver::details() const {
  std::string text;
  for (const One& one : choices_) {
    text += formatted("{}{} {}: {}", text.empty() ? "" : "; ", lookup_outcome_name(one.outcome),
                      one.config.text(), one.why);
  }
  return text;
}

}  // namespace vitune
