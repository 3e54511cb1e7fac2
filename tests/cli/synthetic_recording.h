// tests/cli/synthetic_recording.h -- A recording of invented times over the real space of real
// problems.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/digest.h"
#include "generator/attention/kernel_spec.h"
#include "tests/devices.h"
#include "tuner/recording/recording.h"

namespace vitune::testing {

// Its clock keeps it apart from the device of the shipped winners.
inline DeviceInfo recorded_device() {
  DeviceInfo device = testing_support::h200_device("Synthetic");
  device.clock_khz = 1000000;
  return device;
}

// Smooth in every parameter, with a little ruggedness that depends on the config alone.
inline double invented_us(const Config& config) {
  double us = 20;
  for (const auto& [name, value] : config) {
    const auto wish = static_cast<double>(sha256(name).bytes[0] % 8 + 1);
    us += std::abs(std::log2(static_cast<double>(value) + 1) - wish);
  }
  return us + sha256(config.text()).bytes[1] / 512.0;
}

// One config in twenty is pruned, unless it must not be.
inline Trial invented_trial(const Config& config, bool may_be_pruned) {
  Trial trial;
  trial.config = config;
  trial.compile = {64, 0, 16384, 120};
  if (may_be_pruned && sha256(config.text()).bytes[0] < 12) {
    trial.status = TrialStatus::kPruned;
    trial.reason = "invented";
    return trial;
  }
  const double us = invented_us(config);
  trial.error = {1e-3, 1e-4, 2e-3, 2e-4};
  trial.measurement.cold = {us, us * 0.99, us * 1.01, 20};
  trial.measurement.warm = {us - 3, (us - 3) * 0.99, (us - 3) * 1.01, 20};
  return trial;
}

// At most about `most` configs of each problem's space, the default among them.
inline Recording synthetic_recording(const std::vector<std::string>& problems, std::size_t most) {
  Recording recording;
  recording.device = recorded_device();
  recording.compiler_version = "nvrtc 13.0 invented";
  recording.template_digest = sha256("invented").hex();
  recording.created = "2026-01-02T03:04:05Z";
  for (const std::string& text : problems) {
    const AttentionProblem problem = AttentionProblem::parse(text);
    const ParameterSpace space = attention_space(problem, recording.device);
    const std::vector<Config> configs = space.enumerate();
    const Config preset = default_attention_config(problem, recording.device);
    RecordedProblem recorded{problem.text(), problem.text(), {}, {}};
    for (const Parameter& parameter : space.parameters())
      recorded.parameters.push_back(parameter.name);
    const std::size_t step = std::max<std::size_t>(1, configs.size() / most);
    for (std::size_t i = 0; i < configs.size(); ++i) {
      if (i % step == 0 || configs[i] == preset)
        recorded.trials.push_back(invented_trial(configs[i], configs[i] != preset));
    }
    recording.put(std::move(recorded));
  }
  return recording;
}

}  // namespace vitune::testing
