// generator/attention/source.cpp -- Renders a problem and a config as the source of a kernel.
//
// Only integers of the declared space and of the problem's facts reach the text; no string from
// outside does.
// SPDX-License-Identifier: Apache-2.0

#include <string_view>

#include "core/format.h"
#include "generator/attention/dropout.h"
#include "generator/attention/facts.h"
#include "generator/attention/family.h"
#include "generator/attention/operator.h"
#include "generator/config_text.h"

namespace vitune {
namespace {

constexpr char kEntry[] = "vitune_attention_forward";

std::string facts_text(const AttentionFacts& facts) {
  return config_number("kElement", facts.element) + config_number("kHeadDim", facts.head_dim) +
         config_flag("kCausal", facts.causal) + config_number("kBias", facts.bias) +
         config_number("kBiasVector", facts.bias_vector) +
         config_flag("kBiasAligned", facts.bias_aligned) +
         config_flag("kBiasOneRow", facts.bias_one_row) +
         config_flag("kBiasWholeRows", facts.bias_whole_rows) + config_flag("kMask", facts.mask) +
         config_number("kMaskVector", facts.mask_vector) + config_flag("kLse", facts.lse) +
         config_number("kCopyBytes", facts.copy_bytes);
}

// The templates' name of a tunable whose name in stored configs is an older one.
std::string_view template_name(std::string_view tunable) {
  return tunable == "kSpareRows" ? "kSwapAbRows" : tunable;
}

std::string tunables_text(const AttentionShape& shape) {
  std::string text;
  for (const AttentionTunable& tunable : kAttentionTunables) {
    const std::int64_t value = shape.*tunable.value;
    text += tunable.name == "kConstantKeys" ? config_number("kKeys", value ? shape.nk : 0)
                                            : config_number(template_name(tunable.name), value);
  }
  return text + config_number("kCtaThreads", shape.threads()) +
         config_number("kSharedBytes", shape.shared_bytes());
}

}  // namespace

AttentionFamily::AttentionFamily(std::string_view template_name, bool is_resident)
    : is_resident_(is_resident),
      template_(template_name),
      name_(formatted("{}.{}", template_name, is_resident ? "resident" : "streaming")) {}

std::string AttentionFamily::templates() const {
  std::string text = formatted("#include \"attention/forward_{}.cuh\"\n", template_);
  if (has_dropout())
    text += formatted("#include \"attention/forward_{}_dropout.cuh\"\n", template_);
  return text;
}

std::optional<std::string> AttentionFamily::refusal(const Problem& problem,
                                                    const DeviceInfo&) const {
  const AttentionProblem& p = attention_of(problem);
  return has_dropout() ? unsuited_dropout(p, p.lse) : no_dropout(p);
}

std::string AttentionFamily::source(const Problem& problem, const Config& config) const {
  const AttentionShape shape(attention_of(problem), config);
  const char* maps =
      shape.tensor_copies() ? ", const __grid_constant__ vitune::AttentionTensorMaps maps" : "";
  const bool drops = shape.facts.dropout;
  return formatted(
      "namespace vitune {{\nstruct Config {{\n{}{}}};\n}}  // namespace vitune\n\n"
      "#include \"attention/forward_{}{}.cuh\"\n\n"
      "extern \"C\" __global__ void __launch_bounds__({}, vitune::Config::kMinCtas)\n"
      "{}(const __grid_constant__ vitune::{} params{}) {{\n"
      "  vitune::forward{}<vitune::Config>(params{});\n}}\n",
      facts_text(shape.facts), tunables_text(shape), template_, drops ? "_dropout" : "",
      shape.threads(), kEntry, drops ? "AttentionDropoutParams" : "AttentionParams", maps,
      drops ? "_with_dropout" : "", shape.tensor_copies() ? ", maps" : "");
}

std::vector<KernelNeeds> AttentionFamily::kernels(const Problem& problem,
                                                  const Config& config) const {
  const AttentionShape shape(attention_of(problem), config);
  return {{kEntry, static_cast<int>(shape.threads()), shape.shared_bytes()}};
}

std::string attention_source(const AttentionProblem& problem, const Config& config) {
  return attention().source(*ProblemPtr(problem), config);
}

CompileRequest attention_compile_request(const AttentionProblem& problem, const Config& config,
                                         const std::string& arch) {
  return attention().request(*ProblemPtr(problem), config, arch);
}

bool attention_keys_are_constant(const Config& config) { return config.at("kConstantKeys") != 0; }

}  // namespace vitune
