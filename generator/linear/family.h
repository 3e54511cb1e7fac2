// generator/linear/family.h -- LinearFamily: one way to answer a linear layer, with tunables of its
// own.
//
// The list of families is in families.cpp; a new one is a file of its own and a line there. The
// tunable kFamily, a config's first, says which one it is of; a config without it is of the first.
// Tunables that a family does not have are 0 in its configs. What the families do is the common
// judge's to say (judge.cpp).
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
#include "generator/launch_plan.h"
#include "generator/linear/problem.h"
#include "generator/operator.h"
#include "generator/parameter_space.h"

namespace vitune {

// What a kernel computes at a time: edge problems of the judge follow from it. No rows: there are
// none, since what is called is chosen for the very problem.
struct LinearBlock {
  std::int64_t rows = 0, columns = 0;  // of the result
  std::int64_t k = 0;                  // columns of x per step
};

// Objects are constants: no state; any thread. Configs that a function is handed are of the family.
class LinearFamily {
 public:
  virtual ~LinearFamily() = default;

  // As in config texts: "sm80".
  virtual std::string_view name() const = 0;
  // Why it cannot answer `problem` on `device`, or nothing.
  virtual std::optional<std::string> refusal(const LinearProblem& problem,
                                             const DeviceInfo& device) const = 0;

  // Its tunables, and the rules between them. A name may be another family's too.
  virtual std::vector<Parameter> parameters() const = 0;
  virtual std::vector<Constraint> rules(const LinearProblem& problem,
                                        const DeviceInfo& device) const = 0;
  // What to try without any tuning, in order of preference, inside `space`. Configs need its own
  // tunables only. Empty where nothing fits.
  virtual std::vector<Config> defaults(const LinearProblem& problem, const DeviceInfo& device,
                                       const ParameterSpace& space) const = 0;
  // As Operator's of the same names.
  virtual ConfigWords words(const Config& config) const = 0;
  virtual std::string source(const LinearProblem& problem, const Config& config) const = 0;
  virtual std::optional<std::string> prune(const LinearProblem& problem, const Config& config,
                                           const CompileFacts& facts,
                                           const DeviceInfo& device) const = 0;
  virtual std::vector<KernelNeeds> kernels(const LinearProblem& problem,
                                           const Config& config) const = 0;
  virtual LaunchPlan plan(const LinearProblem& problem, const Config& config,
                          const DeviceInfo& device, std::span<const int> resident) const = 0;
  virtual LinearBlock block(const Config& config) const = 0;

  // Its templates: #include lines.
  virtual std::string templates() const = 0;
  // Whether its code is for one architecture alone: "sm_90a" in place of "sm_90".
  virtual bool is_of_one_architecture() const { return false; }
  virtual bool reads_tensor_maps() const { return false; }

  // As Operator's of the same names, for families whose plans call a library.
  virtual bool calls_library() const { return false; }
  virtual std::vector<Config> proposals(const LinearProblem&, Libraries&) const { return {}; }
  virtual std::int64_t library_version(const Config&) const { return 0; }
};

// All of them, by their number in kFamily.
std::span<const LinearFamily* const> linear_families();
// The one that `config` is of. Throws Error(kFailure) for a number that none has.
const LinearFamily& linear_family(const Config& config);

// mma.sync (sm80.cpp): whatever a problem asks, on every architecture; not many rows where sm90
// serves them.
const LinearFamily& linear_sm80();
// wgmma (sm90.cpp): compute capability 9.0, what tensor maps can describe.
const LinearFamily& linear_sm90();
// wgmma with k in parts that a cluster adds (sm90_split_k.cpp): layers of few tiles.
const LinearFamily& linear_sm90_split_k();
// cuBLASLt with an epilogue of its own (cublaslt.cpp).
const LinearFamily& linear_cublaslt();
// cuBLASLt's product, then our epilogue (chain.cpp): what cuBLASLt has no epilogue for.
const LinearFamily& linear_chain();

}  // namespace vitune
