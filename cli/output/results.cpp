// cli/output/results.cpp -- Figures, shares and columns.
#include "cli/output/results.h"

#include <nlohmann/json.hpp>

#include "cli/output/text.h"
#include "core/format.h"

namespace vitune {
namespace {

using nlohmann::ordered_json;

template <typename Value>
ordered_json optional_json(const std::optional<Value>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

std::string percent(double share) { return formatted("{:.0f} %", 100 * share); }

}  // namespace

ordered_json new_document(const std::string& verb) {
  return {{"schema", kOutputSchema}, {"command", verb}};
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
          {"driver_version", device.driver_version}};
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

std::string device_text(const DeviceInfo& device) {
  if (device.sm_count == 0) return device.arch();  // an architecture's limits, no device
  return formatted("{} ({}, {} SMs)", device.name.empty() ? "GPU" : device.name, device.arch(),
                   device.sm_count);
}

Table winner_table() {
  Table table;
  table.column("problem")
      .column("cold us [95 %]", Align::kRight)
      .column("warm us", Align::kRight)
      .column("vs default", Align::kRight)
      .column("of floor", Align::kRight)
      .column("lead", Align::kRight)
      .column("trials", Align::kRight)
      .column("objective")
      .column("origin")
      .column("config");
  return table;
}

void add_winner_row(Table& table, const std::string& name, const Winner& winner,
                    const Problem& problem, const DeviceInfo& device) {
  const Measurement& measured = winner.measurement;
  const double best = measured.by(winner.objective).median_us;
  const auto floor = floor_of(problem, device, winner.objective);
  std::string origin = origin_name(winner.origin);
  if (!winner.verified) origin += ", unverified";
  if (measured.low_confidence) origin += ", unsteady";
  table.row({name, timing_text(measured.cold),
             measured.warm.median_us > 0 ? microseconds_text(measured.warm.median_us) : "-",
             winner.default_us && best > 0 ? formatted("{:.2f}x", *winner.default_us / best) : "-",
             floor && best > 0 ? percent(floor->us / best) : "-",
             winner.runner_up ? formatted("{:.1f} %", winner.lead_percent) : "-",
             formatted("{}", winner.trials), objective_name(winner.objective), origin,
             compact_config(winner.config)});
}

}  // namespace vitune
