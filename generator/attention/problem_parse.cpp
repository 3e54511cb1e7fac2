// generator/attention/problem_parse.cpp -- Reads the text of a problem (grammar: docs/problems.md).
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "core/error.h"
#include "core/format.h"
#include "generator/attention/problem_internal.h"
#include "generator/problem_words.h"

namespace vitune {
namespace {

using problem_internal::contiguous_strides;
using problem_internal::kLayouts;
using problem_internal::kTensors;
using problem_internal::Layout;
using problem_internal::layout_name;
using problem_internal::layout_strides;
using problem_internal::ScoreDims;
using problem_internal::strides_of;
using problem_internal::Tensor;
using problem_internal::tensor_name;

constexpr std::string_view kFlags[] = {"bf16", "fp16", "causal", "lse"};
constexpr ProblemGrammar kGrammar = {"attention", kFlags, problem_internal::kProblemKeys,
                                     "bf16 or fp16", "bf16 b=32 h=12 n=197 d=64"};

using Words = ProblemWords;

// A random byte decides (templates/attention/dropout.cuh).
int read_dropout(std::string_view text) {
  constexpr double kBytes = 256;
  const double probability = number_word(text, "dropout");
  const double dropped = std::round(kBytes * probability);
  if (probability == 0) return 0;
  if (probability > 0 && dropped >= 1 && dropped < kBytes) return static_cast<int>(dropped);
  throw Error(
      ErrorCode::kUnsupported,
      formatted("dropout={} is not supported: it is a probability, rounded to 256ths; use 0 "
                "or 0.00390625 (1/256) to 0.99609375 (255/256)",
                text));
}

void read_sizes(const Words& words, AttentionProblem& p) {
  if (words.flag("bf16") == words.flag("fp16")) {
    malformed(words.flag("bf16") ? "bf16 and fp16 are both given: q, k, v and o have one dtype"
                                 : "the dtype is missing: begin with bf16 or fp16");
  }
  p.dtype = words.flag("bf16") ? ElementType::kBf16 : ElementType::kFp16;
  p.batch = words.required("b", "batch");
  p.heads = words.required("h", "heads");
  p.kv_heads = words.number("hkv").value_or(p.heads);
  if (words.find("n")) {
    if (words.find("nq") || words.find("nk")) {
      malformed("n= sets both nq and nk: give either n= or nq= and nk=");
    }
    p.nq = p.nk = *words.number("n");
  } else {
    p.nq = words.required("nq", "query rows; n= sets nq and nk");
    p.nk = words.required("nk", "key rows; n= sets nq and nk");
  }
  p.d = words.required("d", "head size");
  p.causal = words.flag("causal");
  p.lse = words.flag("lse");
  p.alignment = words.number("align").value_or(16);
  if (const auto dropout = words.find("dropout")) p.dropout = read_dropout(*dropout);
  const auto scale = words.find("scale");
  // A wrong d is validate's to report, not the default scale's.
  p.scale = scale ? number_word(*scale, "scale") : p.d > 0 ? default_scale(p.d) : 1.0;
}

Layout named_layout(std::string_view name, std::string_view key) {
  for (const Layout layout : kLayouts) {
    if (layout_name(layout) == name) return layout;
  }
  malformed(formatted("{}={} is no layout: use packed, bnhd or bhnd{}", key, in_quotes(name),
                      key == "layout" ? "" : ", or @batch,head,row strides"));
}

TensorStrides strides_in(const AttentionProblem& p, Tensor tensor, Layout layout) {
  if (const auto strides = layout_strides(p, tensor, layout)) return *strides;
  if (tensor == Tensor::kO) {
    malformed("o=packed is no layout of the output: use o=bnhd, o=bhnd or o=@batch,head,row");
  }
  malformed(formatted(
      "layout packed needs nq = nk, since q, k and v share the rows of one tensor; given nq={} "
      "nk={}: use bnhd, bhnd or @batch,head,row",
      p.nq, p.nk));
}

TensorStrides explicit_strides(std::string_view text, std::string_view key) {
  const auto parts = split_words(text, ",", true);
  if (parts.size() != 3) {
    malformed(formatted("{}=@ takes 3 strides (batch,head,row) in elements; given {}", key,
                        in_quotes(text)));
  }
  return {integer_word(parts[0], key), integer_word(parts[1], key), integer_word(parts[2], key)};
}

void read_layouts(const Words& words, AttentionProblem& p) {
  const auto common = words.find("layout");
  Layout layout = p.nq == p.nk ? Layout::kPacked : Layout::kBnhd;
  if (common) {
    layout = named_layout(*common, "layout");
    strides_in(p, Tensor::kQ, layout);  // refuses packed with nq != nk even if all is overridden
  }
  for (const Tensor tensor : kTensors) {
    const std::string_view key = tensor_name(tensor);
    const auto given = words.find(key);
    TensorStrides& strides = strides_of(p, tensor);
    if (!given) {
      // The output's heads are joined next: row after row, whatever the inputs look like.
      strides = strides_in(p, tensor, tensor == Tensor::kO ? Layout::kBnhd : layout);
    } else {
      strides = problem_internal::read_strides(p, tensor, key, *given);
    }
  }
}

ElementType operand_type(std::string_view name, std::string_view key) {
  if (const auto type = element_type_of(name)) return *type;
  malformed(formatted("{}: {} is no type: write {}", key, in_quotes(name),
                      key == "mask" ? "mask=bool:1x1xNqxNk" : "bias=bf16:1xHxNqxNk"));
}

// Right-aligned, as broadcasting does it: missing dimensions in front are 1.
ScoreDims operand_dims(std::string_view text, std::string_view key, std::size_t& rank) {
  const auto parts = split_words(text, "x", true);
  rank = parts.size();
  if (rank < 2 || rank > 4) {
    malformed(
        formatted("{}: {} are not 2 to 4 dimensions such as 1x12x197x197", key, in_quotes(text)));
  }
  ScoreDims dims = {1, 1, 1, 1};
  for (std::size_t i = 0; i < rank; ++i) dims[4 - rank + i] = integer_word(parts[i], key);
  return dims;
}

void check_dims(const AttentionProblem& p, const ScoreDims& dims, std::string_view key) {
  const bool batch_fits = dims[0] >= 1 && dims[0] <= p.batch && p.batch % dims[0] == 0;
  const auto fits = [](std::int64_t dim, std::int64_t extent) { return dim == 1 || dim == extent; };
  if (batch_fits && fits(dims[1], p.heads) && fits(dims[2], p.nq) && fits(dims[3], p.nk)) return;
  malformed(formatted(
      "{} of {} does not broadcast to {}x{}x{}x{}: each dimension is 1 or that of the scores, and "
      "the first may be a number of windows that divides b",
      key, joined(dims, "x"), p.batch, p.heads, p.nq, p.nk));
}

// "fp32:1x12x197x197" or "fp32:1x12x197x197@465708,38809,197,1".
ScoreOperand read_operand(const AttentionProblem& p, std::string_view text, std::string_view key) {
  const std::size_t colon = text.find(':');
  ScoreOperand operand;
  operand.type = operand_type(text.substr(0, colon), key);
  if (colon == std::string_view::npos) {
    malformed(formatted("{}={} names no dimensions: write {}={}:1x1x{}x{}", key, in_quotes(text),
                        key, element_name(operand.type), p.nq, p.nk));
  }
  const std::string_view shape = text.substr(colon + 1);
  const std::size_t at = shape.find('@');
  std::size_t rank = 0;
  const ScoreDims dims = operand_dims(shape.substr(0, at), key, rank);
  check_dims(p, dims, key);
  operand.batches = dims[0];
  operand.strides = contiguous_strides(dims);
  if (at == std::string_view::npos) return operand;
  const auto parts = split_words(shape.substr(at + 1), ",", true);
  if (parts.size() != rank) {
    malformed(formatted("{}: {} strides for {} dimensions", key, parts.size(), rank));
  }
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t dimension = 4 - rank + i;
    const std::int64_t stride = integer_word(parts[i], key);
    operand.strides[dimension] = dims[dimension] == 1 ? 0 : stride;
  }
  return operand;
}

}  // namespace

TensorStrides problem_internal::read_strides(const AttentionProblem& p, Tensor tensor,
                                             std::string_view key, std::string_view text) {
  if (text.front() == '@') return explicit_strides(text.substr(1), key);
  return strides_in(p, tensor, named_layout(text, key));
}

AttentionProblem problem_internal::read_problem(const ProblemWords& words) {
  AttentionProblem problem;
  read_sizes(words, problem);
  problem_internal::validate_sizes(problem);
  read_layouts(words, problem);
  if (const auto bias = words.find("bias")) problem.bias = read_operand(problem, *bias, "bias");
  if (const auto mask = words.find("mask")) problem.mask = read_operand(problem, *mask, "mask");
  problem.validate();
  return problem.canonical();
}

AttentionProblem AttentionProblem::parse(std::string_view text) {
  return problem_internal::read_problem(ProblemWords(text, kGrammar));
}

}  // namespace vitune
