// generator/linear/family.h -- LinearFamily: a family of linear layers, as its judge and the others
// know it.
//
// The list of families is in families.cpp; a new one is a file of its own and a line there. The
// parameter kFamily, a config's first, says which one it is of; a config without it is of the
// first. Tunables that a family does not have are 0 in its configs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "generator/family.h"
#include "generator/linear/operator.h"
#include "generator/linear/problem.h"

namespace vitune {

// What a kernel computes at a time: edge problems of the judge follow from it. No rows: there are
// none, since what is called is chosen for the very problem.
struct LinearBlock {
  std::int64_t rows = 0, columns = 0;  // of the result
  std::int64_t k = 0;                  // columns of x per step
};

class LinearFamily : public Family {
 public:
  bool owns(const Config& config) const final;
  std::vector<Parameter> parameters(const Problem& problem) const final;
  ConfigWords words(const Problem& problem, const Config& config) const final;

  // Its own tunables. A name may be another family's too.
  virtual std::vector<Parameter> tunables() const = 0;
  virtual LinearBlock block(const Config& config) const = 0;

 protected:
  // As words(), of its own tunables.
  virtual ConfigWords own_words(const Config& config) const = 0;
  // A config of its own tunables, as it is stored.
  Config whole(Config own) const;
};

// All of them, by their number in kFamily.
std::span<const LinearFamily* const> linear_families();
// The one that `config` is of. Throws Error(kFailure) for a number that none has.
const LinearFamily& linear_family(const Config& config);

// mma.sync (sm80.cpp): whatever a problem asks, on every architecture; not many rows where sm90
// serves them.
const LinearFamily& linear_sm80();
// wgmma (sm90.cpp): compute capability 9.0, what tensor maps can describe.
const LinearFamily& linear_sm90();
// wgmma with k in parts that a cluster adds (sm90_split_k.cpp): layers of few tiles.
const LinearFamily& linear_sm90_split_k();
// cuBLASLt with an epilogue of its own (cublaslt.cpp).
const LinearFamily& linear_cublaslt();
// cuBLASLt's product, then our epilogue (chain.cpp): what cuBLASLt has no epilogue for.
const LinearFamily& linear_chain();

}  // namespace vitune
