// generator/gemm/library_family.h -- GemmLibraryFamily: a product of matrices as a call of
// cuBLASLt, and the tunables that say by which of its algorithms.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "generator/gemm/family.h"
#include "generator/launch_plan.h"

namespace vitune {

// Tunables: kLibrary, the version; kAlgorithm0 to kAlgorithm7, the algorithm as the library writes
// it down; kWorkspace, bytes. All open: a config holds those that are not 0.
std::vector<Parameter> library_parameters();
MatmulAlgorithm library_algorithm(const Config& config);
// The algorithm's addition to the text of a call without a kernel of ours, as a comment; and to the
// Config of a kernel behind such a call, as a member: comments do not count in a kernel's key, and
// a block of one algorithm is none of another.
std::string library_text(const Config& config);
std::string library_member(const Config& config);

// A matrix that a call reads or writes, its elements column by column.
MatrixSlot library_matrix(int tensor, ElementType type, std::int64_t rows, std::int64_t columns,
                          std::int64_t stride, std::int64_t alignment);

// The common part of families whose plans call the library.
class GemmLibraryFamily : public GemmFamily {
 public:
  std::vector<Parameter> tunables() const override { return library_parameters(); }
  std::vector<Constraint> rules(const Problem&, const DeviceInfo&) const override;
  // Which algorithms there are the device alone can say.
  std::vector<Config> defaults(const Problem&, const DeviceInfo&,
                               const ParameterSpace&) const override {
    return {};
  }
  std::optional<std::string> prune(const Problem&, const Config&, const CompileFacts&,
                                   const DeviceInfo&) const override {
    return std::nullopt;
  }
  GemmBlock block(const Config&) const override { return {}; }
  bool calls_library() const override { return true; }
  std::int64_t library_version(const Config& config) const override {
    return library_algorithm(config).version;
  }
  // Configs that the library proposes for the family's product; none where there is no library.
  std::vector<Config> proposals(const Problem& problem, Libraries& libraries) const override;

 protected:
  GemmLibraryFamily(std::string_view name, GemmFamilies (*all)(), int most_proposals)
      : GemmFamily(name, all), most_proposals_(most_proposals) {}

  // The call, but for its algorithm.
  virtual MatmulCall product(const Problem& problem) const = 0;
  // A plan of that call alone, with `kept` bytes of scratch memory before the library's, for what
  // kernels behind it read.
  LaunchPlan plan_of_call(const Problem& problem, const Config& config,
                          std::int64_t kept = 0) const;

 private:
  // "cublaslt cuBLASLt 13.1.0 7d0a1c9e": the last word is the short name of its algorithm.
  ConfigWords own_words(const Config& config) const override;

  int most_proposals_;
};

}  // namespace vitune
