// cli/verbs/made_today.cpp -- Derives the kernel key of a stored winner again.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/made_today.h"

#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "core/error.h"
#include "generator/compiler.h"
#include "generator/operator.h"

namespace vitune {
namespace {

// Nothing if today's templates have no such kernel.
std::optional<Digest> key_today(const DeviceInfo& device, const std::string& problem,
                                const Winner& winner) {
  try {
    const ProblemPtr asked = parse_problem(problem);
    // A source is made of sound configs only; this one may be anything.
    const ParameterSpace space = asked->op().space(*asked, device);
    const Config config = space.completed(winner.config);
    if (space.explain(config)) return std::nullopt;
    return kernel_key(asked->op().request(*asked, config, device.arch()), winner.compiler_version);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Device, problem, config, compiler.
using Made = std::tuple<std::string, std::string, std::string, std::string>;

}  // namespace

MakesKernel makes_kernel_today() {
  const auto keys = std::make_shared<std::map<Made, std::optional<Digest>>>();
  return [keys](const DeviceInfo& device, const ProblemKey& problem, const Winner& winner) {
    const auto [known, fresh] = keys->try_emplace(
        Made{device.key(), problem.text, winner.config.text(), winner.compiler_version});
    if (fresh) known->second = key_today(device, problem.text, winner);
    return known->second == winner.kernel_key;
  };
}

}  // namespace vitune
