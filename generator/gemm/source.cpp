// generator/gemm/source.cpp -- Texts of generated Configs and entries, and grids of clusters.
// SPDX-License-Identifier: Apache-2.0
#include "generator/gemm/source.h"

#include <algorithm>

#include "core/checked.h"
#include "core/format.h"

namespace vitune {

std::string entry_text(std::int64_t threads, std::string_view entry, std::string_view params,
                       std::string_view function) {
  return entry_text(std::to_string(threads), entry, params, function);
}

std::string entry_text(const GemmSm90& shape, std::string_view entry, std::string_view params,
                       std::string_view maps, std::string_view function) {
  // The size of its clusters is a fact of the kernel: an ordinary launch has them too.
  const int cluster = shape.cluster() * shape.parts;
  return formatted(
      "\nextern \"C\" __global__ void {}__launch_bounds__({}, 1)\n"
      "{}(const __grid_constant__ vitune::{} params,\n"
      "   const __grid_constant__ vitune::{} maps) {{\n"
      "  vitune::{}<vitune::Config>(params, maps);\n}}\n",
      cluster > 1 ? formatted("__cluster_dims__({}, 1, 1) ", cluster) : "", shape.threads(), entry,
      params, maps, function);
}

std::int64_t units_of(const GemmSm90& shape, std::int64_t rows, std::int64_t columns) {
  return ceil_div(rows, std::int64_t{shape.unit_rows()}) *
         ceil_div(columns, std::int64_t{shape.unit_columns()});
}

LaunchShape launch_shape(const GemmSm90& shape, std::int64_t units, const DeviceInfo& device,
                         std::span<const int> resident) {
  const std::int64_t room = std::max(device.sm_count, 1) * std::max(resident.front(), 1);
  const std::int64_t clusters = std::max<std::int64_t>(room / shape.cluster(), 1);
  const std::int64_t ctas =
      shape.parts > 1 ? units * shape.parts : std::min(units, clusters) * shape.cluster();
  LaunchShape launch;
  launch.grid[0] = static_cast<std::uint32_t>(ctas);
  launch.block[0] = static_cast<std::uint32_t>(shape.threads());
  launch.shared_bytes = static_cast<std::uint32_t>(shape.shared_bytes());
  launch.waits_for_earlier = true;  // wait_for_earlier_grids() in templates
  return launch;
}

}  // namespace vitune
