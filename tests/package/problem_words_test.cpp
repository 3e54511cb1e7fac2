// tests/package/problem_words_test.cpp -- Texts of linear layers and norms, word by word, are those
// that the parser reads.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <type_traits>

#include "core/error.h"
#include "generator/operator.h"
#include "vitune/vitune.hpp"

namespace vitune {
namespace {

using cpp::Activation;
using cpp::Linear;
using cpp::Norm;

// A type that is none, or a flag, is no argument of these.
static_assert(!std::is_invocable_v<decltype(&Linear::params), Linear&, int>);
static_assert(!std::is_invocable_v<decltype(&Linear::act), Linear&, const char*>);
static_assert(!std::is_convertible_v<bool, cpp::DataType>);

struct Case {
  std::string built;
  const char* canonical;
};

// The longest sizes first: a builder's words may come in any order.
TEST(ProblemWords, EveryWordOfALinearLayerIsRead) {
  const cpp::LinearSizes sizes{DataType::kBf16, 12608, 3072, 768};
  const auto linear = [&] { return Linear(sizes); };
  const Case cases[] = {
      {linear().text(), ""},
      {linear().bias().act(Activation::kGelu).text(), " bias act=gelu"},
      {linear().act(Activation::kRelu).text(), " act=relu"},
      {linear().act(Activation::kGeluTanh).text(), " act=gelu_tanh"},
      {linear().act(Activation::kQuickGelu).text(), " act=quick_gelu"},
      {linear().act(Activation::kSilu).bias().text(), " bias act=silu"},
      {linear().dact(Activation::kGelu).transposed().text(), " dact=gelu wt"},
      {linear().dact(Activation::kGelu).pre_row(4096).post().transposed(3200).text(),
       " dact=gelu wt=@3200 pre=@4096 post"},
      {linear().layer_norm().bias().params(DataType::kFp32).text(), " norm=layer bias params=fp32"},
      {linear().rms_norm().text(), " norm=rms"},
      {linear().norm_of_moments(192, 1e-6).bias().text(), " norm=moments:192 eps=1e-06 bias"},
      {linear().bias().scale().residual().moments(192).text(), " bias scale residual moments=192"},
      {linear().bias().residual(3200).out_row(3328).text(), " bias residual=@3200 out=@3328"},
      {linear().residual().out(DataType::kFp32).factor(197).text(),
       " factor=197 residual out=fp32"},
      {linear().residual().out(DataType::kFp32, 4096).text(), " residual out=fp32@4096"},
      {linear().residual().period(197).rows(197, 1).text(), " residual period=197 rows=197+1"},
      {linear().x_row(784).w_row(800).bias().aux(3136).text(), " bias x=@784 w=@800 aux=@3136"},
      {linear().bias().act(Activation::kGelu).aux().align(8).text(), " bias act=gelu aux align=8"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(parse_problem(c.built)->text(),
              std::string("linear bf16 m=12608 n=3072 k=768") + c.canonical)
        << c.built;
    EXPECT_NO_THROW(cpp::Problem{c.built}) << c.built;
  }
}

TEST(ProblemWords, EveryWordOfANormIsRead) {
  const auto norm = [] { return Norm({DataType::kFp16, 6304, 768}); };
  const Case cases[] = {
      {norm().text(), ""},
      {norm().weight().bias().text(), " weight bias"},
      {norm().rms().weight().params(DataType::kFp32).text(), " rms weight params=fp32"},
      {norm().weight().residual().sum().text(), " weight residual sum"},
      {norm().residual(0).sum(1024).text(), " residual=@0 sum=@1024"},
      {norm().second(DataType::kBf16, 800).stats().text(), " second=bf16@800 stats"},
      {norm().x_row(896).out(DataType::kFp32, 784).text(), " x=@896 out=fp32@784"},
      {norm().out_row(784).text(), " out=@784"},
      {norm().second(DataType::kFp32).eps(1e-6).align(4).text(), " second=fp32 eps=1e-06 align=4"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(parse_problem(c.built)->text(), std::string("norm fp16 m=6304 d=768") + c.canonical)
        << c.built;
    EXPECT_NO_THROW(cpp::Problem{c.built}) << c.built;
  }
}

TEST(ProblemWords, AValueThatIsNoneIsToldByWhoReadsTheText) {
  EXPECT_THROW(cpp::Problem{Linear({DataType::kBf16, 0, 8, 8}).text()}, cpp::Exception);
  EXPECT_THROW(cpp::Problem{Norm({DataType::kBf16, 8, 8}).align(3).text()}, cpp::Exception);
}

}  // namespace
}  // namespace vitune
