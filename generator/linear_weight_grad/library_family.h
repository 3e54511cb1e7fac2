// generator/linear_weight_grad/library_family.h -- What families of weight gradients whose plans
// call cuBLASLt have in common.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generator/launch_plan.h"
#include "generator/linear/library_product.h"
#include "generator/linear_weight_grad/family.h"
#include "generator/linear_weight_grad/kernel_spec.h"

namespace vitune {

// dy' x as the product of two matrices whose elements lie column by column: the transposed result
// is x' dy, of which x is there as it is and dy transposed. Without a scale it goes to dw, with
// what is added to it; else in fp32 to the scratch memory.
MatmulCall weight_grad_product(const LinearWeightGradProblem& problem);

class WeightGradLibraryFamily : public WeightGradFamily {
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
  WeightGradBlock block(const Config&) const override { return {}; }
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
