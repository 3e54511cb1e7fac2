// generator/map/kernel_spec.h -- What map's operator, its family and its judge share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/config.h"
#include "generator/family.h"
#include "generator/judge_spec.h"
#include "generator/launch_plan.h"
#include "generator/map/problem.h"
#include "generator/tensor_spec.h"

namespace vitune {

// In the order of the C interface: the operands a to h, then out.
inline constexpr int kMapOut = kMapOperands, kMapTensors = kMapOut + 1;
std::vector<TensorSpec> map_tensors(const MapProblem& problem);

// The dimension that vectors of neighbours run along: the last of what is reduced or, if `across`
// or nothing is reduced, of the result.
std::size_t map_vector_dimension(const MapProblem& problem, bool across);
// Elements that a thread takes at once along it: 8, 4, 2 or 1, so that it divides into them and
// every access of neighbours is aligned.
std::int64_t map_vector(const MapProblem& problem, bool across);
// True if the result's neighbours along it are not side by side.
bool map_lies_apart(const MapProblem& problem, bool across);
// True if a tensor has neighbouring elements there.
bool map_has_neighbours(const MapProblem& problem, bool across);

// The dimension of the result along which a thread of a map that is not reduced has `unroll` groups
// of neighbours: of those that it divides, where most operands repeat, so that they are read once.
// 0, the outermost, whose extent kernels do not know: there is none, and unroll must be 1.
std::size_t map_unrolled_dimension(const MapProblem& problem, std::int64_t unroll);
// The dimension along which an operand lies between the neighbours of a vector, as the colours of
// an image of bytes do between its columns, so that whole accesses have all of them; -1: none.
std::int64_t map_colour_dimension(const MapProblem& problem, const MapOperand& operand,
                                  std::size_t vector_dimension, std::int64_t vector);

// The family: threads side by side (threads.cpp); its generated source (source.cpp).
const Family& map_threads();
std::string map_source(const MapProblem& problem, const Config& config);
// An expression as CUDA text, of variables that `letter` names.
std::string map_expression_source(const Expression& expression,
                                  const std::function<std::string(char)>& letter);
// Results, or rows of a softmax, that a CTA has.
std::int64_t map_cta_results(const MapProblem& problem, const Config& config);

std::vector<std::string> map_judge_entries();
LaunchPlan map_answer(const MapProblem& problem, Precision precision);
std::vector<JudgeCase> map_cases(const MapProblem& problem, const Config& config);
std::vector<Fill> map_inputs(const MapProblem& problem, const std::string& draw);

}  // namespace vitune
