// generator/family.h -- Family: one way to compute an operator, with tunables of its own.
//
// Each operator lists its families (Operator::families()); a new one is a file of its own and a
// line there. The space of a problem is the union of theirs. A stored config says by its tunables
// which family it is of. Objects are constants: no state; any thread. Problems that a function is
// handed are its operator's, configs its own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/compile_facts.h"
#include "core/config.h"
#include "core/device_info.h"
#include "generator/cublaslt.h"
#include "generator/launch_plan.h"
#include "generator/parameter_space.h"
#include "generator/problem.h"

namespace vitune {

// A config as people speak of it: "tma 192x112 12w s2", and the tunables that this tells.
struct ConfigWords {
  std::string text;
  std::vector<std::string> told;
};

class Family {
 public:
  virtual ~Family() = default;

  // As in config texts: "sm90". An operator's only family may have the operator's name.
  virtual std::string_view name() const = 0;
  // True if `config` is of this family; the first one of an operator's list that says so has it.
  virtual bool owns(const Config&) const { return true; }
  // Why it cannot compute `problem` on `device`, or nothing.
  virtual std::optional<std::string> refusal(const Problem&, const DeviceInfo&) const {
    return std::nullopt;
  }

  // ---- Which configs there are

  // The parameters in its stored configs: its tunables, and with one value what other families
  // have.
  virtual std::vector<Parameter> parameters(const Problem& problem) const = 0;
  // The rules between them.
  virtual std::vector<Constraint> rules(const Problem&, const DeviceInfo&) const { return {}; }
  // How good a config is likely to be without any measurement, the less the better, in no unit;
  // nothing for one that is not to be tried first.
  virtual std::optional<double> rank(const Problem&, const Config&, const DeviceInfo&) const {
    return std::nullopt;
  }
  // The configs to try without any tuning, in order of preference, inside `space`, which is the
  // problem's. Empty where nothing fits. Else: the two that rank first.
  virtual std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                                       const ParameterSpace& space) const;
  // Configs that the space holds without listing them, because a library on the device names them;
  // asked with its context current. Empty where the library is not there.
  virtual std::vector<Config> proposals(const Problem&, Libraries&) const { return {}; }
  // Tile, warps and stages; nothing told if there are no words for it. With the values of the
  // tunables that are not told, the text means one config; of those that no space can list (open
  // parameters), one of all that are stored.
  virtual ConfigWords words(const Problem&, const Config&) const { return {}; }

  // ---- How a config becomes a kernel

  // Its templates: #include lines.
  virtual std::string templates() const = 0;
  // The main text: a generated Config struct, an include and the entries.
  virtual std::string source(const Problem& problem, const Config& config) const = 0;
  // True if its code is for one architecture alone: "sm_90a" in place of "sm_90".
  virtual bool is_of_one_architecture() const { return false; }
  // The kernels of the config, entries of one translation unit; none if its plan only calls a
  // library: then there is no work for the compiler.
  virtual std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const = 0;
  // Why a compiled config cannot run or is not worth a launch on `device`, or nothing: spills of
  // more than harmless_spill_bytes(), no room on an SM.
  virtual std::optional<std::string> prune(const Problem& problem, const Config& config,
                                           const CompileFacts& facts,
                                           const DeviceInfo& device) const;
  virtual int harmless_spill_bytes() const { return 32; }

  // ---- What a call does

  // `resident`: of each of kernels(), how many CTAs fit on an SM at once, at least 1.
  virtual LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                          std::span<const int> resident) const = 0;
  // True if launches copy by tensor maps, or are of CTAs that run at once (a cooperative launch); a
  // driver may be too old for either.
  virtual bool reads_tensor_maps(const Config&) const { return false; }
  virtual bool runs_at_once() const { return false; }
  // True if plans call a library: then proposals() may have some, and the version that a config's
  // plan calls, as the library tells it.
  virtual bool calls_library() const { return false; }
  virtual std::int64_t library_version(const Config&) const { return 0; }
};

}  // namespace vitune
