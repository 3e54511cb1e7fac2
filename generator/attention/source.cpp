// generator/attention/source.cpp -- Renders a problem and a config as the source of a kernel.
//
// Only integers of the declared space and of the problem's facts reach the text; no string from
// outside does.
// SPDX-License-Identifier: Apache-2.0

#include <array>
#include <string_view>

#include "core/error.h"
#include "core/format.h"
#include "generator/attention/facts.h"
#include "generator/attention/kernel_spec.h"

namespace vitune {
namespace {

constexpr std::array<std::string_view, 3> kTemplates = {"sm80", "sm90", "sm90_pipelined"};

std::string_view template_of(bool warpgroups, bool producer) {
  return kTemplates[!warpgroups ? 0 : producer ? 2 : 1];
}

constexpr char kEntry[] = "vitune_attention_forward";

std::string constant(std::string_view name, std::int64_t value) {
  return formatted("  static constexpr int {} = {};\n", name, value);
}

std::string flag(const char* name, bool value) {
  return formatted("  static constexpr bool {} = {};\n", name, value ? "true" : "false");
}

std::string facts_text(const AttentionFacts& facts) {
  return constant("kElement", facts.element) + constant("kHeadDim", facts.head_dim) +
         flag("kCausal", facts.causal) + constant("kBias", facts.bias) +
         constant("kBiasVector", facts.bias_vector) + flag("kBiasAligned", facts.bias_aligned) +
         flag("kBiasOneRow", facts.bias_one_row) + flag("kBiasWholeRows", facts.bias_whole_rows) +
         flag("kMask", facts.mask) + constant("kMaskVector", facts.mask_vector) +
         flag("kLse", facts.lse) + constant("kCopyBytes", facts.copy_bytes);
}

std::string tunables_text(const AttentionProblem& problem, const Config& config,
                          const AttentionShape& shape) {
  std::string text;
  for (const Parameter& parameter : attention_parameters(problem)) {
    // A config stored before a tunable existed does without it.
    const std::int64_t value = config.find(parameter.name).value_or(parameter.values.front());
    text += parameter.name == "kConstantKeys" ? constant("kKeys", value ? problem.nk : 0)
                                              : constant(parameter.name, value);
  }
  return text + constant("kCtaThreads", shape.threads()) +
         constant("kSharedBytes", shape.shared_bytes());
}

std::string source_text(const AttentionProblem& problem, const Config& config,
                        const AttentionShape& shape) {
  const std::string_view name = template_of(shape.warpgroups(), shape.producer != 0);
  const char* maps =
      shape.tensor_copies() ? ", const __grid_constant__ vitune::AttentionTensorMaps maps" : "";
  return formatted(
      "namespace vitune {{\nstruct Config {{\n{}{}}};\n}}  // namespace vitune\n\n"
      "#include \"attention/forward_{}.cuh\"\n\n"
      "extern \"C\" __global__ void __launch_bounds__({}, vitune::Config::kMinCtas)\n"
      "{}(const __grid_constant__ vitune::AttentionParams params{}) {{\n"
      "  vitune::forward<vitune::Config>(params{});\n}}\n",
      facts_text(shape.facts), tunables_text(problem, config, shape), name, shape.threads(), kEntry,
      maps, shape.tensor_copies() ? ", maps" : "");
}

}  // namespace

std::string attention_family(const Config& config) {
  const auto is_set = [&](std::string_view name) { return config.find(name).value_or(0) != 0; };
  return formatted("{}.{}", template_of(is_set("kSwizzle"), is_set("kProducer")),
                   is_set("kResident") ? "resident" : "streaming");
}

std::string attention_entry() { return kEntry; }

std::string attention_source(const AttentionProblem& problem, const Config& config) {
  return source_text(problem, config, AttentionShape(problem, config));
}

CompileRequest attention_compile_request(const AttentionProblem& problem, const Config& config,
                                         const std::string& arch) {
  const AttentionShape shape(problem, config);
  CompileRequest request;
  request.source = assemble(source_text(problem, config, shape));
  // wgmma is one of the instructions that only the architecture's own code may use.
  request.arch = shape.warpgroups() ? arch + "a" : arch;
  request.entry = kEntry;
  return request;
}

Source attention_templates() {
  std::string main;
  for (const std::string_view name : kTemplates) {
    main += formatted("#include \"attention/forward_{}.cuh\"\n", name);
  }
  return assemble(std::move(main));
}

bool attention_keys_are_constant(const Config& config) { return config.at("kConstantKeys") != 0; }

}  // namespace vitune
