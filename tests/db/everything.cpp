// tests/db/everything.cpp -- Rows as texts.
// SPDX-License-Identifier: Apache-2.0
#include "tests/db/everything.h"

#include <algorithm>
#include <map>

namespace vitune::test {
namespace {

std::string text_of(const Timing& t) {
  return std::to_string(t.median_us) + "/" + std::to_string(t.low_us) + "/" +
         std::to_string(t.high_us) + "/" + std::to_string(t.samples);
}

std::string text_of(const Measurement& m) {
  return text_of(m.cold) + " " + text_of(m.warm) + (m.low_confidence ? " low" : "");
}

std::string text_of(const Winner& w) {
  return w.config.text() + w.kernel_key.hex() + (w.image_digest ? w.image_digest->hex() : "") +
         objective_name(w.objective) + origin_name(w.origin) + text_of(w.measurement) +
         std::to_string(w.error.max_error) + std::to_string(w.lead_percent) +
         std::to_string(w.trials) + "~" + w.tuned_at + "~" +
         (w.runner_up ? w.runner_up->text() : "") + (w.verified ? "v" : "");
}

std::string text_of(const Trial& t) {
  return t.config.text() + t.kernel_key.hex() + trial_status_name(t.status) + t.reason +
         origin_name(t.origin) + text_of(t.measurement) + std::to_string(t.compile.registers);
}

std::string text_of(const Binary& b) {
  const auto* data = reinterpret_cast<const char*>(b.image.data());
  return b.kernel_key.hex() + b.entry + sha256({data, b.image.size()}).hex();
}

// Adds the rows that are asked for by device, problem and objective.
void add_of_winner(Store& store, const WinnerEntry& e, std::vector<std::string>& rows) {
  const std::string where = e.device.key() + e.problem.text;
  const auto found = store.find_winner(e.device, e.problem, e.winner.objective);
  if (found) rows.push_back("found " + where + text_of(*found));
  if (e.winner.image_digest) {
    const auto binary = store.find_binary(e.winner.kernel_key);
    if (binary) rows.push_back("binary " + text_of(*binary));
  }
  const auto search = store.find_search(e.device, e.problem, e.winner.objective);
  if (search) {
    rows.push_back("search " + where + search->kernel_key.hex() + "~" +
                   std::to_string(search->seconds) + "~" + std::to_string(search->ended));
  }
}

}  // namespace

std::vector<std::string> everything(Store& store) {
  std::vector<std::string> rows;
  std::map<std::string, DeviceInfo> devices;
  for (const WinnerEntry& e : store.winners()) {
    rows.push_back("winner " + e.device.key() + e.problem.text + text_of(e.winner));
    add_of_winner(store, e, rows);
    devices.emplace(e.device.key(), e.device);
  }
  for (const TrialEntry& e : store.all_trials()) {
    rows.push_back("trial " + e.device.key() + e.problem.text + text_of(e.trial));
    devices.emplace(e.device.key(), e.device);
  }
  for (const BlockEntry& e : store.block_rows()) {
    rows.push_back("block " + e.kernel_key.hex() + e.device_key + trial_status_name(e.status) +
                   e.reason);
  }
  for (const ProblemRequest& e : store.requests())
    rows.push_back("request " + e.problem + std::to_string(e.calls));
  for (const auto& [key, device] : devices) {
    for (const OpenAttempt& e : store.open_attempts(device)) {
      rows.push_back("attempt " + key + e.problem.text + e.config.text() + std::to_string(e.count));
    }
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

std::vector<std::string> without_times(std::vector<std::string> rows) {
  for (std::string& row : rows) {
    const std::size_t from = row.find('~');
    if (from != std::string::npos) row.erase(from, row.find('~', from + 1) + 1 - from);
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

bool is_part_of(const std::vector<std::string>& few, const std::vector<std::string>& many) {
  return std::includes(many.begin(), many.end(), few.begin(), few.end());
}

}  // namespace vitune::test
