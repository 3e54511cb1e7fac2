// generator/packed_attention/problem_text.cpp -- Packed attention as lines of words (grammar:
// docs/problems.md).
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/format.h"
#include "generator/packed_attention/problem.h"
#include "generator/problem_words.h"

namespace vitune {
namespace {

constexpr std::string_view kFlags[] = {"bf16", "fp16", "causal", "lse"};
constexpr std::string_view kKeys[] = {"tokens",  "longest", "sequences", "tokens_k", "longest_k",
                                      "lengths", "h",       "hkv",       "d",        "q",
                                      "k",       "v",       "scale",     "lengths_k"};
constexpr std::string_view kExample =
    "packed_attention bf16 tokens=4096 longest=64 sequences=64 h=16 d=80";
constexpr ProblemGrammar kGrammar = {"packed_attention", kFlags, kKeys, "bf16 or fp16", kExample};

// "64x240,17,5x3": 240 sequences of 64 tokens, one of 17, 3 of 5.
std::vector<SequenceRun> read_lengths(const ProblemWords& words, std::string_view key) {
  std::vector<SequenceRun> runs;
  const auto text = words.find(key);
  if (!text) return runs;
  for (const std::string_view word : split_words(*text, ",", true)) {
    const auto parts = split_words(word, "x", true);
    if (parts.size() > 2) {
      malformed(formatted("{}={}: use LENGTHxCOUNT or LENGTH, with commas between: 64x240,17", key,
                          in_quotes(*text)));
    }
    runs.push_back({integer_word(parts.front(), key),
                    parts.size() == 2 ? integer_word(parts.back(), key) : 1});
  }
  return runs;
}

// Sums that a run too long for validate() cannot overflow.
std::int64_t bounded(std::int64_t value) {
  return std::clamp<std::int64_t>(value, 0, std::int64_t{1} << 25);
}

struct Lengths {
  std::int64_t tokens = 0, longest = 0, sequences = 0;
};

Lengths summed(const std::vector<SequenceRun>& runs) {
  Lengths all;
  for (const SequenceRun& run : runs) {
    all.sequences = bounded(all.sequences + bounded(run.count));
    all.tokens = bounded(all.tokens + bounded(run.length) * bounded(run.count));
    all.longest = std::max(all.longest, run.length);
  }
  return all;
}

// A number that is said, or follows from a list of lengths.
std::int64_t said(const ProblemWords& words, std::string_view key, std::string_view meaning,
                  const std::vector<SequenceRun>& runs, std::int64_t follows) {
  return runs.empty() ? words.required(key, meaning) : words.number(key).value_or(follows);
}

TokenStrides read_strides(const ProblemWords& words, std::string_view key,
                          const TokenStrides& dense) {
  const auto text = words.find(key);
  if (!text) return dense;
  const auto parts = split_words(*text, "x", true);
  if (parts.size() != 2) {
    malformed(
        formatted("{}={}: use TOKENxHEAD, the elements from a token to the next and from a "
                  "head to the next",
                  key, in_quotes(*text)));
  }
  return {integer_word(parts[0], key), integer_word(parts[1], key)};
}

void read_keys(const ProblemWords& words, PackedAttentionProblem& p) {
  p.own_keys = words.find("tokens_k") || words.find("lengths_k");
  if (!p.own_keys) {
    if (words.find("longest_k")) {
      malformed("longest_k= is of keys with offsets of their own: say tokens_k= too");
    }
    p.tokens_k = p.tokens;
    p.longest_k = p.longest;
    p.lengths_k = p.lengths;
    return;
  }
  p.lengths_k = read_lengths(words, "lengths_k");
  const Lengths keys = summed(p.lengths_k);
  p.tokens_k = said(words, "tokens_k", "tokens of k", p.lengths_k, keys.tokens);
  p.longest_k = said(words, "longest_k", "most keys of a sequence", p.lengths_k, keys.longest);
}

std::string lengths_word(std::string_view key, const std::vector<SequenceRun>& runs) {
  if (runs.empty()) return {};
  std::string text = formatted(" {}=", key);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i > 0) text += ',';
    text += runs[i].count == 1 ? formatted("{}", runs[i].length)
                               : formatted("{}x{}", runs[i].length, runs[i].count);
  }
  return text;
}

std::string strides_word(std::string_view key, const TokenStrides& strides,
                         const TokenStrides& dense) {
  return strides == dense ? std::string()
                          : formatted(" {}={}x{}", key, strides.token, strides.head);
}

}  // namespace

PackedAttentionProblem PackedAttentionProblem::parse(std::string_view text) {
  const ProblemWords words(text, kGrammar);
  PackedAttentionProblem p;
  p.type = words.type("q, k and v have one");
  p.lengths = read_lengths(words, "lengths");
  const Lengths given = summed(p.lengths);
  p.tokens = said(words, "tokens", "tokens of q", p.lengths, given.tokens);
  p.longest = said(words, "longest", "most tokens of a sequence", p.lengths, given.longest);
  p.sequences = said(words, "sequences", "most sequences", p.lengths, given.sequences);
  read_keys(words, p);
  p.heads = words.required("h", "heads");
  p.kv_heads = words.number("hkv").value_or(p.heads);
  p.d = words.required("d", "head size");
  p.causal = words.flag("causal");
  p.lse = words.flag("lse");
  const auto scale = words.find("scale");
  p.scale = scale ? number_word(*scale, "scale")
                  : 1.0 / std::sqrt(std::max(static_cast<double>(p.d), 1.0));
  p.validate();  // dense strides are products of its numbers
  const TokenStrides keys = {p.kv_heads * p.d, p.d};
  p.q = read_strides(words, "q", {p.heads * p.d, p.d});
  p.k = read_strides(words, "k", keys);
  p.v = read_strides(words, "v", keys);
  p.validate();
  const PackedAttentionProblem canonical = p.canonical();
  // The same problem with its sums said: it must be read again.
  constexpr std::size_t kMostText = 4096;
  if (canonical.text().size() > kMostText) {
    malformed(
        formatted("lengths= makes a problem text of more than {} characters: write equal "
                  "lengths side by side, as 64x240",
                  kMostText));
  }
  return canonical;
}

std::string PackedAttentionProblem::text() const {
  const PackedAttentionProblem p = canonical();
  std::string text = formatted("packed_attention {} tokens={} longest={} sequences={}",
                               element_name(p.type), p.tokens, p.longest, p.sequences);
  if (p.own_keys) text += formatted(" tokens_k={} longest_k={}", p.tokens_k, p.longest_k);
  text += formatted(" h={}", p.heads);
  if (p.kv_heads != p.heads) text += formatted(" hkv={}", p.kv_heads);
  text += formatted(" d={}", p.d);
  const TokenStrides keys = {p.kv_heads * p.d, p.d};
  text += strides_word("q", p.q, {p.heads * p.d, p.d}) + strides_word("k", p.k, keys) +
          strides_word("v", p.v, keys);
  if (p.causal) text += " causal";
  if (p.lse) text += " lse";
  if (p.scale != 1.0 / std::sqrt(static_cast<double>(p.d))) text += " scale=" + shortest(p.scale);
  text += lengths_word("lengths", p.lengths);
  if (p.own_keys) text += lengths_word("lengths_k", p.lengths_k);
  return text;
}

}  // namespace vitune
