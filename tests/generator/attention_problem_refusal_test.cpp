// tests/generator/attention_problem_refusal_test.cpp -- What a problem text may not say, and the
// words.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "core/error.h"
#include "generator/attention/problem.h"

namespace vitune {
namespace {

using testing::HasSubstr;

constexpr ErrorCode kUsage = ErrorCode::kUsage;
constexpr ErrorCode kUnsupported = ErrorCode::kUnsupported;

struct Refusal {
  std::string text;  // "+..." is appended to a valid problem
  ErrorCode code;
  std::string words;
};

void expect_refused(const Refusal& refusal) {
  const std::string text = refusal.text.starts_with('+')
                               ? "bf16 b=32 h=12 nq=197 nk=50 d=64 " + refusal.text.substr(1)
                               : refusal.text;
  try {
    const AttentionProblem problem = AttentionProblem::parse(text);
    ADD_FAILURE() << "accepted: " << text << " as " << problem.text();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), refusal.code) << text << '\n' << error.what();
    EXPECT_THAT(error.what(), HasSubstr(refusal.words)) << text;
  }
}

TEST(AttentionProblemRefusal, MalformedWordsAreNamed) {
  const Refusal refusals[] = {
      {"", kUsage, "empty"},
      {"  \t\n ", kUsage, "empty"},
      {"attention", kUsage, "try 'bf16 b=32"},
      {"attention attention bf16 b=1 h=1 n=1 d=8", kUsage, "unknown word 'attention'"},
      {"convolution bf16 b=1", kUsage, "unknown word 'convolution'"},
      {"+gelu", kUsage, "unknown word 'gelu'"},
      {"+gelu=1", kUsage, "unknown word 'gelu=1'"},
      {"+causal=1", kUsage, "unknown word 'causal=1'"},
      {"+B=3", kUsage, "unknown word 'B=3'"},
      {"+=3", kUsage, "unknown word '=3'"},
      {"+=", kUsage, "unknown word '='"},
      {"+b", kUsage, "unknown word 'b'"},
      {"+\x1b[31m", kUsage, "'\\x1b[31m'"},
      {"+\xff", kUsage, "'\\xff'"},
      {"+" + std::string(100, 'z'), kUsage, std::string(64, 'z') + "...'"},
      {std::string(5000, ' '), kUsage, "4096 are the most"},
      {"+d=32", kUsage, "d is given twice"},
      {"+causal causal", kUsage, "causal is given twice"},
      {"+n=7", kUsage, "n= sets both nq and nk"},
      {"bf16 b=1 h=1 n=7 nk=7 d=8", kUsage, "n= sets both nq and nk"},
      {"+fp16", kUsage, "bf16 and fp16 are both given"},
      {"b=1 h=1 n=7 d=8", kUsage, "the dtype is missing: begin with bf16 or fp16"},
      {"bf16 h=1 n=7 d=8", kUsage, "b= (batch) is missing"},
      {"bf16 b=1 n=7 d=8", kUsage, "h= (heads) is missing"},
      {"bf16 b=1 h=1 d=8", kUsage, "nq= (query rows"},
      {"bf16 b=1 h=1 nq=3 d=8", kUsage, "nk= (key rows"},
      {"bf16 b=1 h=1 n=7", kUsage, "d= (head size) is missing"},
      {"bf16 b= h=1 n=7 d=8", kUsage, "b= has no value"},
      {"bf16 b=x h=1 n=7 d=8", kUsage, "b: 'x' is not a whole number"},
      {"bf16 b=1.5 h=1 n=7 d=8", kUsage, "'1.5' is not a whole number"},
      {"bf16 b=+1 h=1 n=7 d=8", kUsage, "'+1' is not a whole number"},
      {"bf16 b=0x10 h=1 n=7 d=8", kUsage, "'0x10' is not a whole number"},
      {"bf16 b=1e3 h=1 n=7 d=8", kUsage, "'1e3' is not a whole number"},
      {"bf16 b=9223372036854775808 h=1 n=7 d=8", kUsage, "does not fit 64 bits"},
      {"+scale=fast", kUsage, "scale: 'fast' is not a number"},
      {"+scale=0.5f", kUsage, "scale: '0.5f' is not a number"},
      {"+scale=nan", kUsage, "'nan' is not a number"},
      {"+scale=1e999", kUsage, "'1e999' is not a number in the range of a double"},
      {"+align=wide", kUsage, "align: 'wide' is not a whole number"},
  };
  for (const Refusal& refusal : refusals) expect_refused(refusal);
}

TEST(AttentionProblemRefusal, ContradictingLayoutsAndOperandsAreNamed) {
  const Refusal refusals[] = {
      {"+layout=nhwc", kUsage, "layout='nhwc' is no layout: use packed, bnhd or bhnd"},
      {"+layout=@1,2,3", kUsage, "layout='@1,2,3' is no layout"},
      {"+layout=packed", kUsage, "needs nq = nk"},
      {"+layout=packed q=bnhd k=bnhd v=bnhd", kUsage, "nq=197 nk=50"},
      {"+q=packed", kUsage, "needs nq = nk"},
      {"bf16 b=1 h=1 n=7 d=8 o=packed", kUsage, "o=packed is no layout of the output"},
      {"+q=rows", kUsage, "q='rows' is no layout: use packed, bnhd or bhnd, or @batch,head,row"},
      {"+q=@1,2", kUsage, "q=@ takes 3 strides"},
      {"+k=@1,2,3,4", kUsage, "k=@ takes 3 strides"},
      {"+v=@", kUsage, "v=@ takes 3 strides"},
      {"+v=@,,", kUsage, "v: '' is not a whole number"},
      {"+v=@1,2,x", kUsage, "v: 'x' is not a whole number"},
      {"+bias=bf16", kUsage, "names no dimensions: write bias=bf16:1x1x197x50"},
      {"+bias=:197x50", kUsage, "bias: '' is no type"},
      {"+bias=int8:197x50", kUsage, "bias: 'int8' is no type"},
      {"+bias=bf16:", kUsage, "not 2 to 4 dimensions"},
      {"+bias=bf16:50", kUsage, "not 2 to 4 dimensions"},
      {"+bias=bf16:1x1x1x197x50", kUsage, "not 2 to 4 dimensions"},
      {"+bias=bf16:1x12x197x51", kUsage, "1x12x197x51 does not broadcast to 32x12x197x50"},
      {"+bias=bf16:1x12x50x197", kUsage, "does not broadcast"},
      {"+bias=bf16:1x3x197x50", kUsage, "does not broadcast"},
      {"+bias=bf16:0x12x197x50", kUsage, "does not broadcast"},
      {"+bias=bf16:-1x12x197x50", kUsage, "does not broadcast"},
      {"+bias=bf16:5x1x197x50", kUsage, "a number of windows that divides b"},
      {"+bias=bf16:64x1x197x50", kUsage, "a number of windows that divides b"},
      {"+bias=bf16:ax1x197x50", kUsage, "bias: 'a' is not a whole number"},
      {"+bias=bf16:197x50@1", kUsage, "1 strides for 2 dimensions"},
      {"+bias=bf16:197x50@1,2,3,4", kUsage, "4 strides for 2 dimensions"},
      {"+bias=bf16:197x50@", kUsage, "1 strides for 2 dimensions"},
      {"+mask=bool:1x1x197x51", kUsage, "mask of 1x1x197x51 does not broadcast"},
      {"+mask=bool", kUsage, "mask=bool:1x1x197x50"},
      {"+mask=causal", kUsage, "mask: 'causal' is no type: write mask=bool:"},
  };
  for (const Refusal& refusal : refusals) expect_refused(refusal);
}

TEST(AttentionProblemRefusal, WhatTheKernelsCannotDoIsSaidWithWhatTheyCan) {
  const Refusal refusals[] = {
      {"fp32 b=1 h=1 n=7 d=8", kUnsupported, "dtype fp32 is not supported: use bf16 or fp16"},
      {"fp8 b=1 h=1 n=7 d=8", kUnsupported, "use bf16 or fp16"},
      {"bf16 b=0 h=1 n=7 d=8", kUnsupported, "batch b=0 is not supported: use 1 to 2147483647"},
      {"bf16 b=-1 h=1 n=7 d=8", kUnsupported, "batch b=-1"},
      {"bf16 b=2147483648 h=1 n=7 d=8", kUnsupported, "batch b=2147483648"},
      {"bf16 b=1 h=0 n=7 d=8", kUnsupported, "head count h=0"},
      {"bf16 b=1 h=4 hkv=0 n=7 d=8", kUnsupported, "kv head count hkv=0"},
      {"bf16 b=1 h=4 hkv=3 n=7 d=8", kUnsupported, "hkv=3 is not supported with h=4"},
      {"bf16 b=1 h=4 hkv=8 n=7 d=8", kUnsupported, "use a divisor of h"},
      {"bf16 b=1 h=1 nq=0 nk=7 d=8", kUnsupported, "query row count nq=0"},
      {"bf16 b=1 h=1 nq=7 nk=0 d=8", kUnsupported, "key row count nk=0"},
      {"bf16 b=1 h=1 nq=7 nk=16777217 d=8", kUnsupported, "use 1 to 16777216"},
      {"bf16 b=1 h=1 n=7 d=130", kUnsupported,
       "head size d=130 is not supported: use 8 to 128 in steps of 8"},
      {"bf16 b=1 h=1 n=7 d=36", kUnsupported, "head size d=36"},
      {"bf16 b=1 h=1 n=7 d=0", kUnsupported, "head size d=0"},
      {"bf16 b=1 h=1 n=7 d=-8", kUnsupported, "head size d=-8"},
      {"bf16 b=1 h=1 n=7 d=136", kUnsupported, "head size d=136"},
      {"bf16 b=2147483647 h=1 n=17 d=8", kUnsupported, "split the batch over several calls"},
      {"bf16 b=65536 h=65536 n=1 d=8", kUnsupported, "may be 2147483647 at most"},
      {"bf16 b=2147483647 h=2147483647 n=16777216 d=8", kUnsupported, "split the batch"},
      {"+scale=0", kUnsupported, "scale=0 is not supported: use a finite number from 2^-40"},
      {"+scale=-1", kUnsupported, "scale=-1"},
      {"+scale=inf", kUnsupported, "scale=inf"},
      {"+scale=1e-13", kUnsupported, "2^-40 to 2^40"},
      {"+scale=2e12", kUnsupported, "2^-40 to 2^40"},
      {"+align=1", kUnsupported, "align=1 is not supported: use 2, 4, 8 or 16 bytes"},
      {"+align=32", kUnsupported, "align=32"},
      {"+q=@-1,64,768", kUnsupported,
       "batch stride -1 of q is not supported: strides are 0 or more"},
      {"+k=@0,0,-768", kUnsupported, "row stride -768 of k"},
      {"+o=@0,64,768", kUnsupported, "o overlaps itself: its batch stride 0"},
      {"+o=@151296,64,760", kUnsupported,
       "o overlaps itself: its row stride 760 is less than the 768"},
      {"+o=@151295,64,768", kUnsupported, "its batch stride 151295"},
      {"+o=@151296,32,768", kUnsupported, "its head stride 32 is less than the 64 elements"},
      {"+bias=bool:1x12x197x50", kUnsupported, "bias type bool is not supported"},
      {"+mask=bf16:1x12x197x50", kUnsupported,
       "mask type bf16 is not supported: use bool, or bias="},
      {"+bias=bf16:1x12x197x50@0,9850,50,-1", kUnsupported, "key row stride -1 of bias"},
  };
  for (const Refusal& refusal : refusals) expect_refused(refusal);
}

TEST(AttentionProblemRefusal, OverflowIsFoundWhereverItIsTried) {
  const std::string huge = std::to_string(std::numeric_limits<std::int64_t>::max());
  const Refusal refusals[] = {
      {"+q=@" + huge + ",64,768", kUsage, "q spans more than 2^63 elements of 2 bytes"},
      {"+k=@0," + huge + ",768", kUsage, "k spans more than 2^63 elements"},
      {"+v=@0,0," + huge, kUsage, "v spans more than 2^63 elements"},
      {"+o=@" + huge + ",64,768", kUsage, "o spans more than 2^63 elements"},
      {"bf16 b=2 h=1 n=1 d=8 q=@" + huge + ",0,0", kUsage, "q spans more than 2^63 elements"},
      {"bf16 b=2 h=1 n=1 d=8 q=@70368744177656,0,0", kUsage, "less than 2^47 bytes"},
      {"bf16 b=2 h=1 n=1 d=8 k=@9223372036854775799,0,0", kUsage, "of 2 bytes, which overflows"},
      {"bf16 b=1 h=2048 n=16777216 d=128", kUnsupported, "split the batch"},
      {"bf16 b=1 h=2147483647 nq=16 nk=16777216 d=128", kUsage, "k spans 4611686"},
      {"bf16 b=2 h=2147483647 nq=1 nk=1 d=8", kUnsupported, "split the batch"},
      {"+bias=fp32:1x12x197x50@0,0," + huge + ",1", kUsage, "bias spans more than 2^63"},
      {"+bias=fp32:32x12x197x50@1135000000000,9850,50,1", kUsage, "bias spans 35185000"},
      {"bf16 b=1 h=1 n=16777216 d=8 bias=bf16:16777216x16777216", kUsage, "bias spans"},
      {"bf16 b=1 h=1 n=16777216 d=8 mask=bool:16777216x16777216", kUsage, "mask spans 2814749767"},
  };
  for (const Refusal& refusal : refusals) expect_refused(refusal);

  AttentionProblem problem = AttentionProblem::parse("bf16 b=2 h=2 n=3 d=8");
  problem.q.row = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(problem.q_extent(), Error);
  EXPECT_EQ(bhnd_strides(std::int64_t{1} << 40, std::int64_t{1} << 40, 8).batch,
            std::numeric_limits<std::int64_t>::max());
}

TEST(AttentionProblemRefusal, TheLimitsThemselvesAreAccepted) {
  for (const char* text : {
           "bf16 b=2147483647 h=1 n=1 d=8",
           "bf16 b=1 h=2147483647 hkv=1 n=16 d=8",
           "bf16 b=70000 h=4 n=49 d=32 bias=fp32:70000x4x49x49",
           "fp16 b=1 h=1 n=16777216 d=128",
           "fp16 b=1 h=1 nq=1 nk=16777216 d=8 mask=bool:1x1x1x16777216",
           "bf16 b=2 h=1 n=1 d=8 q=@70368744177655,0,0",
           "bf16 b=1 h=1 n=1 d=8 scale=9.094947017729282e-13",
           "bf16 b=1 h=1 n=1 d=8 scale=1099511627776",
       }) {
    EXPECT_NO_THROW(AttentionProblem::parse(text)) << text;
  }
}

TEST(AttentionProblemRefusal, AProblemMadeInCodeIsCheckedTheSameWay) {
  const AttentionProblem good = AttentionProblem::parse("bf16 b=4 h=2 n=5 d=16");
  AttentionProblem bad = good;
  bad.dtype = ElementType::kFp32;
  EXPECT_THROW(bad.validate(), Error);
  bad = good;
  bad.bias = ScoreOperand{.type = ElementType::kBf16, .batches = 3, .strides = {25, 0, 5, 1}};
  EXPECT_THROW(bad.validate(), Error);
  bad.bias->batches = 0;
  EXPECT_THROW(bad.validate(), Error);
  bad.bias->batches = 2;
  EXPECT_NO_THROW(bad.validate());
  bad = good;
  bad.scale = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(bad.validate(), Error);
  EXPECT_NO_THROW(AttentionProblem().text());
}

}  // namespace
}  // namespace vitune
