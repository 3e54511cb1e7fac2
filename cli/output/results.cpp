// cli/output/results.cpp -- Figures, shares and columns.
// SPDX-License-Identifier: Apache-2.0
#include "cli/output/results.h"

#include <unistd.h>

#include <array>
#include <ctime>
#include <nlohmann/json.hpp>

#include "cli/output/config_words.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/operator.h"
#include "tuner/measure/race.h"
#include "vitune/vitune.h"

namespace vitune {
namespace {

// True if the runner-up is its equal, so that a fixed order decided.
bool is_tie(const Winner& winner) { return winner.lead_percent <= kTiePercent; }

using nlohmann::ordered_json;

template <typename Value>
ordered_json optional_json(const std::optional<Value>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

std::string percent(double share) { return formatted("{:.0f} %", 100 * share); }

}  // namespace

ordered_json new_document(const std::string& verb) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 256> date{}, host{};
  std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  gethostname(host.data(), host.size() - 1);
  return {{"schema", kOutputSchema},
          {"command", verb},
          {"context",
           {{"vitune_version", formatted("{}.{}.{}", VITUNE_VERSION_MAJOR, VITUNE_VERSION_MINOR,
                                         VITUNE_VERSION_PATCH)},
            {"date", date.data()},
            {"host", host.data()}}}};
}

std::optional<Floor> floor_of(const Problem& problem, const DeviceInfo& device,
                              Objective objective) {
  return floor_of(problem.op().demand(problem, device), device,
                  objective == Objective::kWarm ? Residency::kWarm : Residency::kCold);
}

ordered_json floor_json(const std::optional<Floor>& floor) {
  ordered_json units = ordered_json::object();
  if (!floor) return units;
  for (const UnitTime& time : floor->units) units[hardware_unit_name(time.unit)] = time.us;
  return units;
}

ordered_json timing_json(const Timing& timing) {
  return {{"median_us", timing.median_us},
          {"low_us", timing.low_us},
          {"high_us", timing.high_us},
          {"samples", timing.samples}};
}

ordered_json config_json(const Config& config) {
  ordered_json values = ordered_json::object();
  if (!config.family().empty()) values["family"] = config.family();
  for (const auto& [name, value] : config) values[name] = value;
  return values;
}

ordered_json device_json(const DeviceInfo& device) {
  return {{"name", device.name},
          {"arch", device.arch()},
          {"key", device.key()},
          {"sm_count", device.sm_count},
          {"shared_per_block", device.shared_per_block},
          {"l2_bytes", device.l2_bytes},
          {"memory_bytes", device.memory_bytes},
          {"driver_version", device.driver_version},
          {"clock_khz", device.clock_khz},
          {"memory_clock_khz", device.memory_clock_khz}};
}

ordered_json winner_json(const Winner& winner, const Problem& problem, const DeviceInfo& device) {
  const double best = winner.measurement.by(winner.objective).median_us;
  const auto floor = floor_of(problem, device, winner.objective);
  return {
      {"config", config_json(winner.config)},
      {"kernel_key", winner.kernel_key.hex()},
      {"objective", objective_name(winner.objective)},
      {"origin", origin_name(winner.origin)},
      {"verified", winner.verified},
      {"cold", timing_json(winner.measurement.cold)},
      {"warm", timing_json(winner.measurement.warm)},
      {"low_confidence", winner.measurement.low_confidence},
      {"tflops",
       best > 0 ? ordered_json(problem.op().flops(problem) / best / 1e6) : ordered_json(nullptr)},
      {"floor_us", floor ? ordered_json(floor->us) : ordered_json(nullptr)},
      {"floor_unit", floor ? ordered_json(hardware_unit_name(floor->unit)) : ordered_json(nullptr)},
      {"floor_share", floor && best > 0 ? ordered_json(floor->us / best) : ordered_json(nullptr)},
      {"default_us", optional_json(winner.default_us)},
      {"runner_up", winner.runner_up ? config_json(*winner.runner_up) : ordered_json(nullptr)},
      {"decided",
       winner.runner_up ? ordered_json(is_tie(winner) ? "tie" : "time") : ordered_json(nullptr)},
      {"lead_percent", winner.lead_percent},
      {"lead_low_percent", winner.lead_low_percent},
      {"lead_high_percent", winner.lead_high_percent},
      {"trials", winner.trials},
      {"max_error", winner.error.max_error},
      {"rms_error", winner.error.rms_error},
      {"max_bound", winner.error.max_bound},
      {"rms_bound", winner.error.rms_bound},
      {"driver_version", winner.driver_version},
      {"compiler_version", winner.compiler_version},
      {"tuned_at", winner.tuned_at}};
}

std::string timing_text(const Timing& timing) {
  if (timing.median_us <= 0) return "-";
  return formatted("{} [{}, {}]", microseconds_text(timing.median_us),
                   microseconds_text(timing.low_us), microseconds_text(timing.high_us));
}

Cell timing_cell(const Timing& timing) {
  if (timing.median_us <= 0) return {"-", {"", "", ""}};
  return {timing_text(timing),
          {formatted("{}", timing.median_us), formatted("{}", timing.low_us),
           formatted("{}", timing.high_us)}};
}

std::vector<std::string> timing_titles(const std::string& name) {
  return {name + "_us", name + "_low_us", name + "_high_us"};
}

Cell ratio_cell(double other_us, double us) {
  if (other_us <= 0 || us <= 0) return {"-", {""}};
  return {formatted("{:.2f}x", other_us / us), {formatted("{:.4f}", other_us / us)}};
}

Cell default_ratio_cell(double default_us, double us) {
  Cell cell = ratio_cell(default_us, us);
  constexpr double kShownAsOne = 0.995;
  if (us > 0 && default_us > 0 && default_us / us < kShownAsOne) cell.shown = "= default";
  return cell;
}

Cell share_cell(const std::optional<double>& share) {
  if (!share) return {"-", {""}};
  return {percent(*share), {formatted("{:.4f}", *share)}};
}

Cell microseconds_cell(double us) {
  if (us <= 0) return {"-", {""}};
  return {microseconds_text(us), {formatted("{}", us)}};
}

Config preset_of(const Problem& problem, const DeviceInfo& device) {
  try {
    return default_config(problem, device);
  } catch (const Error&) {
    return {};
  }
}

Cell config_cell(const Problem& problem, const Config& config, const Config& preset, bool whole) {
  if (whole) return {compact_config(config), {config.text()}};
  return {config_words(problem, config, preset), {config.text()}};
}

std::string device_text(const DeviceInfo& device) {
  if (device.sm_count == 0) return device.arch();  // an architecture's limits, no device
  return formatted("{} ({}, {} SMs)", device.name.empty() ? "GPU" : device.name, device.arch(),
                   device.sm_count);
}

Table winner_table() {
  Table table;
  const Align right = Align::kRight;
  table.column("problem").heading().column("cold us [95 %]", right, timing_titles("cold"));
  table.column("warm us", right, timing_titles("warm")).if_room();
  table.column("vs default", right, {"vs_default"}).if_room();
  table.column("of floor", right, {"floor_share"}).if_room();
  table.column("origin", Align::kLeft, {"origin", "verified", "unsteady"});
  table.column("config").if_room().column("lead", right, {"lead_percent"}).if_room();
  table.column("trials", right).if_room().column("objective").if_room();
  return table;
}

std::vector<Cell> winner_row(const std::string& name, const Winner& winner, const Problem& problem,
                             const DeviceInfo& device, bool whole) {
  const Measurement& measured = winner.measurement;
  const double best = measured.by(winner.objective).median_us;
  const auto floor = floor_of(problem, device, winner.objective);
  std::string origin = origin_name(winner.origin);
  if (!winner.verified) origin += ", unverified";
  // A problem may have a winner by each objective: their rows are told apart without a column.
  if (winner.objective == Objective::kWarm) origin += ", warm";
  if (measured.low_confidence) origin += ", unsteady";
  const auto share = floor && best > 0 ? std::optional(floor->us / best) : std::nullopt;
  const bool raced = winner.runner_up.has_value();
  Cell warm = timing_cell(measured.warm);
  warm.shown = microseconds_cell(measured.warm.median_us).shown;
  return {name,
          timing_cell(measured.cold),
          warm,
          default_ratio_cell(winner.default_us.value_or(0), best),
          share_cell(share),
          {origin,
           {origin_name(winner.origin), winner.verified ? "1" : "0",
            measured.low_confidence ? "1" : "0"}},
          config_cell(problem, winner.config, preset_of(problem, device), whole),
          {!raced           ? "-"
           : is_tie(winner) ? "tie"
                            : formatted("{:.1f} %", winner.lead_percent),
           {raced ? formatted("{:.2f}", winner.lead_percent) : ""}},
          formatted("{}", winner.trials),
          objective_name(winner.objective)};
}

}  // namespace vitune
