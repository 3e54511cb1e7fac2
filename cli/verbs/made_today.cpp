// cli/verbs/made_today.cpp -- Derives the keys of a stored winner's kernel again.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/made_today.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "generator/compile_options.h"
#include "generator/operator.h"

namespace vitune {
namespace {

// Empty if today's templates have no such kernel.
std::vector<Digest> keys_today(const DeviceInfo& device, const std::string& problem,
                               const Winner& winner) {
  try {
    const ProblemPtr asked = parse_problem(problem);
    // A source is made of sound configs only; this one may be anything.
    const ParameterSpace space = asked->op().space(*asked, device);
    const Config config = space.completed(winner.config);
    if (space.explain(config)) return {};
    return keys_of(asked->op().request(*asked, config, device.arch()), winner.compiler_version);
  } catch (const Error&) {
    return {};
  }
}

// Device, problem, config, compiler.
using Made = std::tuple<std::string, std::string, std::string, std::string>;

}  // namespace

MakesKernel makes_kernel_today() {
  const auto keys = std::make_shared<std::map<Made, std::vector<Digest>>>();
  return [keys](const DeviceInfo& device, const ProblemKey& problem, const Winner& winner) {
    const auto [known, fresh] = keys->try_emplace(
        Made{device.key(), problem.text, winner.config.text(), winner.compiler_version});
    if (fresh) known->second = keys_today(device, problem.text, winner);
    return std::ranges::find(known->second, winner.kernel_key) != known->second.end();
  };
}

}  // namespace vitune
