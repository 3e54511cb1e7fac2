// examples/reference.h -- One value of attention on the CPU, to compare the GPU's with. C99, C++.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_EXAMPLES_REFERENCE_H_
#define VITUNE_EXAMPLES_REFERENCE_H_

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "gpu.h"

// Fills with multiples of 1/32 from -1 to 1, which bf16 holds exactly; the same every time.
static inline void fill_bf16(uint16_t* values, size_t count) {
  uint32_t state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    values[i] = bf16_of((float)((int)((state >> 16) % 65) - 32) / 32.0f);
  }
}

// out[b, i, h, c] of a [batch, n, 3, heads, d] tensor of q, k and v, by the formula.
static inline double attention_value(const uint16_t* qkv, int64_t n, int64_t heads, int64_t d,
                                     int64_t b, int64_t i, int64_t h, int64_t c) {
  const int64_t row = 3 * heads * d;
  const uint16_t* q = qkv + b * n * row + i * row + h * d;
  const uint16_t* k = qkv + b * n * row + heads * d + h * d;
  const uint16_t* v = k + heads * d;
  double weights = 0, sum = 0;
  for (int64_t j = 0; j < n; ++j) {
    double score = 0;
    for (int64_t e = 0; e < d; ++e) score += (double)float_of(q[e]) * float_of(k[j * row + e]);
    const double weight = exp(score / sqrt((double)d));
    weights += weight;
    sum += weight * float_of(v[j * row + c]);
  }
  return sum / weights;
}

#endif  // VITUNE_EXAMPLES_REFERENCE_H_
