// runtime/api/descriptor.cpp -- Between the C interface's description and AttentionProblem.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/descriptor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "generator/attention/facts.h"

namespace vitune {
namespace {

[[noreturn]] void invalid(const std::string& what) { throw Error(ErrorCode::kUsage, what); }

std::uint8_t lowest_bit(std::uintptr_t bits) noexcept {
  return static_cast<std::uint8_t>(bits & (~bits + 1));
}

// Alignment that tensor maps and the widest load need: more makes no difference.
constexpr std::uint8_t kBiasReach = 16;

void check_flag(std::string_view name, std::int32_t value) {
  if (!is_flag(value)) invalid(formatted("desc.{} is {}: use 0 or 1", name, value));
}

void check_positive(std::string_view name, std::int64_t value, std::int64_t least) {
  if (value >= least) return;
  invalid(formatted("desc.{} is {}: it must be {} at least", name, value, least));
}

void check_dtype(std::int32_t dtype) {
  if (dtype == VITUNE_BF16 || dtype == VITUNE_FP16) return;
  if (dtype == VITUNE_FP32 || dtype == VITUNE_BOOL) {
    throw Error(ErrorCode::kUnsupported,
                formatted("desc.dtype is {}: the kernels take q, k and v as VITUNE_BF16 or "
                          "VITUNE_FP16; convert them, or use another implementation",
                          dtype == VITUNE_FP32 ? "VITUNE_FP32" : "VITUNE_BOOL"));
  }
  invalid(formatted("desc.dtype is {}: use VITUNE_BF16 or VITUNE_FP16", dtype));
}

void check_operand_types(const vitune_attention_desc& desc) {
  if (desc.bias_type < VITUNE_NONE || desc.bias_type > VITUNE_FP32) {
    invalid(
        formatted("desc.bias_type is {}: use VITUNE_NONE, VITUNE_BF16, VITUNE_FP16 or "
                  "VITUNE_FP32",
                  desc.bias_type));
  }
  if (desc.mask_type != VITUNE_NONE && desc.mask_type != VITUNE_BOOL) {
    invalid(formatted("desc.mask_type is {}: use VITUNE_NONE or VITUNE_BOOL", desc.mask_type));
  }
}

void check_values(const vitune_attention_desc& desc) {
  check_dtype(desc.dtype);
  check_operand_types(desc);
  check_flag("causal", desc.causal);
  check_flag("lse", desc.lse);
  check_positive("batch", desc.batch, 1);
  check_positive("heads", desc.heads, 1);
  check_positive("kv_heads", desc.kv_heads, 0);
  check_positive("nq", desc.nq, 1);
  check_positive("nk", desc.nk, 1);
  check_positive("d", desc.d, 1);
  check_positive("dv", desc.dv, 0);
  if (desc.bias_type != VITUNE_NONE) check_positive("bias_batches", desc.bias_batches, 0);
  if (desc.mask_type != VITUNE_NONE) check_positive("mask_batches", desc.mask_batches, 0);
  if (desc.dv != 0 && desc.dv != desc.d) {
    throw Error(ErrorCode::kUnsupported,
                formatted("desc.dv is {} and desc.d is {}: the kernels need one head size for q, "
                          "k and v; pad v, or split it",
                          desc.dv, desc.d));
  }
}

ElementType element_of(std::int32_t type) {
  if (type == VITUNE_FP16) return ElementType::kFp16;
  if (type == VITUNE_FP32) return ElementType::kFp32;
  return type == VITUNE_BOOL ? ElementType::kBool : ElementType::kBf16;
}

std::int32_t code_of(ElementType type) {
  switch (type) {
    case ElementType::kFp16:
      return VITUNE_FP16;
    case ElementType::kBf16:
      return VITUNE_BF16;
    case ElementType::kFp32:
      return VITUNE_FP32;
    case ElementType::kBool:
      return VITUNE_BOOL;
    case ElementType::kU8:
      return VITUNE_U8;
    case ElementType::kI32:
      return VITUNE_I32;
  }
  return VITUNE_NONE;
}

TensorStrides strides_from(const vitune_strides& s) { return {s.batch, s.head, s.row}; }
vitune_strides strides_of(const TensorStrides& s) { return {s.batch, s.head, s.row}; }

std::optional<ScoreOperand> operand_from(std::int32_t type, std::int64_t batches,
                                         std::int64_t batch, const std::int64_t (&strides)[4]) {
  if (type == VITUNE_NONE) return std::nullopt;
  ScoreOperand operand;
  operand.type = element_of(type);
  operand.batches = batches == 0 ? batch : batches;
  std::copy(std::begin(strides), std::end(strides), operand.strides.begin());
  return operand;
}

// The fields as they stand, without alignment; not validated.
AttentionProblem as_described(const vitune_attention_desc& desc) {
  AttentionProblem problem;
  problem.dtype = element_of(desc.dtype);
  problem.causal = desc.causal != 0;
  problem.batch = desc.batch;
  problem.heads = desc.heads;
  problem.kv_heads = desc.kv_heads == 0 ? desc.heads : desc.kv_heads;
  problem.nq = desc.nq;
  problem.nk = desc.nk;
  problem.d = desc.d;
  problem.scale = desc.scale == 0 ? default_scale(desc.d) : desc.scale;
  problem.q = strides_from(desc.q);
  problem.k = strides_from(desc.k);
  problem.v = strides_from(desc.v);
  problem.o = strides_from(desc.o);
  problem.bias = operand_from(desc.bias_type, desc.bias_batches, desc.batch, desc.bias_strides);
  problem.mask = operand_from(desc.mask_type, desc.mask_batches, desc.batch, desc.mask_strides);
  problem.lse = desc.lse != 0;
  return problem;
}

// Bytes that the widest load of `vector` keys needs its pointer to be a multiple of.
std::int64_t bytes_of_load(int vector, const std::optional<ScoreOperand>& operand) {
  return operand ? std::max(vector, 1) * element_bytes(operand->type) : 0;
}

// The problem knows one alignment for all: narrow it until the loads of bias and mask fit theirs,
// and the bias begins at a multiple of 16 bytes where its rows are promised to.
void fold_alignments(AttentionProblem& problem, const Alignments& alignments) {
  for (problem.alignment = alignments.tensors;; problem.alignment /= 2) {
    const AttentionFacts facts = attention_facts(problem);
    const bool bias_fits = bytes_of_load(facts.bias_vector, problem.bias) <= alignments.bias &&
                           (!facts.bias_aligned || alignments.bias >= 16);
    const bool mask_fits = bytes_of_load(facts.mask_vector, problem.mask) <= alignments.mask;
    if (bias_fits && mask_fits) return;
    if (problem.alignment == 2) break;
  }
  throw Error(ErrorCode::kUnsupported,
              "a mask at an odd address whose strides and key count are even is not supported: "
              "align it to 2 bytes, or give it an odd row stride");
}

}  // namespace

vitune_attention_desc read_description(const vitune_attention_desc* desc) {
  if (desc == nullptr) invalid("desc is NULL: a description of the problem is needed");
  vitune_attention_desc copy{};
  check_input_struct("desc", desc, desc->size, kFirstDescBytes, sizeof(copy));
  std::memcpy(&copy, desc, std::min(desc->size, sizeof(copy)));
  copy.size = sizeof(copy);
  return copy;
}

Alignments call_alignments(const vitune_attention_desc& desc, const Tensors& tensors) noexcept {
  Alignments result;
  result.tensors = lowest_bit(tensors.q | tensors.k | tensors.v | tensors.o | 16);
  if (desc.bias_type != VITUNE_NONE) {
    result.bias = lowest_bit(tensors.bias | kBiasReach);
  }
  if (desc.mask_type != VITUNE_NONE) result.mask = lowest_bit(tensors.mask | 2);
  return result;
}

Alignments stated_alignments(const vitune_attention_desc& desc) {
  const std::int32_t stated = desc.alignment == 0 ? 16 : desc.alignment;
  if (stated != 2 && stated != 4 && stated != 8 && stated != 16) {
    invalid(formatted("desc.alignment is {}: use 2, 4, 8 or 16 bytes, or 0 for 16", stated));
  }
  Alignments result = call_alignments(desc, Tensors{});
  result.tensors = static_cast<std::uint8_t>(stated);
  return result;
}

AttentionProblem problem_from(const vitune_attention_desc& desc, const Alignments& alignments) {
  check_values(desc);
  AttentionProblem problem = as_described(desc);
  problem.alignment = alignments.tensors;
  problem.validate();
  problem = problem.canonical();
  fold_alignments(problem, alignments);
  return problem;
}

Request request_of(const vitune_attention_desc& desc, const Alignments& alignments) {
  const AttentionProblem problem = problem_from(desc, alignments);
  const auto key = key_of(desc, alignments);
  if (!key) throw Error(ErrorCode::kFailure, "a description that is valid has no key");
  return {*key, problem};
}

vitune_attention_desc description_of(const AttentionProblem& problem) {
  if (problem.dropout != 0) {
    throw Error(ErrorCode::kUnsupported,
                "a description has no dropout: use the problem's text, vitune_problem_create()");
  }
  vitune_attention_desc desc = VITUNE_ATTENTION_DESC_INIT;
  desc.dtype = code_of(problem.dtype);
  desc.causal = problem.causal ? 1 : 0;
  desc.batch = problem.batch;
  desc.heads = problem.heads;
  desc.kv_heads = problem.kv_heads;
  desc.nq = problem.nq;
  desc.nk = problem.nk;
  desc.d = desc.dv = problem.d;
  desc.scale = problem.scale;
  desc.q = strides_of(problem.q);
  desc.k = strides_of(problem.k);
  desc.v = strides_of(problem.v);
  desc.o = strides_of(problem.o);
  if (problem.bias) {
    desc.bias_type = code_of(problem.bias->type);
    desc.bias_batches = problem.bias->batches;
    std::copy(problem.bias->strides.begin(), problem.bias->strides.end(), desc.bias_strides);
  }
  if (problem.mask) {
    desc.mask_type = code_of(problem.mask->type);
    desc.mask_batches = problem.mask->batches;
    std::copy(problem.mask->strides.begin(), problem.mask->strides.end(), desc.mask_strides);
  }
  desc.lse = problem.lse ? 1 : 0;
  desc.alignment = static_cast<std::int32_t>(problem.alignment);
  return desc;
}

}  // namespace vitune
