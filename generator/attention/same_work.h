// generator/attention/same_work.h -- When two problems with different texts are the same work for a
// kernel.
//
// A winner may serve another problem as its own only if nothing that decides its time differs: the
// compiled kernel, its grid (runtime/dispatch/same_work.h looks at these), and the addresses that
// each work item touches relative to the base pointers. That holds for three differences, and this
// file accepts no others:
//   scale      a number handed over at launch;
//   alignment  where strides allow no wider access than the smaller alignment does, so that source
//              and accesses stay the same;
//   batch and heads split differently, where batch * heads is one dimension for every tensor (batch
//              stride = heads * head stride): the kernel numbers heads through both, and a number
//              leads to the same address. Not with grouped heads, nor with a bias or mask that
//              differs between heads or batch entries.
// Other strides are not: the same kernel then reads other sectors in another order. Pure functions.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "generator/attention/problem.h"

namespace vitune {

// One problem that stands for all that could be the same work as `problem`: default scale, batch
// and heads folded where that is possible, the least alignment with the same compile-time facts.
AttentionProblem work_form(const AttentionProblem& problem);

// A number that is equal for problems of equal work_form(); cheap, unlike the form.
std::size_t work_hash(const AttentionProblem& problem);

}  // namespace vitune
