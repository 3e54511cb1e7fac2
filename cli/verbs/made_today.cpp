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
std::optional<Digest> key_today(const std::string& arch, const std::string& problem,
                                const Winner& winner) {
  try {
    const ProblemPtr asked = parse_problem(problem);
    return kernel_key(asked->op().request(*asked, winner.config, arch), winner.compiler_version);
  } catch (const Error&) {
    return std::nullopt;
  }
}

using Made = std::tuple<std::string, std::string, std::string, std::string>;

}  // namespace

MakesKernel makes_kernel_today() {
  const auto keys = std::make_shared<std::map<Made, std::optional<Digest>>>();
  return [keys](const DeviceInfo& device, const ProblemKey& problem, const Winner& winner) {
    const std::string arch = device.arch();
    const auto [known, fresh] =
        keys->try_emplace(Made{arch, problem.text, winner.config.text(), winner.compiler_version});
    if (fresh) known->second = key_today(arch, problem.text, winner);
    return known->second == winner.kernel_key;
  };
}

}  // namespace vitune
