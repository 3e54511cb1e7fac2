// cli/output/ceiling_results.cpp -- The measured ceilings of a GPU as a table and as JSON.
// SPDX-License-Identifier: Apache-2.0
#include "cli/output/ceiling_results.h"

#include <map>
#include <nlohmann/json.hpp>

#include "cli/output/results.h"
#include "core/format.h"

namespace vitune {
namespace {

using nlohmann::ordered_json;

struct Words {
  std::string what, unit;
  double per_second = 0;  // how many of what is counted per clock one unit is
  std::string counted;    // per clock and SM
};

const Words& words_of(const std::string& name) {
  static const std::map<std::string, Words> kWords = {
      {"hbm_copy_tb_s", {"HBM copy, read + write", "TB/s", 1e12, "B"}},
      {"hbm_read_tb_s", {"HBM read", "TB/s", 1e12, "B"}},
      {"l2_read_tb_s", {"L2 read", "TB/s", 1e12, "B"}},
      {"mma_tflops", {"mma.sync bf16", "TFLOP/s", 1e12, "FLOP"}},
      {"wgmma_tflops", {"wgmma bf16", "TFLOP/s", 1e12, "FLOP"}},
      {"exp2_gops", {"ex2.approx fp32", "Gop/s", 1e9, "ex2"}},
      {"fma_tflops", {"FMA fp32", "TFLOP/s", 1e12, "FLOP"}}};
  return kWords.at(name);
}

// Three digits at least: "4.12", "61.5", "7934".
std::string rate_text(double rate) {
  return formatted("{:.{}f}", rate, rate < 10 ? 2 : rate < 1000 ? 1 : 0);
}

}  // namespace

std::string driver_text(int driver_version) {
  return formatted("{}.{}", driver_version / 1000, driver_version % 1000 / 10);
}

Table ceiling_table(const Ceilings& ceilings, const DeviceInfo& device) {
  Table table;
  table.column("ceiling").column("median", Align::kRight).column("lowest", Align::kRight);
  table.column("highest", Align::kRight).column("unit").column("clock MHz", Align::kRight);
  table.if_room();
  table.column("per clock and SM", Align::kRight);
  for (const CeilingFigure& each : ceilings.figures) {
    const Words& words = words_of(each.name);
    const double clocks = each.clock_mhz * 1e6 * device.sm_count;
    table.row({words.what, rate_text(each.median), rate_text(each.low), rate_text(each.high),
               words.unit, clocks > 0 ? formatted("{:.0f}", each.clock_mhz) : "-",
               clocks > 0 ? formatted("{} {}", rate_text(each.median * words.per_second / clocks),
                                      words.counted)
                          : "-"});
  }
  return table;
}

ordered_json ceiling_json(const Ceilings& ceilings, const DeviceInfo& device) {
  ordered_json document = new_document("devices");
  document["device"] = device_json(device);
  document["measured"] = ordered_json::object();
  document["clock_mhz"] = ceilings.clock_mhz;
  document["clocks_mhz"] = ordered_json::object();
  for (const CeilingFigure& each : ceilings.figures) {
    document["measured"][each.name] = {
        {"median", each.median}, {"low", each.low}, {"high", each.high}};
    if (each.clock_mhz > 0) document["clocks_mhz"][each.name] = each.clock_mhz;
  }
  document["driver"] = driver_text(device.driver_version);
  document["compiler"] = ceilings.compiler;
  document["contended"] = ceilings.contended;
  return document;
}

}  // namespace vitune
