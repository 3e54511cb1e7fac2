// db/store_export.cpp -- The database as JSON: integers and figures, one record per line.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/device_facts.h"
#include "db/json_format.h"
#include "db/store_state.h"

namespace vitune {
namespace {

using Json = nlohmann::json;

// A label with what an import would refuse shown as '_'.
std::string label(std::string text) {
  for (char& c : text) {
    if (!is_plain_text(std::string_view(&c, 1), 1)) c = '_';
  }
  return text;
}

Json figure(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json config_json(const Config& config) {
  Json json = Json::object();
  if (!config.family().empty()) json["family"] = config.family();
  for (const auto& [name, value] : config) json[name] = value;
  return json;
}

Json timing_json(const Timing& timing) {
  return {{"median_us", timing.median_us},
          {"low_us", timing.low_us},
          {"high_us", timing.high_us},
          {"samples", timing.samples}};
}

void add_evidence(Json& json, const Measurement& measurement, const ErrorFigures& error) {
  json["cold"] = timing_json(measurement.cold);
  json["warm"] = timing_json(measurement.warm);
  json["low_confidence"] = measurement.low_confidence;
  json["max_error"] = figure(error.max_error);
  json["rms_error"] = figure(error.rms_error);
  json["max_bound"] = figure(error.max_bound);
  json["rms_bound"] = figure(error.rms_bound);
}

Json device_json(const DeviceInfo& device) {
  Json json{{"name", label(device.name)}};
  for (const DeviceFact& fact : device_facts()) json[fact.name] = fact.get(device);
  return json;
}

Json trial_json(const Trial& trial) {
  Json json{
      {"config", config_json(trial.config)},        {"kernel_key", trial.kernel_key.hex()},
      {"status", trial_status_name(trial.status)},  {"origin", origin_name(trial.origin)},
      {"registers", trial.compile.registers},       {"spill_bytes", trial.compile.spill_bytes},
      {"shared_bytes", trial.compile.shared_bytes}, {"compile_ms", trial.compile.compile_ms}};
  add_evidence(json, trial.measurement, trial.error);
  return json;
}

Json winner_json(const Winner& winner) {
  Json json{{"objective", objective_name(winner.objective)},
            {"config", config_json(winner.config)},
            {"kernel_key", winner.kernel_key.hex()},
            {"origin", origin_name(winner.origin)},
            {"verified", winner.verified},
            {"runner_up", winner.runner_up ? config_json(*winner.runner_up) : Json(nullptr)},
            {"lead_percent", winner.lead_percent},
            {"lead_low_percent", winner.lead_low_percent},
            {"lead_high_percent", winner.lead_high_percent},
            {"default_us", winner.default_us ? Json(*winner.default_us) : Json(nullptr)},
            {"trials", winner.trials},
            {"driver_version", winner.driver_version},
            {"compiler_version", label(winner.compiler_version)},
            {"tuned_at", label(winner.tuned_at)}};
  add_evidence(json, winner.measurement, winner.error);
  return json;
}

// The top-level lists, each record on a line of its own.
class Writer {
 public:
  void open(const char* name) {
    out_ += std::string(sections_++ == 0 ? "" : ",") + "\n\"" + name + "\":[";
    records_ = 0;
  }
  void add(const Json& record) { out_ += (records_++ == 0 ? "\n" : ",\n") + record.dump(); }
  void close() { out_ += "]"; }
  std::string& text() { return out_; }

 private:
  std::string out_;
  int sections_ = 0;
  std::int64_t records_ = 0;
};

using Places = std::map<Blob, std::int64_t>;

// Writes the identities in the order of their texts, which is the same in every database.
template <typename Map, typename Text, typename ToJson>
Places write_identities(Writer& writer, const char* section, const Map& map, Text text,
                        ToJson to_json) {
  std::map<std::string, Blob> order;
  for (const auto& [id, value] : map) order.emplace(text(value), id);
  Places places;
  writer.open(section);
  for (const auto& [key, id] : order) {
    places.emplace(id, static_cast<std::int64_t>(places.size()));
    writer.add(to_json(map.at(id)));
  }
  writer.close();
  return places;
}

std::map<std::int64_t, Blob> inverted(const Places& places) {
  std::map<std::int64_t, Blob> result;
  for (const auto& [id, place] : places) result.emplace(place, id);
  return result;
}

// Writes the rows of a table that belong to a device and a problem, sorted by both places.
template <typename Decode, typename ToJson>
void write_results(Writer& writer, const char* section, StoredTable& table, const Places& devices,
                   const Places& problems, Decode decode, ToJson to_json) {
  writer.open(section);
  for (const auto& [device_place, device] : inverted(devices)) {
    for (const auto& [problem_place, problem] : inverted(problems)) {
      table.scan({device, problem}, [&, d = device_place, p = problem_place](const Row& row) {
        const auto value = decode(row);
        if (!value) return;
        Json record = to_json(*value);
        record["device"] = d;
        record["problem"] = p;
        writer.add(record);
      });
    }
  }
  writer.close();
}

// Drops the problems that no row of the tables is of, on these devices.
void keep_problems_of(const std::map<Blob, DeviceInfo>& devices,
                      const std::vector<StoredTable*>& tables,
                      std::map<Blob, ProblemKey>& problems) {
  std::set<Blob> named;
  for (const auto& [device, info] : devices) {
    for (StoredTable* table : tables) {
      table->scan({device}, [&](const Row& row) { named.insert(std::get<Blob>(row[1])); });
    }
  }
  std::erase_if(problems, [&](const auto& entry) { return !named.contains(entry.first); });
}

}  // namespace

std::string Store::export_json(bool with_trials, const WantsDevice& wants_device) {
  Transaction snapshot(*state_->connection, Transaction::Kind::kRead);
  Writer writer;
  auto wanted_devices = state_->device_map();
  auto wanted_problems = state_->problem_map();
  if (wants_device) {
    std::erase_if(wanted_devices, [&](const auto& entry) { return !wants_device(entry.second); });
    std::vector<StoredTable*> tables{&state_->winners};
    if (with_trials) tables.push_back(&state_->trials);
    keep_problems_of(wanted_devices, tables, wanted_problems);
  }
  const Places devices = write_identities(
      writer, "devices", wanted_devices, [](const DeviceInfo& device) { return device.key(); },
      device_json);
  const Places problems = write_identities(
      writer, "problems", wanted_problems,
      [](const ProblemKey& problem) { return problem.operator_name + "\n" + problem.text; },
      [](const ProblemKey& problem) {
        return Json{{"operator", problem.operator_name}, {"text", problem.text}};
      });
  write_results(writer, "winners", state_->winners, devices, problems, winner_from_row,
                winner_json);
  if (with_trials) {
    write_results(writer, "trials", state_->trials, devices, problems, trial_from_row, trial_json);
  }
  writer.open("requests");
  for (const ProblemRequest& request : wants_device ? std::vector<ProblemRequest>() : requests()) {
    writer.add({{"operator", request.operator_name},
                {"text", request.problem},
                {"calls", request.calls},
                {"total_us", request.total_us}});
  }
  writer.close();
  snapshot.commit();
  return std::string("{\"format\":\"") + kExportFormat +
         "\",\"schema\":" + std::to_string(kExportSchema) + "," + writer.text() + "\n}\n";
}

}  // namespace vitune
