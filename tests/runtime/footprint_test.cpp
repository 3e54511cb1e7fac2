// tests/runtime/footprint_test.cpp -- When outputs share memory with inputs, against every byte.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/footprint.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "runtime/api/tensors.h"

namespace vitune {
namespace {

std::set<std::uintptr_t> bytes_of(std::uintptr_t base, const AttentionProblem& p,
                                  const TensorStrides& s, std::int64_t heads, std::int64_t rows) {
  std::set<std::uintptr_t> bytes;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t first = 2 * (b * s.batch + h * s.head + r * s.row);
        for (std::int64_t i = 0; i < 2 * p.d; ++i) {
          bytes.insert(base + static_cast<std::uintptr_t>(first + i));
        }
      }
    }
  }
  return bytes;
}

bool meet(const std::set<std::uintptr_t>& a, const std::set<std::uintptr_t>& b) {
  for (const std::uintptr_t byte : a) {
    if (b.contains(byte)) return true;
  }
  return false;
}

AttentionProblem small(TensorStrides q, TensorStrides o) {
  AttentionProblem p;
  p.batch = 2, p.heads = p.kv_heads = 3, p.nq = p.nk = 4, p.d = 8;
  p.scale = 1;
  p.q = p.k = p.v = q;
  p.o = o;
  return p;
}

Footprint reach_of(const AttentionProblem& p) { return footprint_of(*ProblemPtr(p)); }

// "q and out", or nothing.
std::string overlap(const Footprint& footprint, const Tensors& t) {
  const Footprint::Pair* const both = find_overlap(footprint, t.addresses());
  if (both == nullptr) return {};
  return footprint.names[both->first] + " and " + footprint.names[both->second];
}

// k and v far away, so that only q and out can meet.
Tensors q_and_out(std::uintptr_t q, std::uintptr_t o) { return {q, 1 << 24, 1 << 25, 0, 0, o, 0}; }

TEST(Footprint, AnySharedByteIsFoundAndPackedSlicesAreApart) {
  const std::int64_t h = 3, n = 4, d = 8;
  const TensorStrides bnhd = bnhd_strides(h, n, d), bhnd = bhnd_strides(h, n, d);
  const TensorStrides four = bnhd_strides(4 * h, n, d);               // [B, N, 4, H, D]
  const TensorStrides planes = {4 * h * n * d, n * d, d};             // [B, 4, H, N, D]
  const TensorStrides gaps = {h * n * d * 2, n * d * 2, 2 * d};       // every second row
  const TensorStrides turns = {h * n * d * 2 + d, n * d * 2, 2 * d};  // by turns of the batch
  const std::uintptr_t base = 1 << 16;
  int apart_but_interleaved = 0;
  for (const TensorStrides& q : {bnhd, bhnd, four, planes, gaps, turns}) {
    for (const TensorStrides& o : {bnhd, bhnd, four, planes, gaps, turns}) {
      const AttentionProblem p = small(q, o);
      const Footprint footprint = reach_of(p);
      const auto q_bytes = bytes_of(base, p, p.q, p.heads, p.nq);
      for (std::int64_t shift = -1600; shift <= 1600; shift += 2) {
        const std::uintptr_t at = base + static_cast<std::uintptr_t>(shift);
        const bool truth = meet(q_bytes, bytes_of(at, p, p.o, p.heads, p.nq));
        const bool found = !overlap(footprint, q_and_out(base, at)).empty();
        if (truth) {
          ASSERT_TRUE(found) << "shift " << shift;
        }
        const bool ranges_meet =
            shift < footprint.bytes[kTensorQ] && -shift < footprint.bytes[kTensorOut];
        if (!found && ranges_meet) ++apart_but_interleaved;
        if (!ranges_meet) {
          ASSERT_FALSE(found) << "shift " << shift;
        }
      }
    }
  }
  // The fourth slice of a packed buffer, both layouts, and rows between rows, at the least.
  EXPECT_GE(apart_but_interleaved, 3);
}

TEST(Footprint, TheFourthSliceOfAPackedBufferIsLegitimate) {
  const TensorStrides four = bnhd_strides(12, 4, 8);
  const AttentionProblem p = small(four, four);
  const Footprint footprint = reach_of(p);
  const std::uintptr_t base = 4096, slice = 3 * 8 * 2;
  Tensors t{base, base + slice, base + 2 * slice, 0, 0, base + 3 * slice, 0};
  EXPECT_EQ(overlap(footprint, t), "");
  t.o -= 2;
  EXPECT_EQ(overlap(footprint, t), "v and out");
  t.o = base;
  EXPECT_EQ(overlap(footprint, t), "q and out");
}

TEST(Footprint, LseAndScoreOperandsMustBeApartFromTheOutputs) {
  AttentionProblem p = small(bnhd_strides(3, 4, 8), bnhd_strides(3, 4, 8));
  p.bias = ScoreOperand{ElementType::kFp32, 1, {0, 16, 4, 1}};
  p.lse = true;
  const Footprint f = reach_of(p);
  EXPECT_EQ(f.bytes[kTensorQ], 2 * 3 * 4 * 8 * 2);
  EXPECT_EQ(f.bytes[kTensorBias], 3 * 16 * 4);
  EXPECT_EQ(f.bytes[kTensorLse], 2 * 3 * 4 * 4);
  const Tensors apart{1 << 12, 1 << 13, 1 << 14, 1 << 15, 0, 1 << 16, 1 << 17};
  EXPECT_EQ(overlap(f, apart), "");
  Tensors t = apart;
  t.lse = t.o + static_cast<std::uintptr_t>(f.bytes[kTensorOut]) - 4;
  EXPECT_EQ(overlap(f, t), "out and lse");
  t.lse = t.o + static_cast<std::uintptr_t>(f.bytes[kTensorOut]);
  EXPECT_EQ(overlap(f, t), "");
  t.bias = t.o + 2;
  EXPECT_EQ(overlap(f, t), "bias and out");
  t = apart;
  t.lse = t.bias + static_cast<std::uintptr_t>(f.bytes[kTensorBias]) - 1;
  EXPECT_EQ(overlap(f, t), "bias and lse");
}

TEST(Footprint, AddressesAtTheEndsOfTheRangeDoNotOverflow) {
  const AttentionProblem p = small(bnhd_strides(3, 4, 8), bnhd_strides(3, 4, 8));
  const Footprint f = reach_of(p);
  const std::uintptr_t last = ~std::uintptr_t{0} - 1;
  EXPECT_EQ(overlap(f, {last, 64, 1 << 20, 0, 0, last, 0}), "q and out");
  overlap(f, {2, 4, 6, 0, 0, last, 0});  // under the sanitizers: no undefined arithmetic
}

}  // namespace
}  // namespace vitune
