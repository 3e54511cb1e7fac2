// generator/linear_weight_grad/family.h -- WeightGradFamily: a family of weight gradients, as its
// judge and the others know it.
//
// The list of families is in families.cpp; a new one is a file of its own and a line there. The
// parameter kFamily, a config's first, says which one it is of. Tunables that a family does not
// have are 0 in its configs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "generator/family.h"
#include "generator/linear_weight_grad/operator.h"

namespace vitune {

// What a kernel computes at a time: edge problems of the judge follow from it. No rows: there are
// none, since what is called is chosen for the very problem.
struct WeightGradBlock {
  std::int64_t rows = 0, columns = 0;  // of dw
  std::int64_t depth = 0;              // rows of dy and x per step
};

class WeightGradFamily : public Family {
 public:
  bool owns(const Config& config) const final;
  std::vector<Parameter> parameters(const Problem& problem) const final;
  ConfigWords words(const Problem& problem, const Config& config) const final;

  // Its own tunables. A name may be another family's too.
  virtual std::vector<Parameter> tunables() const = 0;
  virtual WeightGradBlock block(const Config& config) const = 0;

 protected:
  // As words(), of its own tunables.
  virtual ConfigWords own_words(const Config& config) const = 0;
  // A config of its own tunables, as it is stored.
  Config whole(Config own) const;
};

// All of them, by their number in kFamily.
std::span<const WeightGradFamily* const> weight_grad_families();
// The one that `config` is of. Throws Error(kFailure) for a number that none has.
const WeightGradFamily& weight_grad_family(const Config& config);

// Why tiles of `block` for `extent` rows or columns would be mostly empty, or nothing.
std::optional<std::string> check_weight_grad_block(std::int64_t block, std::int64_t extent);

// mma.sync (sm80.cpp): whatever a problem asks, on every architecture; not many products where sm90
// serves them.
const WeightGradFamily& weight_grad_sm80();
// wgmma (sm90.cpp): compute capability 9.0, what tensor maps can describe.
const WeightGradFamily& weight_grad_sm90();
// cuBLASLt with an epilogue of its own (cublaslt.cpp).
const WeightGradFamily& weight_grad_cublaslt();
// cuBLASLt's product, then our kernels (chain.cpp): sums of rows, scales.
const WeightGradFamily& weight_grad_chain();

}  // namespace vitune
