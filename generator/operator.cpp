// generator/operator.cpp -- What operators, and their families, have in common.
// SPDX-License-Identifier: Apache-2.0
#include "generator/operator.h"

#include <algorithm>

#include "core/error.h"
#include "core/format.h"
#include "generator/fit.h"
#include "generator/problem_words.h"

namespace vitune {
namespace {

// True if a text that begins with no operator's name has one elsewhere, or a word like one in
// front.
bool may_mean_another(std::string_view text) {
  const std::vector<std::string_view> words = split_words(text, " \t\r\n", false);
  if (words.empty()) return false;
  const bool is_name = words[0].find('=') == words[0].npos && !element_type_of(words[0]);
  return is_name || std::ranges::any_of(words, [](std::string_view word) {
           return find_operator(word) != nullptr;
         });
}

}  // namespace

std::vector<Config> Family::defaults(const Problem& problem, const DeviceInfo& device,
                                     const ParameterSpace& space) const {
  return cheapest(space.enumerate(name()), 2,
                  [&](const Config& config) { return rank(problem, config, device); });
}

std::optional<std::string> Family::prune(const Problem& problem, const Config& config,
                                         const CompileFacts& facts,
                                         const DeviceInfo& device) const {
  return misfit(facts, kernels(problem, config), device, harmless_spill_bytes());
}

const Family& Operator::family_of(const Config& config) const {
  for (const Family* family : families()) {
    if (family->owns(config)) return *family;
  }
  throw Error(ErrorCode::kFailure, formatted("'{}' is of none of the {} families of {}",
                                             config.text(), families().size(), name()));
}

ParameterSpace Operator::space(const Problem& problem, const DeviceInfo& device) const {
  std::vector<FamilySpace> spaces;
  for (const Family* family : families()) {
    FamilySpace& space = spaces.emplace_back();
    space.name = family->name();
    space.parameters = family->parameters(problem);
    space.owns = [family](const Config& config) { return family->owns(config); };
    space.refusal = family->refusal(problem, device);
    if (!space.refusal) space.constraints = family->rules(problem, device);
  }
  return ParameterSpace(std::move(spaces));
}

std::vector<Config> Operator::defaults(const Problem& problem, const DeviceInfo& device,
                                       const ParameterSpace& space) const {
  std::vector<Config> configs;
  for (const Family* family : families()) {
    if (family->refusal(problem, device)) continue;
    for (Config& config : family->defaults(problem, device, space)) {
      configs.push_back(std::move(config));
    }
  }
  return configs;
}

bool Operator::has_proposals(const Problem& problem, const DeviceInfo& device) const {
  return std::ranges::any_of(families(), [&](const Family* family) {
    return family->calls_library() && !family->refusal(problem, device);
  });
}

std::vector<Config> Operator::proposals(const Problem& problem, const DeviceInfo& device,
                                        Libraries& libraries) const {
  std::vector<Config> configs;
  for (const Family* family : families()) {
    if (!family->calls_library() || family->refusal(problem, device)) continue;
    for (Config& config : family->proposals(problem, libraries)) {
      configs.push_back(std::move(config));
    }
  }
  return configs;
}

CompileRequest Operator::request(const Problem& problem, const Config& config,
                                 const std::string& arch) const {
  const Family& family = family_of(config);
  const std::vector<KernelNeeds> needs = family.kernels(problem, config);
  CompileRequest request;
  request.source = assemble(family.source(problem, config));
  request.arch = family.is_of_one_architecture() ? arch + "a" : arch;
  if (needs.empty()) {
    request.entry = "cublasLtMatmul";
    request.library = cublaslt_name(family.library_version(config));
  } else {
    request.entry = needs.front().entry;
  }
  return request;
}

Source Operator::templates() const {
  std::string main;
  for (const Family* family : families()) {
    const std::string own = family->templates();
    if (main.find(own) == main.npos) main += own;
  }
  return assemble(std::move(main));
}

Config Operator::carried(const Config& config, const Problem&, const Problem&,
                         const ParameterSpace& space) const {
  return space.completed(config);
}

std::vector<int> Operator::answers(const Problem& problem) const {
  std::vector<int> places;
  const std::vector<TensorSpec> specs = tensors(problem);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const bool decides = std::any_of(specs.begin(), specs.end(), [&](const TensorSpec& other) {
      return other.given && other.empty_rows == static_cast<int>(i);
    });
    if (specs[i].role == Role::kOutput && (specs[i].given || decides)) {
      places.push_back(static_cast<int>(i));
    }
  }
  return places;
}

std::string Problem::operator_name() const { return std::string(operator_->name()); }

std::vector<std::string> operator_names() {
  std::vector<std::string> names;
  for (const Operator* each : operators()) names.emplace_back(each->name());
  return names;
}

const Operator* find_operator(std::string_view name) {
  for (const Operator* candidate : operators()) {
    if (candidate->name() == name) return candidate;
  }
  return nullptr;
}

ProblemPtr parse_problem(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  const std::size_t end = std::min(text.find_first_of(kBlanks, begin), text.size());
  if (const Operator* named = find_operator(text.substr(begin, end - begin))) {
    return named->parse(text);
  }
  // The first operator's parser says what is wrong with a text that names none.
  try {
    return operators().front()->parse(text);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUsage || !may_mean_another(text)) throw;
    throw Error(error.code(), formatted("{}; a text begins with its operator's name: {} (the first "
                                        "may be left out)",
                                        error.what(), joined(operator_names(), ", ")));
  }
}

std::int64_t dynamic_shared_bytes(const Problem& problem, const Config& config) {
  std::int64_t most = 0;
  for (const KernelNeeds& each : problem.op().kernels(problem, config)) {
    most = std::max(most, each.shared_bytes);
  }
  return most;
}

Config default_config(const Problem& problem, const DeviceInfo& device) {
  return default_config(problem, device, problem.op().space(problem, device));
}

Config default_config(const Problem& problem, const DeviceInfo& device,
                      const ParameterSpace& space) {
  const std::vector<Config> configs = problem.op().defaults(problem, device, space);
  if (!configs.empty()) return configs.front();
  throw Error(ErrorCode::kUnsupported,
              formatted("no kernel for '{}' fits a device with {} bytes of shared memory per block",
                        problem.text(), device.shared_per_block));
}

}  // namespace vitune
