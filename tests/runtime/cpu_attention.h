// tests/runtime/cpu_attention.h -- Attention by its formula on the CPU, and how far from it a
// kernel with 16-bit operands may be. No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "generator/attention/problem.h"

namespace vitune::test {

// The value of one stored element; of a bool, whether it is nonzero.
inline double decode(ElementType type, const std::byte* at) {
  if (type == ElementType::kBool) return *at == std::byte{0} ? 0 : 1;
  if (type == ElementType::kFp32) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  if (type == ElementType::kBf16) return std::bit_cast<float>(std::uint32_t{bits} << 16);
  const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  return exponent == 0 ? sign * std::ldexp(fraction, -24)
                       : sign * std::ldexp(1024 + fraction, exponent - 25);
}

// Largest relative error of rounding to a 16-bit type.
inline double unit_roundoff(ElementType type) {
  return type == ElementType::kBf16 ? 0x1p-8 : 0x1p-11;
}

// One random element: of a bool, true three times in four; of the others, 1/16 to 2 with any sign,
// every bit of it random.
inline void put_random(ElementType type, std::mt19937_64& random, std::byte* at) {
  const std::uint64_t bits = random();
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 1);
  const std::uint32_t octave = static_cast<std::uint32_t>((bits >> 8) % 5);  // 2^-4 to 2^0
  const std::uint32_t fraction = static_cast<std::uint32_t>(bits >> 32);
  std::uint16_t half = 0;
  switch (type) {
    case ElementType::kU8:
      *at = static_cast<std::byte>(bits >> 8);
      return;
    case ElementType::kBool:
      *at = static_cast<std::byte>(bits % 4 == 0 ? 0 : 1 + (bits >> 8) % 255);
      return;
    case ElementType::kI32:  // no operator draws offsets this way
      std::memset(at, 0, sizeof(std::int32_t));
      return;
    case ElementType::kFp32: {
      const std::uint32_t word = sign << 31 | (123 + octave) << 23 | (fraction & 0x7fffff);
      std::memcpy(at, &word, sizeof(word));
      return;
    }
    case ElementType::kBf16:
      half = static_cast<std::uint16_t>(sign << 15 | (123 + octave) << 7 | (fraction & 127));
      break;
    case ElementType::kFp16:
      half = static_cast<std::uint16_t>(sign << 15 | (11 + octave) << 10 | (fraction & 1023));
      break;
  }
  std::memcpy(at, &half, sizeof(half));
}

inline std::vector<std::byte> random_elements(ElementType type, std::int64_t count,
                                              std::mt19937_64& random) {
  const std::int64_t size = element_bytes(type);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * size));
  for (std::int64_t i = 0; i < count; ++i) put_random(type, random, bytes.data() + i * size);
  return bytes;
}

// A problem with its inputs.
struct CpuAttention {
  AttentionProblem problem;
  std::vector<std::byte> q, k, v, bias, mask;

  CpuAttention(const AttentionProblem& asked, std::uint64_t seed) : problem(asked) {
    std::mt19937_64 random(seed);
    q = random_elements(asked.dtype, asked.q_extent(), random);
    k = random_elements(asked.dtype, asked.k_extent(), random);
    v = random_elements(asked.dtype, asked.v_extent(), random);
    if (asked.bias) bias = random_elements(asked.bias->type, asked.bias_extent(), random);
    if (!asked.mask) return;
    mask = random_elements(ElementType::kBool, asked.mask_extent(), random);
    // The first row of a mask with contiguous keys has nothing to attend to.
    const auto keys = static_cast<std::size_t>(asked.nk);
    if (asked.mask->strides[3] == 1) std::fill_n(mask.begin(), keys, std::byte{0});
  }

  // One row of the answer, by the formula in fp64.
  struct Row {
    std::vector<double> out;
    // How far each element may be off. A kernel rounds the weights and the result to 16 bits: the
    // first adds unit_roundoff * sum(weight * |v|) at most, the second unit_roundoff * |out|, which
    // is no more. A weight below the normal fp16 numbers loses 2^-25 of the largest one instead.
    std::vector<double> bound;
    double lse = 0;
  };

  Row row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    const AttentionProblem& p = problem;
    const std::vector<double> scores = scores_of(b, h, i);
    const double top = *std::max_element(scores.begin(), scores.end());
    Row row{std::vector<double>(static_cast<std::size_t>(p.d)),
            std::vector<double>(static_cast<std::size_t>(p.d)),
            -std::numeric_limits<double>::infinity()};
    if (std::isinf(top)) return row;
    double sum = 0;
    for (std::int64_t j = 0; j < p.nk; ++j) {
      const double weight = std::exp(scores[static_cast<std::size_t>(j)] - top);
      if (weight == 0) continue;
      sum += weight;
      for (std::int64_t e = 0; e < p.d; ++e) {
        const double value = weight * at(v, p.v, b, h / (p.heads / p.kv_heads), j, e);
        row.out[static_cast<std::size_t>(e)] += value;
        row.bound[static_cast<std::size_t>(e)] += std::abs(value) + 0x1p-13;
      }
    }
    for (double& value : row.out) value /= sum;
    for (double& bound : row.bound) bound *= 2 * unit_roundoff(p.dtype) / sum;
    row.lse = top + std::log(sum);
    return row;
  }

 private:
  double at(const std::vector<std::byte>& tensor, const TensorStrides& strides, std::int64_t b,
            std::int64_t h, std::int64_t i, std::int64_t e) const {
    const std::int64_t index = b * strides.batch + h * strides.head + i * strides.row + e;
    return decode(problem.dtype, tensor.data() + index * element_bytes(problem.dtype));
  }
  static double at(const std::vector<std::byte>& tensor, const ScoreOperand& operand,
                   std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    const auto& s = operand.strides;
    const std::int64_t index = (b % operand.batches) * s[0] + h * s[1] + i * s[2] + j * s[3];
    return decode(operand.type, tensor.data() + index * element_bytes(operand.type));
  }

  // -inf for a key that may not be attended to.
  std::vector<double> scores_of(std::int64_t b, std::int64_t h, std::int64_t i) const {
    const AttentionProblem& p = problem;
    const std::int64_t kv_head = h / (p.heads / p.kv_heads);
    std::vector<double> scores(static_cast<std::size_t>(p.nk),
                               -std::numeric_limits<double>::infinity());
    const std::int64_t keys = p.causal ? std::min(p.nk, i + 1) : p.nk;
    for (std::int64_t j = 0; j < keys; ++j) {
      if (p.mask && at(mask, *p.mask, b, h, i, j) == 0) continue;
      double score = 0;
      for (std::int64_t e = 0; e < p.d; ++e) {
        score += at(q, p.q, b, h, i, e) * at(k, p.k, b, kv_head, j, e);
      }
      score *= p.scale;
      if (p.bias) score += at(bias, *p.bias, b, h, i, j);
      scores[static_cast<std::size_t>(j)] = score;
    }
    return scores;
  }
};

}  // namespace vitune::test
