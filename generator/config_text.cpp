// generator/config_text.cpp -- Texts of generated Configs and entries.
// SPDX-License-Identifier: Apache-2.0
#include "generator/config_text.h"

#include "core/format.h"

namespace vitune {

std::string config_number(std::string_view name, std::int64_t value) {
  return formatted("  static constexpr int {} = {};\n", name, value);
}

std::string config_flag(std::string_view name, bool value) {
  return formatted("  static constexpr bool {} = {};\n", name, value ? "true" : "false");
}

std::string config_source(const std::string& includes, const std::string& members) {
  return includes + "\nnamespace vitune {\nstruct Config {\n" + members +
         "};\n}  // namespace vitune\n";
}

std::string entry_text(std::string_view bounds, std::string_view entry, std::string_view params,
                       std::string_view function, std::string_view attributes) {
  return formatted(
      "\nextern \"C\" __global__ void {}__launch_bounds__({})\n"
      "{}(const __grid_constant__ vitune::{} params) {{\n"
      "  vitune::{}<vitune::Config>(params);\n}}\n",
      attributes, bounds, entry, params, function);
}

}  // namespace vitune
