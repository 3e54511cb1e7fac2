// tests/tuner/workload_test.cpp -- Where tensors lie, how inputs are drawn, which edge shapes are
// tried.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/judge/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"
#include "generator/attention/edge_shapes.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/operator.h"

namespace vitune {
namespace {

AttentionProblem parsed(const std::string& words) {
  return AttentionProblem::parse("attention " + words);
}

WorkloadPlan plan_of(const AttentionProblem& p) { return plan_workload(attention_tensors(p)); }

std::size_t allocation(const WorkloadPlan& plan, int tensor) {
  return plan.tensors[static_cast<std::size_t>(tensor)]->allocation;
}

// The first of a draw's inputs that fill `tensor`.
Fill fill_of(const AttentionProblem& p, const char* draw, int tensor) {
  for (const Fill& fill : attention_inputs(p, draw)) {
    if (fill.tensor == tensor) return fill;
  }
  return {};
}

struct SharingCase {
  const char* words;
  std::size_t allocations;
  bool qk_shared, kv_shared;
};

TEST(Workload, TensorsShareAnAllocationExactlyWhereTheCallersDo) {
  const std::vector<SharingCase> cases = {
      {"bf16 b=2 h=3 n=17 d=64 layout=packed", 2, true, true},
      {"bf16 b=2 h=3 n=17 d=64 layout=bnhd", 4, false, false},
      {"bf16 b=2 h=3 n=17 d=64 layout=bhnd", 4, false, false},
      {"bf16 b=8 h=16 hkv=4 n=100 d=64", 2, true, true},
      {"bf16 b=2 h=3 n=17 d=64 layout=bhnd v=packed", 4, false, false},
      {"bf16 b=32 h=2 nq=784 nk=49 d=64 k=@12544,64,256 v=@12544,64,256", 3, false, true},
      {"bf16 b=64 h=2 n=16 d=96 q=@576,96,36864 k=@576,96,36864 v=@576,96,36864", 2, true, true},
      // Sequence first, three tensors: rows are wide, but hold other batch entries.
      {"bf16 b=8 h=2 n=16 d=64 q=@128,64,1024 k=@128,64,1024 v=@128,64,1024", 4, false, false},
      {"bf16 b=2 h=3 n=17 d=64 lse bias=bf16:17x17 mask=bool:2x1x1x17", 5, true, true},
  };
  for (const SharingCase& c : cases) {
    const WorkloadPlan plan = plan_of(parsed(c.words));
    EXPECT_EQ(plan.allocations.size(), c.allocations) << c.words;
    EXPECT_EQ(allocation(plan, kTensorQ) == allocation(plan, kTensorK), c.qk_shared) << c.words;
    EXPECT_EQ(allocation(plan, kTensorK) == allocation(plan, kTensorV), c.kv_shared) << c.words;
    EXPECT_NE(allocation(plan, kTensorOut), allocation(plan, kTensorV)) << c.words;
  }
}

TEST(Workload, PackedViewsStartOneAfterTheOther) {
  const WorkloadPlan plan = plan_of(parsed("bf16 b=8 h=16 hkv=4 n=100 d=64"));
  const std::int64_t q = plan.tensors[kTensorQ]->offset;
  EXPECT_EQ(q, kGuardBytes);
  EXPECT_EQ(plan.tensors[kTensorK]->offset, q + 16 * 64 * 2);
  EXPECT_EQ(plan.tensors[kTensorV]->offset, q + (16 + 4) * 64 * 2);
  EXPECT_GE(plan.allocations[0], q + std::int64_t{8} * 100 * (16 + 8) * 64 * 2 + kGuardBytes);
}

TEST(Workload, EveryOperandHasGuardsOnBothSidesAndThePromisedAlignment) {
  for (const char* words :
       {"bf16 b=2 h=3 n=17 d=64 lse bias=fp32:1x3x17x17 mask=bool:17x17",
        "fp16 b=1 h=1 nq=1 nk=5 d=8 layout=bhnd lse", "bf16 b=3 h=2 n=9 d=72 layout=bnhd o=bhnd"}) {
    for (const std::int64_t align : {2, 4, 8, 16}) {
      const AttentionProblem p = parsed(std::string(words) + " align=" + std::to_string(align));
      const WorkloadPlan plan = plan_of(p);
      const std::vector<std::pair<int, std::int64_t>> ends = {
          {kTensorQ, p.q_extent() * 2},
          {kTensorK, p.k_extent() * 2},
          {kTensorV, p.v_extent() * 2},
          {kTensorOut, p.o_extent() * 2},
          {kTensorLse, p.batch * p.heads * p.nq * 4}};
      for (const auto& [operand, bytes] : ends) {
        const auto& place = plan.tensors[static_cast<std::size_t>(operand)];
        if (!place) continue;
        const std::int64_t size = plan.allocations[place->allocation];
        EXPECT_GE(place->offset, kGuardBytes);
        EXPECT_LE(place->offset + bytes + kGuardBytes, size);
        EXPECT_EQ(size % 256, 0);
        if (operand == kTensorLse) continue;
        EXPECT_EQ(place->offset % align, 0);
        if (align < 16) {
          EXPECT_NE(place->offset % (2 * align), 0) << "more aligned than promised";
        }
      }
      EXPECT_GE(plan.bytes(), plan.allocations[0]);
    }
  }
}

TEST(Workload, OperandsThatAreNotAskedForHaveNoPlace) {
  const WorkloadPlan plan = plan_of(parsed("bf16 b=2 h=3 n=17 d=64"));
  EXPECT_FALSE(plan.tensors[kTensorLse]);
  EXPECT_FALSE(plan.tensors[kTensorBias]);
  EXPECT_FALSE(plan.tensors[kTensorMask]);
}

TEST(Workload, ExtremeLogitsAreWideAndFarBelowZero) {
  for (const char* words : {"bf16 b=1 h=1 n=9 d=8", "fp16 b=1 h=1 n=9 d=64",
                            "bf16 b=1 h=1 n=9 d=128 scale=1", "fp16 b=1 h=1 n=9 d=40 scale=0.01"}) {
    const AttentionProblem p = parsed(words);
    const Fill q = fill_of(p, "extreme", kTensorQ), k = fill_of(p, "extreme", kTensorK);
    const double d = static_cast<double>(p.d);
    // Per row, over keys: scale * sum of q_i y_i with unit normal y.
    const double spread = p.scale * std::sqrt(d * (q.mean * q.mean + q.deviation * q.deviation));
    EXPECT_NEAR(spread, 8, 1e-9) << words;
    EXPECT_EQ(k.deviation, 1) << words;
    EXPECT_NEAR(p.scale * d * q.mean * k.mean, -40, 1e-9) << words;
  }
  const AttentionProblem p = parsed("bf16 b=1 h=1 n=9 d=8");
  EXPECT_NE(fill_of(p, "extreme", kTensorQ).seed, fill_of(p, kNormalDraw, kTensorQ).seed);
}

TEST(Workload, MaskedBiasesStandBesideNoLogits) {
  const AttentionProblem p = parsed("bf16 b=1 h=1 n=9 d=8 bias=fp32:1x1x9x9");
  EXPECT_EQ(fill_of(p, "masked", kTensorBias).masked_share, 0.5);
  EXPECT_EQ(fill_of(p, "masked", kTensorQ).mean, 0);
  EXPECT_EQ(fill_of(p, "masked", kTensorQ).deviation, 0);
}

TEST(Workload, InputsStayInTheRangeOfFp16HoweverSmallTheScale) {
  const Fill q = fill_of(parsed("fp16 b=1 h=1 n=9 d=64 scale=1e-9"), "extreme", kTensorQ);
  EXPECT_LT(std::abs(q.mean) + 6 * q.deviation, 65504);
}

TEST(Workload, TheOutlierIsOneKeyInTheMiddle) {
  const AttentionProblem p = parsed("bf16 b=2 h=3 n=17 d=64 layout=bnhd");
  std::vector<Fill> of_k;
  for (const Fill& fill : attention_inputs(p, "outlier")) {
    if (fill.tensor == kTensorK) of_k.push_back(fill);
  }
  ASSERT_EQ(of_k.size(), 2u);
  EXPECT_EQ(of_k[1].offset, 8 * 3 * 64);
  EXPECT_EQ(of_k[1].extents, (TensorSpec::Dims{2, 3, 1, 64}));
  EXPECT_EQ(of_k[1].deviation, 200);
}

struct ResizeCase {
  const char* words;
  Extents to;
  const char* expected;
};

TEST(EdgeShapes, ResizingKeepsTheFamilyOfLayouts) {
  const std::vector<ResizeCase> cases = {
      {"bf16 b=8 h=12 n=197 d=64 layout=packed",
       {3, 1, 17, 17},
       "bf16 b=3 h=1 n=17 d=64 layout=packed"},
      {"bf16 b=8 h=12 n=197 d=64 layout=bnhd",
       {3, 2, 17, 63},
       "bf16 b=3 h=2 nq=17 nk=63 d=64 layout=bnhd"},
      {"bf16 b=8 h=12 n=197 d=64 layout=bhnd o=bhnd",
       {3, 2, 17, 63},
       "bf16 b=3 h=2 nq=17 nk=63 d=64 layout=bhnd o=bhnd"},
      {"fp16 b=8 h=16 hkv=4 n=99 d=64 causal lse scale=0.5 layout=bnhd",
       {2, 2, 5, 7},
       "fp16 b=2 h=8 hkv=2 nq=5 nk=7 d=64 causal lse scale=0.5 layout=bnhd"},
      {"bf16 b=8 h=12 n=197 d=64 layout=bnhd q=@302592,128,1536",
       {2, 3, 10, 197},
       "bf16 b=2 h=3 nq=10 nk=197 d=64 layout=bnhd q=@15360,128,1536"},
      {"bf16 b=8 h=12 n=197 d=64 bias=bf16:197x197",
       {2, 3, 10, 197},
       "bf16 b=2 h=3 nq=10 nk=197 d=64 bias=bf16:10x197 q=@5760,64,576 k=@113472,64,576 "
       "v=@113472,64,576"},
  };
  for (const ResizeCase& c : cases) {
    const AttentionProblem got = resized(parsed(c.words), c.to);
    EXPECT_EQ(got, parsed(c.expected)) << c.words << "\n" << got.text();
  }
}

TEST(EdgeShapes, BiasRowsKeepTheirAlignmentClass) {
  // 200 = 8 * 25: rows are 16-byte aligned, and stay so with 190 keys; 197 is odd, and stays odd.
  const AttentionProblem even = parsed("bf16 b=2 h=3 n=200 d=64 bias=bf16:1x3x200x200");
  EXPECT_EQ(resized(even, {2, 3, 17, 190}).bias->strides[2] % 8, 0);
  const AttentionProblem odd = parsed("bf16 b=2 h=3 n=197 d=64 bias=bf16:1x3x197x197");
  EXPECT_EQ(resized(odd, {2, 3, 17, 190}).bias->strides[2], 191);
}

TEST(EdgeShapes, BroadcastStaysBroadcastAndWindowsStayWindows) {
  const AttentionProblem p =
      parsed("bf16 b=128 h=3 n=49 d=32 bias=bf16:64x1x49x49 mask=bool:128x1x1x49");
  const AttentionProblem edge = resized(p, {4, 2, 17, 49});
  EXPECT_EQ(edge.bias->batches, 2);
  EXPECT_GT(edge.bias->strides[0], 0);
  EXPECT_EQ(edge.bias->strides[1], 0);
  EXPECT_EQ(edge.mask->batches, 4);
  EXPECT_EQ(edge.mask->strides[2], 0);
  edge.validate();
}

TEST(EdgeShapes, ResizedProblemsAreValidOverAllExtents) {
  for (const char* words :
       {"bf16 b=32 h=12 n=197 d=64", "fp16 b=8 h=16 hkv=4 n=1024 d=64 causal lse",
        "bf16 b=2048 h=3 n=49 d=32 bias=bf16:64x3x49x49",
        "bf16 b=2 h=16 nq=4096 nk=300 d=72 bias=bf16:2x1x1x300", "bf16 b=64 h=16 nq=1 nk=729 d=72",
        "bf16 b=8 h=2 n=16 d=96 q=@576,96,36864 k=@576,96,36864 v=@576,96,36864",
        "bf16 b=1 h=1 n=1 d=8 bias=fp32:1x1 mask=bool:1x1",
        "bf16 b=4 h=2 n=33 d=40 q=bhnd k=bnhd v=packed o=bhnd",
        "bf16 b=4 h=2 nq=33 nk=8 d=40 k=@0,0,40 v=@0,0,40"}) {
    const AttentionProblem p = parsed(words);
    for (const bool constant_keys : {false, true}) {
      for (const Extents& extents : edge_extents(p, constant_keys)) {
        const AttentionProblem edge = resized(p, extents);
        EXPECT_NO_THROW(edge.validate()) << words << " -> " << edge.text();
        EXPECT_EQ(edge.heads / edge.kv_heads, p.heads / p.kv_heads) << words;
        EXPECT_EQ(AttentionProblem::parse(edge.text()), edge) << edge.text();
        if (constant_keys) {
          EXPECT_EQ(edge.nk, p.nk) << words;
        }
      }
    }
  }
}

TEST(EdgeShapes, EveryEdgeRunsTheVerySameKernelAndTheCheapestComesFirst) {
  const DeviceInfo device = *architecture_limits("sm_90");
  for (const char* words : {"bf16 b=32 h=12 n=197 d=64", "bf16 b=16 h=12 n=577 d=64 layout=bnhd",
                            "bf16 b=2048 h=3 n=49 d=32 bias=bf16:64x3x49x49",
                            "fp16 b=8 h=16 hkv=4 n=1024 d=64 causal lse"}) {
    const AttentionProblem p = parsed(words);
    std::vector<Config> configs = attention_space(p, device).enumerate();
    ASSERT_FALSE(configs.empty());
    for (std::size_t i = 0; i < configs.size(); i += configs.size() / 7 + 1) {
      const std::vector<AttentionProblem> edges = edge_problems(p, configs[i], device);
      EXPECT_GE(edges.size(), 2u) << words << " " << configs[i].text();
      for (const AttentionProblem& edge : edges) {
        EXPECT_EQ(attention_source(edge, configs[i]), attention_source(p, configs[i]));
        EXPECT_NE(edge, p);
      }
      EXPECT_TRUE(std::is_sorted(edges.begin(), edges.end(), [](const auto& a, const auto& b) {
        return a.flops() < b.flops();
      }));
      const bool constant = attention_keys_are_constant(configs[i]);
      const bool other_keys = std::any_of(edges.begin(), edges.end(),
                                          [&](const auto& edge) { return edge.nk != p.nk; });
      EXPECT_NE(constant, other_keys) << words << " " << configs[i].text();
    }
  }
}

}  // namespace
}  // namespace vitune
