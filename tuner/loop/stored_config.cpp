// tuner/loop/stored_config.cpp -- Completes a stored config and asks the space.
#include "tuner/loop/stored_config.h"

#include "generator/attention/kernel_spec.h"

namespace vitune {
namespace {

// These there have always been, and no value of theirs means "without it".
constexpr const char* kNeeded[] = {"kBlockN", "kConstantKeys", "kWarps"};

}  // namespace

std::optional<std::string> outside_space(const AttentionProblem& problem, const DeviceInfo& device,
                                         const Config& config) {
  for (const char* name : kNeeded) {
    if (!config.find(name)) return std::string(name) + " is missing";
  }
  const ParameterSpace space = attention_space(problem, device);
  Config whole = config;
  for (const Parameter& parameter : space.parameters()) {
    if (!whole.find(parameter.name)) whole.set(parameter.name, parameter.values.front());
  }
  return space.explain(whole);
}

}  // namespace vitune
