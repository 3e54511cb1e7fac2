// cli/verbs/cmd_devices.cpp -- vitune devices: the GPUs of this machine, and what one can do at
// most.
// SPDX-License-Identifier: Apache-2.0

#include <nlohmann/json.hpp>

#include "cli/arguments/device_probe.h"
#include "cli/arguments/options.h"
#include "cli/arguments/session.h"
#include "cli/output/ceiling_results.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"
#include "probe/ceilings.h"

namespace vitune {
namespace {

namespace po = boost::program_options;
using nlohmann::ordered_json;

void describe_devices(po::options_description& options) {
  add_switch(options, "measure",
             "measure what a GPU can do at most: HBM, L2, tensor cores, exponentials, FMA");
  add_value(options, "device", "N", "with --measure: the GPU, by its ordinal", "0");
  add_value(options, "samples", "N", "with --measure: timed launches per figure, 1 to 1000", "15");
}

std::string no_gpu_text(const DeviceProbe& probe) {
  return formatted(
      "no usable GPU: {}; 'vitune doctor' says what is missing, and 'vitune tune --device "
      "replay:h200' needs none",
      probe.reason);
}

int list(Session& session, const DeviceProbe& probe) {
  Table table;
  table.column("gpu", Align::kRight).column("name").column("arch").column("SMs", Align::kRight);
  table.column("memory", Align::kRight)
      .column("L2", Align::kRight)
      .column("shared/CTA", Align::kRight);
  table.column("driver").column("key").if_room();
  ordered_json document = new_document("devices");
  document["reason"] = probe.reason;
  document["devices"] = ordered_json::array();
  for (std::size_t ordinal = 0; ordinal < probe.devices.size(); ++ordinal) {
    const DeviceInfo& device = probe.devices[ordinal];
    table.row({formatted("{}", ordinal), device.name, device.arch(),
               formatted("{}", device.sm_count), bytes_text(device.memory_bytes),
               bytes_text(device.l2_bytes), bytes_text(device.shared_per_block),
               driver_text(device.driver_version), device.key()});
    document["devices"].push_back(device_json(device));
  }
  session.console.show(table, document, "");
  if (!probe.devices.empty()) return 0;
  session.console.log(LogLevel::kError, no_gpu_text(probe));
  return exit_status(ErrorCode::kNoDevice);
}

int measure(Session& session, const CeilingOptions& options, const DeviceProbe& probe) {
  if (probe.devices.empty()) {
    throw Error(ErrorCode::kNoDevice, no_gpu_text(probe));
  }
  if (static_cast<std::size_t>(options.ordinal) >= probe.devices.size()) {
    throw Error(ErrorCode::kNoDevice,
                formatted("there is no GPU {}; 'vitune devices' lists them", options.ordinal));
  }
  const DeviceInfo& device = probe.devices[static_cast<std::size_t>(options.ordinal)];
  const auto progress = [&](const std::string& phase) {
    session.console.progress("measuring: " + phase);
  };
  const Ceilings ceilings = measure_ceilings(options, progress, session.stop);
  session.console.end_progress();
  session.console.show(ceiling_table(ceilings, device), ceiling_json(ceilings, device), "");
  session.console.log(
      LogLevel::kInfo,
      formatted("{}, driver {}, {}; SM clock {:.0f} MHz during FMA", device_text(device),
                driver_text(device.driver_version), ceilings.compiler, ceilings.clock_mhz));
  if (ceilings.contended) {
    session.console.log(LogLevel::kWarning, "another process was measuring on this GPU meanwhile");
  }
  return 0;
}

int run_devices(Session& session) {
  if (!session.has("measure")) {
    session.refuse({"device", "samples"}, "belongs to --measure; see 'vitune devices --help'");
    return list(session, probe_devices(session.program));
  }
  CeilingOptions options;
  options.command = {session.program.string(), "--worker=ceilings"};
  options.ordinal = static_cast<int>(parse_integer(session.text("device"), 0, 1023, "--device"));
  options.effort.samples =
      static_cast<int>(parse_integer(session.text("samples"), 1, 1000, "--samples"));
  return measure(session, options, probe_devices(session.program));
}

}  // namespace

Verb devices_verb() {
  return {"devices",
          "List the GPUs of this machine and the key each has in the database",
          "",
          "--measure takes a few seconds per GPU. The figures are ceilings under random data: what "
          "a\n"
          "kernel that does nothing else gets. docs/measuring.md says how they are taken.",
          describe_devices,
          run_devices};
}

}  // namespace vitune
