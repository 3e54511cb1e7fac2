// tests/cli/timing_documents.h -- Small documents of times, as the programs that vitune compare
// reads would write them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace vitune::testing {

inline constexpr char kVit[] = "attention bf16 b=1 h=12 nq=197 nk=197 d=64 layout=packed";
inline constexpr char kSwin[] = "attention bf16 b=64 h=3 nq=49 nk=49 d=32 layout=packed";

// {"median_us": 10, "low_us": 9.9, "high_us": 10.1, "samples": 30}: 1 % to each side.
inline nlohmann::json stored_timing(double median_us, double share = 0.01) {
  return {{"median_us", median_us},
          {"low_us", median_us * (1 - share)},
          {"high_us", median_us * (1 + share)},
          {"samples", 30}};
}

struct StoredResult {
  std::string name, problem;
  double cold_us, warm_us;
  double share = 0.01;
};

// The output of `vitune tune --json`, as far as it matters here.
inline nlohmann::json tune_document(const std::vector<StoredResult>& results,
                                    const std::string& command = "tune") {
  nlohmann::json document = {{"schema", 1}, {"command", command}};
  document["device"] = {{"name", "NVIDIA H200"}, {"key", "cc9.0 sm132"}};
  document["results"] = nlohmann::json::array();
  for (const StoredResult& each : results) {
    document["results"].push_back({{"name", each.name},
                                   {"problem", each.problem},
                                   {"winner",
                                    {{"cold", stored_timing(each.cold_us, each.share)},
                                     {"warm", stored_timing(each.warm_us, each.share)},
                                     {"low_confidence", false}}}});
  }
  return document;
}

// One result for short tests: kVit, cold and warm.
inline nlohmann::json tune_document(double cold_us, double warm_us = 8, double share = 0.01) {
  return tune_document({{"ViT", kVit, cold_us, warm_us, share}});
}

// A row of benchmarks/peers; times: {"vitune": {"cold": 10, "cold_p10": 9.8, ...}}.
inline nlohmann::json peers_document(const std::string& name, const std::string& problem,
                                     const nlohmann::json& times) {
  return {{"schema", 1},
          {"command", "peers"},
          {"device", {{"name", "NVIDIA H200"}}},
          {"rows", {{{"name", name}, {"problem", problem}, {"us", times}}}}};
}

inline nlohmann::json peer_times(double us, double share = 0.02, int samples = 30) {
  nlohmann::json times;
  for (const std::string kind : {"cold", "warm"}) {
    times[kind] = us;
    times[kind + "_p10"] = us * (1 - share);
    times[kind + "_p90"] = us * (1 + share);
    times[kind + "_samples"] = samples;
  }
  return times;
}

// The output of a Google Benchmark program for the repetitions of one benchmark.
inline nlohmann::json google_document(const std::string& name, const std::vector<double>& times,
                                      const std::string& unit = "us",
                                      const std::string& label = "") {
  nlohmann::json document = {{"context", {{"vitune_device", "NVIDIA H200"}}},
                             {"benchmarks", nlohmann::json::array()}};
  for (const double time : times) {
    nlohmann::json entry = {
        {"name", name},     {"run_name", name},  {"run_type", "iteration"},    {"real_time", time},
        {"cpu_time", time}, {"time_unit", unit}, {"repetitions", times.size()}};
    if (!label.empty()) entry["label"] = label;
    document["benchmarks"].push_back(entry);
  }
  return document;
}

}  // namespace vitune::testing
