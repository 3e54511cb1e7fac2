// generator/operator.h -- Operator: all that the rest of vitune knows of attention and its like.
//
// An operator is one folder here (operator, problem, problem_text, tensors, judge, its families),
// one folder in templates/, and one line in operators.cpp. What a family decides is in its own
// class (generator/family.h). The tuner, the runtime and the command know problems, tensors,
// configs and plans through this interface only. Objects are constants: no state; any thread.
// Problems and configs that a function is handed are its own operator's; a problem of another one
// is Error(kFailure).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/compile_facts.h"
#include "core/config.h"
#include "core/device_info.h"
#include "generator/compiler.h"
#include "generator/cublaslt.h"
#include "generator/family.h"
#include "generator/floor.h"
#include "generator/judge_spec.h"
#include "generator/launch_plan.h"
#include "generator/parameter_space.h"
#include "generator/problem.h"
#include "generator/source.h"
#include "generator/tensor_spec.h"

namespace vitune {

class Operator {
 public:
  virtual ~Operator() = default;

  // The first word of every problem's text: lower-case letters and '_'.
  virtual std::string_view name() const = 0;
  // Throws as parse_problem() does.
  virtual ProblemPtr parse(std::string_view text) const = 0;

  // The text of a small problem, for trials and messages.
  virtual std::string example() const = 0;

  // ---- What a problem is

  // The tensors of a call, in the order of the C interface: always as many, some not given.
  virtual std::vector<TensorSpec> tensors(const Problem& problem) const = 0;
  // A few words for messages: "b=1 h=3 nq=17 nk=197".
  virtual std::string sizes(const Problem& problem) const = 0;
  // Floating-point operations, and least bytes through device memory.
  virtual double flops(const Problem& problem) const = 0;
  virtual double min_bytes(const Problem& problem) const = 0;
  virtual Demand demand(const Problem& problem, const DeviceInfo& device) const = 0;

  // ---- How problems are like each other

  // Equal for problems with the same compile-time facts, whose configs may be taken over; any
  // bytes, asked for each stored winner.
  virtual std::string kernel_class(const Problem& problem) const = 0;
  // How far two problems of one class are from each other: of evidence, not of kernels; 0 for equal
  // sizes, symmetric.
  virtual double distance(const Problem& a, const Problem& b) const = 0;
  // True if both ask about as much of the device, as far as that decides which form is best.
  virtual bool is_load_alike(const Problem& a, const Problem& b,
                             const DeviceInfo& device) const = 0;
  // True if `a` is to be tuned before `b`: those that share kernels one after the other.
  virtual bool is_before(const Problem& a, const Problem& b) const = 0;
  // A text that stands for all problems that are the same work for a kernel if that is the same
  // kernel in the same launch: nothing may differ that decides about its time. And a number that is
  // equal where the texts are; cheap, unlike those.
  virtual std::string work_form(const Problem& problem) const { return problem.text(); }
  virtual std::size_t work_hash(const Problem& problem) const {
    return std::hash<std::string>{}(problem.text());
  }

  // ---- Its families

  // In the order of their configs in a space.
  virtual std::span<const Family* const> families() const = 0;
  // The one that `config` is of. Throws Error(kFailure) if none is.
  const Family& family_of(const Config& config) const;
  // Its name: "sm90.streaming".
  std::string family(const Config& config) const { return std::string(family_of(config).name()); }

  // ---- Which configs there are

  ParameterSpace space(const Problem& problem, const DeviceInfo& device) const;
  // The configs to try without any tuning, in order of preference, each once and inside `space`,
  // which is the problem's: that of each family in turn, unless the operator knows better. Empty if
  // no kernel fits the device.
  virtual std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                                       const ParameterSpace& space) const;
  // True if proposals() may have any.
  bool has_proposals(const Problem& problem, const DeviceInfo& device) const;
  // Proposals of all families that call a library; see Family.
  std::vector<Config> proposals(const Problem& problem, const DeviceInfo& device,
                                Libraries& libraries) const;
  // A config of `from`, of the same class, as it is written for `to`, whose space is `space`.
  virtual Config carried(const Config& config, const Problem& from, const Problem& to,
                         const ParameterSpace& space) const;
  // Equal for problems from which `config` is carried alike, as far as it is the same one.
  virtual std::int64_t carried_class(const Config&, const Problem&, const ParameterSpace&) const {
    return 0;
  }

  // ---- What the family of `config` answers

  ConfigWords words(const Problem& problem, const Config& config) const {
    return family_of(config).words(problem, config);
  }
  std::string source(const Problem& problem, const Config& config) const {
    return family_of(config).source(problem, config);
  }
  // For an architecture such as "sm_90"; entry is that of the first of kernels(). The request of a
  // config without kernels has no work for the compiler.
  CompileRequest request(const Problem& problem, const Config& config,
                         const std::string& arch) const;
  // All files that kernels of any family are made of. Its digest tells whether a recording is of
  // these kernels.
  Source templates() const;
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const {
    return family_of(config).kernels(problem, config);
  }
  std::optional<std::string> prune(const Problem& problem, const Config& config,
                                   const CompileFacts& facts, const DeviceInfo& device) const {
    return family_of(config).prune(problem, config, facts, device);
  }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const {
    return family_of(config).plan(problem, config, device, resident);
  }
  bool reads_tensor_maps(const Config& config) const {
    return family_of(config).reads_tensor_maps(config);
  }
  bool runs_at_once(const Config& config) const { return family_of(config).runs_at_once(); }
  std::int64_t library_version(const Config& config) const {
    return family_of(config).library_version(config);
  }

  // ---- How a kernel is judged

  // The main text of the kernels that give answers, compiled by itself when a problem of the
  // operator is tuned: #include lines of templates (templates/reference/).
  virtual std::string judge_source() const = 0;
  virtual std::vector<std::string> judge_entries() const = 0;
  // The plan that computes the answer to each given output, or writes the outputs plainly. Kernels
  // are counted by their place in judge_entries().
  virtual LaunchPlan answer(const Problem& problem, Precision precision) const = 0;
  // The answers that answer() makes, by their tensor's place: of all given outputs, and of those
  // whose answer decides about another's rows.
  std::vector<int> answers(const Problem& problem) const;
  // The launches that the kernel compiled for (`problem`, `config`) must be right in, cheapest
  // first. The last ones are of `problem` itself, the very last with kNormalDraw.
  virtual std::vector<JudgeCase> cases(const Problem& problem, const Config& config,
                                       const DeviceInfo& device) const = 0;
  // Equal for configs to which cases() gives the same answer; nothing: ask it for each.
  virtual std::optional<std::int64_t> cases_class(const Problem&, const Config&,
                                                  const DeviceInfo&) const {
    return std::nullopt;
  }
  // The inputs of a draw, in the order in which they are filled.
  virtual std::vector<Fill> inputs(const Problem& problem, const std::string& draw) const = 0;
};

// Every operator there is.
std::span<const Operator* const> operators();
// Their names, in that order.
std::vector<std::string> operator_names();
// The one of this name, or null.
const Operator* find_operator(std::string_view name);

// Dynamic shared memory in bytes of the config's kernel that needs most.
std::int64_t dynamic_shared_bytes(const Problem& problem, const Config& config);

// The first of the defaults. Throws Error(kUnsupported) if no kernel fits the device.
Config default_config(const Problem& problem, const DeviceInfo& device);
Config default_config(const Problem& problem, const DeviceInfo& device,
                      const ParameterSpace& space);

}  // namespace vitune
