// runtime/api/descriptor.h -- Between the C interface's description of a problem and
// AttentionProblem.
//
// A description may hold any bit pattern: what is refused is refused with Error(kUsage) or
// Error(kUnsupported) and a sentence. No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "generator/attention/problem.h"
#include "runtime/api/attention_key.h"
#include "runtime/api/struct_check.h"
#include "runtime/api/tensors.h"
#include "runtime/context/request.h"
#include "vitune/vitune.h"

namespace vitune {

// Size of a description in version 0.1, the first public one: programs built against it stay
// welcome for ever.
inline constexpr std::size_t kFirstDescBytes = 328;
static_assert(sizeof(vitune_attention_desc) >= kFirstDescBytes);

// The description in the size of this library: what the caller's does not have is zero.
vitune_attention_desc read_description(const vitune_attention_desc* desc);

// The alignments of the pointers of a call.
Alignments call_alignments(const vitune_attention_desc& desc, const Tensors& tensors) noexcept;
// desc.alignment, with bias and mask aligned as well as they need be. Throws Error(kUsage) for a
// number that is no power of two from 2 to 16.
Alignments stated_alignments(const vitune_attention_desc& desc);
// The problem that is asked, valid and canonical. Its alignment is such that no access of a kernel
// made for it is misaligned with the pointers of `alignments`.
AttentionProblem problem_from(const vitune_attention_desc& desc, const Alignments& alignments);

// The description as the context looks it up.
Request request_of(const vitune_attention_desc& desc, const Alignments& alignments);

// The description of a problem; what it leaves out is as small as it can be.
vitune_attention_desc description_of(const AttentionProblem& problem);

}  // namespace vitune
