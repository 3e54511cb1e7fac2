// generator/packed_attention/problem.h -- PackedAttentionProblem: attention of sequences of
// differing lengths whose tokens follow each other.
//
// q and the result are [tokens, heads, d], k and v [tokens_k, kv_heads, d]. Offsets on the device
// say where each sequence begins: sequence i has the tokens from offsets[i] to before
// offsets[i + 1], of k by offsets of its own where these differ. A query attends to the keys of its
// sequence. Under a causal mask the last query is level with the last key. A query without any key
// gives 0, and -inf as its log-sum-exp. A problem is a bound of what calls bring, not their
// lengths: kernels read those.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "generator/element_type.h"
#include "generator/problem.h"

namespace vitune {

// So many sequences of one length, one after the other.
struct SequenceRun {
  std::int64_t length = 0, count = 1;
  bool operator==(const SequenceRun&) const = default;
};

// Elements from a token to the next, and from a head to the next.
struct TokenStrides {
  std::int64_t token = 0, head = 0;
  bool operator==(const TokenStrides&) const = default;
};

struct PackedAttentionProblem {
  ElementType type = ElementType::kBf16;
  std::int64_t tokens = 0, tokens_k = 0;    // of q, of k: at most
  std::int64_t longest = 0, longest_k = 0;  // of a sequence's queries, of its keys: at most
  std::int64_t sequences = 0;               // at most
  std::int64_t heads = 0, kv_heads = 0, d = 0;
  bool own_keys = false;  // k has offsets, and so tokens, of its own
  bool causal = false, lse = false;
  double scale = 0;
  TokenStrides q, k, v;
  // The lengths that are judged and timed; empty: all tokens, shared out evenly.
  std::vector<SequenceRun> lengths, lengths_k;

  // Grammar: docs/problems.md. The result is valid and canonical. Throws Error(kUsage) or
  // Error(kUnsupported) with a sentence.
  static PackedAttentionProblem parse(std::string_view text);
  std::string text() const;
  // Throws as parse() does.
  void validate() const;
  // The problem with one form for all that does not matter.
  PackedAttentionProblem canonical() const;

  // The lengths that are judged and timed, of queries and of keys: as many as sequences, in sum all
  // tokens.
  std::vector<std::int64_t> drawn_lengths() const;
  std::vector<std::int64_t> drawn_key_lengths() const;

  // At most, in blocks of `rows` queries: those of all sequences of one head.
  std::int64_t most_blocks(std::int64_t rows) const;

  // For the drawn lengths.
  double scores() const;  // of all heads
  double flops() const;
  double min_bytes() const;  // each element once

  // Validates.
  operator ProblemPtr() const;

  bool operator==(const PackedAttentionProblem&) const = default;
};

}  // namespace vitune
