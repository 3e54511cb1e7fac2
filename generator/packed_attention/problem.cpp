// generator/packed_attention/problem.cpp -- What of packed attention is valid, and what it moves.
// SPDX-License-Identifier: Apache-2.0
#include "generator/packed_attention/problem.h"

#include <algorithm>
#include <cmath>

#include "core/checked.h"
#include "core/format.h"
#include "generator/problem_checks.h"

namespace vitune {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 24, kMostSequences = 65536;
constexpr std::int64_t kMostHeads = 65536, kMostHeadSize = 128;
constexpr std::int64_t kMostItems = std::int64_t{1} << 30;
constexpr std::int64_t kMostStride = std::int64_t{1} << 24;  // elements
constexpr std::int64_t kLeastRows = 16;                      // of a block
constexpr std::int64_t kMostSpan = std::int64_t{1} << 46;    // elements of a tensor, exclusive

void check_span(std::string_view name, const TokenStrides& strides, std::int64_t tokens,
                std::int64_t heads, std::int64_t d) {
  if ((tokens - 1) * strides.token + (heads - 1) * strides.head + d < kMostSpan) return;
  refuse(ErrorCode::kUnsupported, formatted("{} spans 2^47 bytes or more", name));
}

void check_strides(std::string_view name, const TokenStrides& strides, std::int64_t tokens,
                   std::int64_t heads, std::int64_t d) {
  for (const std::int64_t stride : {strides.token, strides.head}) {
    if (stride < 0 || stride > kMostStride) {
      refuse(ErrorCode::kUnsupported, formatted("{}={}x{}: strides are 0 to 2^24 elements", name,
                                                strides.token, strides.head));
    }
    if (stride % 8 != 0) {
      refuse(ErrorCode::kUnsupported,
             formatted("{}={}x{}: rows begin at multiples of 16 bytes, so strides are multiples of "
                       "8 elements: copy the tensor",
                       name, strides.token, strides.head));
    }
  }
  if (heads > 1 && strides.head < d && strides.head != 0) {
    refuse(ErrorCode::kUsage, formatted("{}={}x{}: heads of {} elements overlap", name,
                                        strides.token, strides.head, d));
  }
  check_span(name, strides, tokens, heads, d);
}

// The sequences that a list of lengths has, each at most `longest`, in sum `tokens`.
void check_lengths(std::string_view name, const std::vector<SequenceRun>& runs,
                   std::int64_t sequences, std::int64_t tokens, std::int64_t longest) {
  if (runs.empty()) {
    if (sequences * longest >= tokens) return;
    refuse(ErrorCode::kUsage,
           formatted("{} sequences of at most {} tokens have fewer than {} tokens: raise longest= "
                     "or sequences=",
                     sequences, longest, tokens));
  }
  std::int64_t count = 0, sum = 0;
  for (const SequenceRun& run : runs) {
    check_count(formatted("the repeats in {}", name), run.count, kMostSequences);
    if (run.length < 0 || run.length > longest) {
      refuse(ErrorCode::kUsage,
             formatted("{}: a length of {}, where 0 to {} may be", name, run.length, longest));
    }
    count += run.count;
    sum += run.count * run.length;
  }
  if (count != sequences || sum != tokens) {
    refuse(ErrorCode::kUsage, formatted("{} has {} sequences with {} tokens in all, not {} with {}",
                                        name, count, sum, sequences, tokens));
  }
}

std::vector<SequenceRun> merged(const std::vector<SequenceRun>& runs) {
  std::vector<SequenceRun> all;
  for (const SequenceRun& run : runs) {
    if (!all.empty() && all.back().length == run.length) {
      all.back().count += run.count;
    } else {
      all.push_back(run);
    }
  }
  return all;
}

std::vector<std::int64_t> drawn(const std::vector<SequenceRun>& runs, std::int64_t sequences,
                                std::int64_t tokens) {
  std::vector<std::int64_t> lengths;
  for (const SequenceRun& run : runs) {
    lengths.insert(lengths.end(), static_cast<std::size_t>(run.count), run.length);
  }
  for (std::int64_t i = 0; runs.empty() && i < sequences; ++i) {
    lengths.push_back(tokens / sequences + (i < tokens % sequences ? 1 : 0));
  }
  return lengths;
}

// Scores of a sequence of one head.
double scores_of(bool causal, std::int64_t queries, std::int64_t keys) {
  const auto n = static_cast<double>(queries), m = static_cast<double>(keys);
  if (!causal) return n * m;
  return n <= m ? n * m - n * (n - 1) / 2 : m * (m + 1) / 2;
}

}  // namespace

void PackedAttentionProblem::validate() const {
  if (type != ElementType::kBf16 && type != ElementType::kFp16) {
    refuse(ErrorCode::kUnsupported, "the type of q, k and v must be bf16 or fp16");
  }
  check_count("tokens", tokens, kMostTokens);
  check_count("tokens_k", tokens_k, kMostTokens);
  check_count("longest", longest, tokens);
  check_count("longest_k", longest_k, tokens_k);
  check_count("sequences", sequences, kMostSequences);
  check_count("h", heads, kMostHeads);
  check_count("hkv", kv_heads, kMostHeads);
  check_count("d", d, kMostHeadSize);
  if (d % 8 != 0) {
    refuse(ErrorCode::kUnsupported, formatted("d={}: head sizes are multiples of 8", d));
  }
  if (heads % kv_heads != 0) {
    refuse(ErrorCode::kUsage, formatted("h={} is no multiple of hkv={}", heads, kv_heads));
  }
  check_strides("q", q, tokens, heads, d);
  check_strides("k", k, tokens_k, kv_heads, d);
  check_strides("v", v, tokens_k, kv_heads, d);
  check_span("out", {heads * d, d}, tokens, heads, d);
  check_lengths("lengths", lengths, sequences, tokens, longest);
  check_lengths("lengths_k", lengths_k, sequences, tokens_k, longest_k);
  if (most_blocks(kLeastRows) > kMostItems / heads) {
    refuse(ErrorCode::kUnsupported,
           "all sequences may have 2^30 blocks of 16 queries, each head's "
           "counted");
  }
  const double least = std::ldexp(1.0, -40), most = std::ldexp(1.0, 40);
  if (!(scale >= least && scale <= most)) {
    refuse(ErrorCode::kUsage,
           formatted("scale={}: use a number from 2^-40 to 2^40 (default 1/sqrt(d))", scale));
  }
}

PackedAttentionProblem PackedAttentionProblem::canonical() const {
  PackedAttentionProblem p = *this;
  p.lengths = merged(lengths);
  p.lengths_k = own_keys ? merged(lengths_k) : p.lengths;
  if (p.heads == 1) p.q.head = d;
  if (p.kv_heads == 1) p.k.head = p.v.head = d;
  const double standard = 1.0 / std::sqrt(static_cast<double>(d));
  if (static_cast<float>(scale) == static_cast<float>(standard)) p.scale = standard;
  return p;
}

std::vector<std::int64_t> PackedAttentionProblem::drawn_lengths() const {
  return drawn(lengths, sequences, tokens);
}

std::vector<std::int64_t> PackedAttentionProblem::drawn_key_lengths() const {
  return drawn(lengths_k, sequences, tokens_k);
}

std::int64_t PackedAttentionProblem::most_blocks(std::int64_t rows) const {
  return std::min((tokens + sequences * (rows - 1)) / rows, sequences * ceil_div(longest, rows));
}

double PackedAttentionProblem::scores() const {
  const std::vector<std::int64_t> queries = drawn_lengths(), keys = drawn_key_lengths();
  double sum = 0;
  for (std::size_t i = 0; i < queries.size(); ++i) sum += scores_of(causal, queries[i], keys[i]);
  return sum * static_cast<double>(heads);
}

double PackedAttentionProblem::flops() const { return 4.0 * static_cast<double>(d) * scores(); }

double PackedAttentionProblem::min_bytes() const {
  const double elements = 2.0 * static_cast<double>(tokens * heads * d) +
                          2.0 * static_cast<double>(tokens_k * kv_heads * d);
  return elements * static_cast<double>(element_bytes(type)) +
         (lse ? 4.0 * static_cast<double>(heads * tokens) : 0.0) +
         4.0 * static_cast<double>((own_keys ? 2 : 1) * (sequences + 1));
}

}  // namespace vitune
