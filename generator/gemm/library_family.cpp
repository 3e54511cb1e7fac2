// generator/gemm/library_family.cpp -- Between configs and cuBLASLt's algorithms.
// SPDX-License-Identifier: Apache-2.0
#include "generator/gemm/library_family.h"

#include "core/checked.h"
#include "core/digest.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/prepared_matmul.h"

namespace vitune {
namespace {

constexpr char kLibrary[] = "kLibrary", kWorkspace[] = "kWorkspace";

std::string word_name(std::size_t word) { return formatted("kAlgorithm{}", word); }

Parameter open_parameter(std::string name, std::string doc) {
  Parameter parameter{std::move(name), {0}, std::move(doc)};
  parameter.open = true;
  return parameter;
}

void set_unless_zero(Config& config, const std::string& name, std::int64_t value) {
  if (value != 0) config.set(name, value);
}

}  // namespace

std::vector<Parameter> library_parameters() {
  std::vector<Parameter> parameters = {open_parameter(kLibrary, "cuBLASLt's version")};
  for (std::size_t word = 0; word < MatmulAlgorithm().words.size(); ++word) {
    parameters.push_back(
        open_parameter(word_name(word), "its algorithm, as that version writes it down"));
  }
  parameters.push_back(open_parameter(kWorkspace, "bytes that the algorithm works in"));
  return parameters;
}

MatmulAlgorithm library_algorithm(const Config& config) {
  MatmulAlgorithm algorithm;
  algorithm.version = config.find(kLibrary).value_or(0);
  for (std::size_t word = 0; word < algorithm.words.size(); ++word) {
    algorithm.words[word] = config.find(word_name(word)).value_or(0);
  }
  algorithm.workspace_bytes = config.find(kWorkspace).value_or(0);
  return algorithm;
}

std::string library_text(const Config& config) {
  const MatmulAlgorithm algorithm = library_algorithm(config);
  std::string text = "// " + cublaslt_name(algorithm.version) + ", algorithm";
  for (const std::int64_t word : algorithm.words) text += formatted(" {}", word);
  return text + formatted(", workspace {}\n", algorithm.workspace_bytes);
}

std::string library_member(const Config& config) {
  const std::string comment = library_text(config);
  constexpr std::size_t kSlashes = 3;
  return formatted("  static constexpr const char* kProduct = \"{}\";\n",
                   comment.substr(kSlashes, comment.size() - kSlashes - 1));
}

MatrixSlot library_matrix(int tensor, ElementType type, std::int64_t rows, std::int64_t columns,
                          std::int64_t stride, std::int64_t alignment) {
  MatrixSlot slot;
  slot.tensor = tensor;
  slot.type = type;
  slot.rows = rows;
  slot.columns = columns;
  slot.stride = stride;
  slot.alignment = alignment;
  return slot;
}

std::vector<Constraint> GemmLibraryFamily::rules(const Problem&, const DeviceInfo&) const {
  return {{"library: a proposal of cuBLASLt's, which the device has to be asked for",
           [](const Config& c) -> std::optional<std::string> {
             if (c.find(kLibrary).value_or(0) > 0) return std::nullopt;
             return "no version of it";
           },
           {kLibrary}},
          {"workspace: 0 to 2^30 bytes",
           [](const Config& c) -> std::optional<std::string> {
             const std::int64_t bytes = c.find(kWorkspace).value_or(0);
             if (bytes >= 0 && bytes <= 1 << 30) return std::nullopt;
             return formatted("{} bytes", bytes);
           },
           {kWorkspace}}};
}

ConfigWords GemmLibraryFamily::own_words(const Config& config) const {
  // Digits of the digest that tells calls apart: no two that are stored of a problem shall look
  // alike.
  constexpr std::size_t kDigits = 8;
  const std::string digest = sha256(library_text(config)).hex().substr(0, kDigits);
  ConfigWords words{
      formatted("{} {} {}", name(), cublaslt_name(library_algorithm(config).version), digest), {}};
  for (const Parameter& parameter : library_parameters()) words.told.push_back(parameter.name);
  return words;
}

LaunchPlan GemmLibraryFamily::plan_of_call(const Problem& problem, const Config& config,
                                           std::int64_t kept) const {
  LaunchPlan plan;
  MatmulCall& call = plan.matmuls.emplace_back(product(problem));
  call.algorithm = library_algorithm(config);
  call.workspace_at = round_up(kept, kScratchUnit);
  plan.scratch_bytes = call.workspace_at + call.algorithm.workspace_bytes;
  return plan;
}

std::vector<Config> GemmLibraryFamily::proposals(const Problem& problem,
                                                 Libraries& libraries) const {
  std::vector<Config> configs;
  std::vector<MatmulAlgorithm> algorithms;
  try {
    algorithms = proposed_algorithms(product(problem), *libraries.cublaslt(), most_proposals_);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    return {};
  }
  for (const MatmulAlgorithm& algorithm : algorithms) {
    Config config;
    set_unless_zero(config, kLibrary, algorithm.version);
    for (std::size_t word = 0; word < algorithm.words.size(); ++word) {
      set_unless_zero(config, word_name(word), algorithm.words[word]);
    }
    set_unless_zero(config, kWorkspace, algorithm.workspace_bytes);
    configs.push_back(whole(std::move(config)));
  }
  return configs;
}

}  // namespace vitune
