// tests/tuner/map_expressions_gpu_test.cpp -- Two thousand random expressions as kernels compute
// them, beside fp64 of the same trees on the host.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/cuda_driver.h"
#include "core/format.h"
#include "generator/map/kernel_spec.h"
#include "generator/source.h"
#include "tests/generator/random_map.h"
#include "tests/tuner/gpu_fixture.h"

namespace vitune::map_expressions_gpu_test {
namespace {

constexpr int kExpressions = 2000, kEach = 250, kPoints = 8;
constexpr std::string_view kLetters = "abc";

double step(std::string_view word, const double* v) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  if (word == "add") return v[0] + v[1];
  if (word == "sub") return v[0] - v[1];
  if (word == "mul") return v[0] * v[1];
  if (word == "div") return v[0] / v[1];
  if (word == "min") return std::min(v[0], v[1]);
  if (word == "max") return std::max(v[0], v[1]);
  if (word == "lt") return v[0] < v[1] ? 1 : 0;
  if (word == "where") return v[0] != 0 ? v[1] : v[2];
  if (word == "neg") return -v[0];
  if (word == "abs") return std::abs(v[0]);
  if (word == "exp") return std::exp(v[0]);
  if (word == "log") return std::log(v[0]);
  if (word == "sqrt") return std::sqrt(v[0]);
  if (word == "rsqrt") return 1 / std::sqrt(v[0]);
  if (word == "sin") return std::sin(v[0]);
  if (word == "cos") return std::cos(v[0]);
  if (word == "tanh") return std::tanh(v[0]);
  if (word == "sigmoid") return sigmoid(v[0]);
  if (word == "erf") return std::erf(v[0]);
  if (word == "relu") return std::max(v[0], 0.0);
  if (word == "gelu") return v[0] * 0.5 * std::erfc(-v[0] / std::sqrt(2.0));
  if (word == "gelu_tanh") {
    const double u = std::sqrt(2 / M_PI) * (v[0] + 0.044715 * v[0] * v[0] * v[0]);
    return 0.5 * v[0] * (1 + std::tanh(u));
  }
  if (word == "quick_gelu") return v[0] * sigmoid(1.702 * v[0]);
  if (word == "silu") return v[0] * sigmoid(v[0]);
  if (word == "hardswish") return v[0] * std::clamp(v[0] + 3, 0.0, 6.0) / 6;
  ADD_FAILURE() << "no word: " << word;
  return 0;
}

// Its value, and the largest number on the way: errors are relative to that.
struct Found {
  double value, largest;
};

Found evaluated(const Expression& expression, const float* letters) {
  std::vector<double> stack;
  double largest = 1;
  for (const ExpressionPart& part : expression.parts()) {
    if (part.kind == ExpressionPart::Kind::kLetter) {
      stack.push_back(letters[kLetters.find(part.letter)]);
    } else if (part.kind == ExpressionPart::Kind::kConstant) {
      stack.push_back(part.value);
    } else {
      const auto count = static_cast<std::size_t>(expression_arguments(part.word));
      const double value = step(expression_word(part.word), stack.data() + stack.size() - count);
      stack.resize(stack.size() - count);
      stack.push_back(value);
    }
    largest = std::max(largest, std::abs(stack.back()));
  }
  return {stack.back(), largest};
}

// One kernel: expression number blockIdx.x of point number threadIdx.x.
std::string kernel_of(const std::vector<Expression>& expressions) {
  std::string text =
      "#include \"map/words.cuh\"\n"
      "extern \"C\" __global__ void vitune_map_expressions(const float* from, float* to) {\n"
      "  using namespace vitune;\n"
      "  const float a = from[3 * threadIdx.x], b = from[3 * threadIdx.x + 1],\n"
      "              c = from[3 * threadIdx.x + 2];\n"
      "  float y = 0;\n  switch (blockIdx.x) {\n";
  for (std::size_t i = 0; i < expressions.size(); ++i) {
    const auto variable = [](char letter) { return std::string(1, letter); };
    text += formatted("    case {}: y = {}; break;\n", i,
                      map_expression_source(expressions[i], variable));
  }
  return text + formatted("  }}\n  to[{} * blockIdx.x + threadIdx.x] = y;\n}}\n", kPoints);
}

class MapExpressionsGpuTest : public GpuTest {};

TEST_F(MapExpressionsGpuTest, TwoThousandRandomOnesAreWhatFp64MakesOfThem) {
  testing_support::RandomMap maps(20261128);
  std::mt19937_64 random(60);
  const CudaContext context(driver_, 0);
  const CudaStream stream(*driver_);
  double worst = 0;
  for (int first = 0; first < kExpressions; first += kEach) {
    std::vector<Expression> expressions;
    for (int i = 0; i < kEach; ++i) {
      expressions.push_back(Expression::parse(maps.expression("abc", 1 + i % 24), kLetters, "x"));
    }
    std::vector<float> points(3 * kPoints), results(std::size_t{kEach} * kPoints);
    for (float& each : points) {
      each = static_cast<float>(std::normal_distribution<double>(0, 1.5)(random));
    }
    CompileRequest request;
    request.source = assemble(kernel_of(expressions));
    request.arch = device_.arch();
    request.entry = "vitune_map_expressions";
    const CompileResult compiled = compiler_->compile(request);
    ASSERT_EQ(compiled.status, CompileStatus::kOk) << compiled.log;
    const CudaModule module(*driver_, compiled.cubin);
    DeviceBuffer from(*driver_, points.size() * sizeof(float));
    const DeviceBuffer to(*driver_, results.size() * sizeof(float));
    from.upload(std::as_bytes(std::span(points)));
    const CuPointer pointers[] = {from.address(), to.address()};
    const void* const arguments[] = {&pointers[0], &pointers[1]};
    LaunchShape shape;
    shape.grid[0] = kEach;
    shape.block[0] = kPoints;
    module.kernel(request.entry).launch(shape, std::span(arguments), stream);
    stream.synchronize();
    to.download(std::as_writable_bytes(std::span(results)));
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Expression& expression = expressions[i / kPoints];
      const Found want = evaluated(expression, &points[3 * (i % kPoints)]);
      const double error = std::abs(results[i] - want.value) / want.largest;
      // A step is off by a few 2^-23; steps after it may make a few times as much of that.
      EXPECT_LT(error, 1e-5 * (1 + expression.steps())) << expression.text();
      worst = std::max(worst, error);
    }
  }
  RecordProperty("worst", std::to_string(worst));
}

}  // namespace
}  // namespace vitune::map_expressions_gpu_test
