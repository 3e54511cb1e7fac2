// catalogue/model_problems.h -- The problems of a forward pass of a model, with their share of its
// time.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "catalogue/model_catalogue.h"
#include "catalogue/problem_set.h"

namespace vitune {

// A problem that a model asks for some number of images.
struct ModelProblem {
  ProblemPtr problem;
  std::int64_t calls = 0;  // in one forward pass
  double floor_us = 0;     // of one call on an H200; 0 if its units' rates are not known
  // Share of the floors of all calls of the pass that vitune takes, 0 to 1; 0 of a second choice.
  double share = 0;
  bool is_second = false;  // see AskedCall
};

// The text of a call for `images` images in `dtype`. Throws Error(kUnsupported) where a number
// leaves 64 bits.
std::string call_text(const AskedCall& call, std::int64_t images, ElementType dtype);

// The different problems of a forward pass (in training of a step) over `images` >= 1 images in
// `dtype` (kBf16 or kFp16) that are asked for in that way, second choices last; without calls that
// the kernels do not take. Throws Error(kUnsupported) where so many images are beyond their reach.
std::vector<ModelProblem> model_problems(const Model& model, std::int64_t images, ElementType dtype,
                                         AskedBy asked_by);

// Sets floor and share of each, from its problem and calls.
void add_shares(std::vector<ModelProblem>& problems);

// The largest share first, then second choices by the floors of their calls.
void sort_by_share(std::vector<ModelProblem>& problems);

// Those of the operators of `input` (all if it names none) with names, so sorted:
// "vit_base_patch16_224 b32 (12x)" is attention, others name their operator before the batch, and
// "... #2 b32 (1x)" is the second of an operator that has several. `group` is the model's name.
std::vector<NamedProblem> named_model_problems(const Model& model, std::int64_t images,
                                               const ModelInput& input);

// The same of any list of a pass's problems, of which `group` is the model's name.
std::vector<NamedProblem> named_problems(const std::string& group,
                                         std::vector<ModelProblem> problems, std::int64_t images,
                                         const ModelInput& input);

// One sentence on the calls of `model`, of the operators of `input`, that the kernels do not take,
// or that it is not known what they are; empty if they take all.
std::string unsupported_calls(const Model& model, const ModelInput& input = {});

// One line on the calls of these models that are PyTorch's, because vitune has no such operator or
// is not asked that way, for one pass of each; empty if there is none.
std::string calls_without_operator(const std::vector<const Model*>& models, AskedBy asked_by);

}  // namespace vitune
