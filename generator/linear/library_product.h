// generator/linear/library_product.h -- A linear layer's product as a call of cuBLASLt, and the
// tunables that say by which of its algorithms.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "generator/launch_plan.h"
#include "generator/linear/family.h"
#include "generator/linear/problem.h"

namespace vitune {

// Tunables: kLibrary, the version; kAlgorithm0 to kAlgorithm7, the algorithm as the library writes
// it down; kWorkspace, bytes. All open: a config holds those that are not 0.
std::vector<Parameter> library_parameters();
std::vector<Constraint> library_rules();
MatmulAlgorithm library_algorithm(const Config& config);
// "cublaslt cuBLASLt 13.1.0 7d0a1c9e": the last word is the short name of its algorithm.
ConfigWords library_words(const std::string& family, const Config& config);
// What the algorithm adds to the text of a call without a kernel of ours, as a comment; and to the
// Config of a kernel behind such a call, as a member: comments do not count in a kernel's key, and
// a block of one algorithm is none of another.
std::string library_text(const Config& config);
std::string library_member(const Config& config);

// x W^T as the product of two matrices whose elements lie column by column: the transposed result
// is W x^T. `d` is where it goes: n rows, m columns.
MatmulCall library_product(const LinearProblem& problem, const MatrixSlot& d);

// What families whose plans call the library have in common.
class LinearLibraryFamily : public LinearFamily {
 public:
  std::vector<Parameter> tunables() const override { return library_parameters(); }
  std::vector<Constraint> rules(const Problem&, const DeviceInfo&) const override {
    return library_rules();
  }
  // Which algorithms there are the device alone can say.
  std::vector<Config> defaults(const Problem&, const DeviceInfo&,
                               const ParameterSpace&) const override {
    return {};
  }
  std::optional<std::string> prune(const Problem&, const Config&, const CompileFacts&,
                                   const DeviceInfo&) const override {
    return std::nullopt;
  }
  LinearBlock block(const Config&) const override { return {}; }
  bool calls_library() const override { return true; }
  std::int64_t library_version(const Config& config) const override {
    return library_algorithm(config).version;
  }

 protected:
  // What the library proposes for `call`, at most `most`; none where there is no library.
  std::vector<Config> proposed(const MatmulCall& call, Libraries& libraries, int most) const;

 private:
  ConfigWords own_words(const Config& config) const override {
    return library_words(std::string(name()), config);
  }
};

}  // namespace vitune
