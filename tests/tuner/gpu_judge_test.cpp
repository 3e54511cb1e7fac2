// tests/tuner/gpu_judge_test.cpp -- The judge against a CPU, inputs and timer, on a real GPU.
//
// Skipped visibly where there is no device or no NVRTC.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "generator/attention/operator.h"
#include "tests/tuner/gpu_fixture.h"
#include "tuner/judge/reference.h"
#include "tuner/judge/workload.h"
#include "tuner/measure/gpu_timer.h"
#include "tuner/measure/statistics.h"

namespace vitune {
namespace {

class GpuJudge : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    context_ = std::make_unique<CudaContext>(driver_, 0);
    stream_ = std::make_unique<CudaStream>(*driver_);
    kernels_ = std::make_unique<SupportKernels>(*driver_, support_, device_);
  }
  GpuTools tools() const { return {*context_, *stream_, *kernels_, device_}; }

  std::unique_ptr<CudaContext> context_;
  std::unique_ptr<CudaStream> stream_;
  std::unique_ptr<SupportKernels> kernels_;
};

double value16(std::uint16_t bits, ElementType type) {
  const double sign = bits & 0x8000 ? -1 : 1;
  const int digits = type == ElementType::kFp16 ? 10 : 7;
  const int exponent = (bits & 0x7fff) >> digits, bias = type == ElementType::kFp16 ? 15 : 127;
  const int fraction = bits & ((1 << digits) - 1), top = type == ElementType::kFp16 ? 31 : 255;
  if (exponent == top) return fraction != 0 ? std::nan("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - digits);
  return sign * std::ldexp(fraction + (1 << digits), exponent - bias - digits);
}

// One operand's elements on the host.
struct HostTensor {
  std::vector<std::byte> bytes;
  ElementType type;
  double at(std::int64_t index) const {
    const auto size = static_cast<std::size_t>(element_bytes(type));
    const auto offset = static_cast<std::size_t>(index) * size;
    if (type == ElementType::kBool) return std::to_integer<int>(bytes.at(offset));
    if (type == ElementType::kFp32) {
      float value;
      std::memcpy(&value, &bytes.at(offset), size);
      return value;
    }
    std::uint16_t bits;
    std::memcpy(&bits, &bytes.at(offset), size);
    return value16(bits, type);
  }
};

std::int64_t offset_of(const TensorStrides& s, std::int64_t b, std::int64_t h, std::int64_t row) {
  return b * s.batch + h * s.head + row * s.row;
}

std::int64_t offset_of(const ScoreOperand& o, std::int64_t b, std::int64_t h, std::int64_t i,
                       std::int64_t j) {
  return b % o.batches * o.strides[0] + h * o.strides[1] + i * o.strides[2] + j * o.strides[3];
}

// The scores of one row in fp64, -inf where the row may not attend.
std::vector<double> cpu_scores(const AttentionProblem& p, const std::vector<HostTensor>& t,
                               std::int64_t b, std::int64_t h, std::int64_t i) {
  std::vector<double> scores;
  for (std::int64_t j = 0; j < p.nk; ++j) {
    const bool masked = p.mask && t[4].at(offset_of(*p.mask, b, h, i, j)) == 0;
    if (masked || (p.causal && j > i)) {
      scores.push_back(-INFINITY);
      continue;
    }
    double sum = 0;
    for (std::int64_t x = 0; x < p.d; ++x) {
      sum += t[0].at(offset_of(p.q, b, h, i) + x) *
             t[1].at(offset_of(p.k, b, h / (p.heads / p.kv_heads), j) + x);
    }
    scores.push_back(sum * p.scale + (p.bias ? t[3].at(offset_of(*p.bias, b, h, i, j)) : 0));
  }
  return scores;
}

struct Answer {
  std::vector<float> out, lse;
};

void expect_row(const AttentionProblem& p, const std::vector<HostTensor>& t, std::int64_t b,
                std::int64_t h, std::int64_t i, const Answer& answer) {
  const std::vector<double> scores = cpu_scores(p, t, b, h, i);
  const double top = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  std::vector<double> out(static_cast<std::size_t>(p.d), 0.0);
  for (std::int64_t j = 0; j < p.nk && top != -INFINITY; ++j) {
    const double weight = std::exp(scores[static_cast<std::size_t>(j)] - top);
    sum += weight;
    for (std::int64_t x = 0; x < p.d; ++x) {
      out[static_cast<std::size_t>(x)] +=
          weight * t[2].at(offset_of(p.v, b, h / (p.heads / p.kv_heads), j) + x);
    }
  }
  const auto row = static_cast<std::size_t>((b * p.heads + h) * p.nq + i);
  for (std::size_t x = 0; x < out.size(); ++x) {
    const double want = sum == 0 ? 0 : out[x] / sum;
    ASSERT_NEAR(answer.out[row * out.size() + x], want, 1e-6 * std::max(1.0, std::abs(want)))
        << p.text() << " at b=" << b << " h=" << h << " i=" << i << " x=" << x;
  }
  if (sum == 0) {
    ASSERT_EQ(answer.lse[row], -INFINITY) << p.text();
  } else {
    const double want = top + std::log(sum);
    ASSERT_NEAR(answer.lse[row], want, 1e-6 * std::max(1.0, std::abs(want))) << p.text();
  }
}

std::string random_scores(std::mt19937& random, const std::string& type, int b, int h, int nq,
                          int nk) {
  const int batches = random() % 2 == 0 ? 1 : (random() % 2 == 0 ? b : (b % 2 == 0 ? 2 : 1));
  const auto either = [&](int extent) { return random() % 3 == 0 ? 1 : extent; };
  std::ostringstream text;
  text << type << ":" << batches << "x" << either(h) << "x" << either(nq) << "x" << either(nk);
  return text.str();
}

std::string random_words(std::mt19937& random) {
  const auto pick = [&](std::initializer_list<const char*> list) {
    return std::string(*(list.begin() + random() % list.size()));
  };
  const int kv = 1 + static_cast<int>(random() % 3), h = kv * (1 + static_cast<int>(random() % 2));
  const int b = 1 + static_cast<int>(random() % 4);
  const int nq = 1 + static_cast<int>(random() % 90),
            nk = random() % 2 ? nq : 1 + static_cast<int>(random() % 90);
  std::ostringstream text;
  text << pick({"bf16", "fp16"}) << " b=" << b << " h=" << h << " hkv=" << kv << " nq=" << nq
       << " nk=" << nk << " d=" << 8 * (1 + random() % 16);
  text << " layout=" << (nq == nk ? pick({"packed", "bnhd", "bhnd"}) : pick({"bnhd", "bhnd"}));
  text << pick({"", " causal"}) << pick({"", " lse"}) << pick({"", " scale=0.3"});
  text << pick({"", " align=2", " align=8"}) << pick({"", " o=bhnd"});
  if (random() % 2)
    text << " bias=" << random_scores(random, pick({"fp32", "fp16", "bf16"}), b, h, nq, nk);
  if (random() % 2) text << " mask=" << random_scores(random, "bool", b, h, nq, nk);
  return text.str();
}

TEST_F(GpuJudge, MatchesACpuReferenceOnRandomProblems) {
  constexpr int kProblems = 300;
  constexpr const char* kTried[] = {"normal", "extreme", "masked"};
  std::mt19937 random(20);
  for (int round = 0; round < kProblems; ++round) {
    const AttentionProblem p = problem(random_words(random));
    Workload workload(tools(), p);
    workload.fill_inputs(kTried[round % 3]);
    const Reference reference(tools(), workload);
    const Answer answer = {reference.download(kTensorOut), reference.download(kTensorLse)};
    const std::vector<HostTensor> tensors = {
        {workload.download(kTensorQ), p.dtype},
        {workload.download(kTensorK), p.dtype},
        {workload.download(kTensorV), p.dtype},
        {workload.download(kTensorBias), p.bias ? p.bias->type : ElementType::kFp32},
        {workload.download(kTensorMask), ElementType::kBool}};
    for (std::int64_t b = 0; b < p.batch; ++b) {
      for (std::int64_t h = 0; h < p.heads; ++h) {
        for (std::int64_t i = 0; i < p.nq; ++i) {
          expect_row(p, tensors, b, h, i, answer);
          if (HasFatalFailure()) return;
        }
      }
    }
    EXPECT_TRUE(reference.intact());
    EXPECT_GT(reference.bounds().front().max_error, 0);
  }
}

TEST_F(GpuJudge, RandomInputsHaveTheMomentsTheyAreSaidToHave) {
  const AttentionProblem p = problem("fp16 b=8 h=12 n=197 d=64 layout=bnhd mask=bool:8x12x197x197");
  Workload workload(tools(), p);
  workload.fill_inputs("normal");
  const HostTensor q = {workload.download(kTensorQ), p.dtype};
  const HostTensor mask = {workload.download(kTensorMask), ElementType::kBool};
  double sum = 0, squares = 0, seen = 0;
  for (std::int64_t i = 0; i < p.q_extent(); ++i) {
    sum += q.at(i);
    squares += q.at(i) * q.at(i);
  }
  for (std::int64_t i = 0; i < p.mask_extent(); ++i) seen += mask.at(i);
  const auto count = static_cast<double>(p.q_extent());
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(squares / count, 1, 0.01);
  // Three keys of four, in seven rows of eight.
  EXPECT_NEAR(seen / static_cast<double>(p.mask_extent()), 0.75 * 0.875, 0.01);
}

TEST_F(GpuJudge, HalfOfABiasIsMaskedByLargeNegativeNumbersInRunsOf64) {
  struct Case {
    const char* type;
    double lowest, least;
  };
  for (const auto& [type, lowest, least] :
       {Case{"fp32", -0x1.fffffep127, -0x1.fffffep15}, Case{"bf16", -0x1.fep127, -0x1.fep15},
        Case{"fp16", -65504., -65504.}}) {
    const AttentionProblem p =
        problem("bf16 b=2 h=4 n=128 d=8 bias=" + std::string(type) + ":2x4x128x128");
    Workload workload(tools(), p);
    workload.fill_inputs("masked");
    const HostTensor bias = {workload.download(kTensorBias), p.bias->type};
    const std::int64_t runs = p.bias_extent() / 64;
    double masked_runs = 0, lowest_runs = 0;
    for (std::int64_t run = 0; run < runs; ++run) {
      const double first = bias.at(64 * run);
      const bool masked = first <= least;
      masked_runs += masked;
      lowest_runs += first == lowest;
      for (std::int64_t i = 64 * run; i < 64 * run + 64; ++i) {
        if (masked) {
          ASSERT_EQ(bias.at(i), first) << type << " at " << i;
          ASSERT_GE(first, lowest) << type << " at " << i;
        } else {
          ASSERT_LT(std::abs(bias.at(i)), 30) << type << " at " << i;
        }
      }
    }
    EXPECT_NEAR(masked_runs / static_cast<double>(runs), 0.5, 0.05) << type;
    EXPECT_NEAR(lowest_runs / masked_runs, lowest == least ? 1 : 0.5, 0.05) << type;
  }
}

TEST_F(GpuJudge, TheTimerSeesWhatAKnownKernelTakes) {
  GpuTimer timer(*context_, *stream_, *kernels_, device_);
  timer.warm_up();
  DeviceBuffer sink(*driver_, 65536);
  const LaunchTimer::Handle handle =
      timer.add([&] { kernels_->spin(*stream_, 200, sink.address()); });
  timer.prepare_warm(handle, 200);
  // The spin counts clocks at the highest clock rate, so a lower one only makes it longer.
  const double cold = median(timer.cold(handle, 15)), warm = median(timer.warm(handle, 5));
  EXPECT_GT(cold, 195);
  EXPECT_LT(cold, 500);
  EXPECT_GT(warm, 195);
  EXPECT_LT(warm, cold + 20);
  const double first = timer.anchor(), second = timer.anchor();
  EXPECT_GT(first, 10);
  EXPECT_NEAR(second / first, 1, 0.25);
}

}  // namespace
}  // namespace vitune
