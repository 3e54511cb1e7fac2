// cli/cmd_devices.cpp -- vitune devices: the GPUs of this machine.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/device_probe.h"
#include "cli/results.h"
#include "cli/session.h"
#include "cli/text.h"
#include "core/error.h"

namespace vitune {
namespace {

using nlohmann::ordered_json;

int run(Session& session) {
  const DeviceProbe probe = probe_devices(session.program);
  Table table;
  table.column("gpu", Align::kRight).column("name").column("arch").column("SMs", Align::kRight);
  table.column("memory", Align::kRight)
      .column("L2", Align::kRight)
      .column("shared/CTA", Align::kRight);
  table.column("driver").column("key");
  ordered_json document = new_document("devices");
  document["reason"] = probe.reason;
  document["devices"] = ordered_json::array();
  for (std::size_t ordinal = 0; ordinal < probe.devices.size(); ++ordinal) {
    const DeviceInfo& device = probe.devices[ordinal];
    table.row(
        {fmt::format("{}", ordinal), device.name, device.arch(), fmt::format("{}", device.sm_count),
         bytes_text(device.memory_bytes), bytes_text(device.l2_bytes),
         bytes_text(device.shared_per_block),
         fmt::format("{}.{}", device.driver_version / 1000, device.driver_version % 1000 / 10),
         device.key()});
    document["devices"].push_back(device_json(device));
  }
  session.console.show(table, document, "");
  if (!probe.devices.empty()) return 0;
  session.console.log(LogLevel::kError, fmt::format("no usable GPU: {}", probe.reason));
  return exit_status(ErrorCode::kNoDevice);
}

}  // namespace

Verb devices_verb() {
  return {"devices", "List the GPUs of this machine and the key each has in the database",
          "",        "",
          nullptr,   run};
}

}  // namespace vitune
