// generator/linear/library_product.h -- A linear layer's product as a call of cuBLASLt, and the
// tunables that say by which of its algorithms.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "generator/launch_plan.h"
#include "generator/linear/problem.h"
#include "generator/operator.h"
#include "generator/parameter_space.h"

namespace vitune {

// Tunables: kLibrary, the version; kAlgorithm0 to kAlgorithm7, the algorithm as the library writes
// it down; kWorkspace, bytes. All open: a config holds those that are not 0.
std::vector<Parameter> library_parameters();
std::vector<Constraint> library_rules();
MatmulAlgorithm library_algorithm(const Config& config);
ConfigWords library_words(const std::string& family, const Config& config);
// What the algorithm adds to a source, as a comment.
std::string library_text(const Config& config);

// x W^T as the product of two matrices whose elements lie column by column: the transposed result
// is W x^T. `d` is where it goes: n rows, m columns.
MatmulCall library_product(const LinearProblem& problem, const MatrixSlot& d);

// Configs of a family's own tunables for what the library proposes for `call`, at most `most`; none
// where there is no library.
std::vector<Config> library_proposals(const MatmulCall& call, Libraries& libraries, int most);

}  // namespace vitune
