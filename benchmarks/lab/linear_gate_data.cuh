// benchmarks/lab/linear_gate_data.cuh -- Inputs of the linear gate, a reference, comparisons.
//
// Three sets of inputs: random numbers; small integers, of which every sum is exact, so that
// answers are right to the bit; and one-hot rows that bring every bfloat16 of [-8, 8] to the
// activation. The reference is in double precision.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "benchmarks/lab/linear/sm90_params.cuh"

namespace gate {

using vitune::LinearColumns;
using vitune::LinearMoments;
using vitune::LinearRow;
using u16 = unsigned short;

enum class Inputs { kRandom, kIntegers, kGrid };
inline constexpr int kGuard = 256;  // rows, or columns, of NaN behind every input

struct Epilogue {
  int norm, activation, scale, residual, moments;
};

// All of a problem's tensors: x [m, k], w [n, k], y and residual [m, n].
struct Tensors {
  u16 *x, *w, *residual, *y;
  LinearColumns* columns;
  LinearRow* rows;
  LinearMoments* moments;
  double* reference;
};

struct Shape {
  int m, n, k;
};

// What a comparison found; all zeros at first.
struct Found {
  double error, norm;              // sums of squares
  unsigned long long largest;      // error, bits of a double
  unsigned long long not_finite;   // elements
  unsigned long long not_bitwise;  // elements that are not the rounded reference
  unsigned long long off_grid;     // of the grid: elements more than a unit in the last place off
  unsigned long long bad_moments;
};

__host__ __device__ inline unsigned hashed(unsigned x) {
  x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
  return x ^ x >> 16;
}
__device__ inline float uniform(unsigned i, unsigned seed) {
  return (float(hashed(i * 2654435761u + seed)) + 0.5f) * 2.3283064e-10f;
}
__device__ inline float normal(unsigned i, unsigned seed) {
  return sqrtf(-2.f * logf(uniform(i, seed))) * cospif(2.f * uniform(i, seed ^ 0x9e3779b9u));
}
__device__ inline int integer(unsigned i, unsigned seed, int most) {
  return int(hashed(i * 2654435761u + seed) % unsigned(2 * most + 1)) - most;
}
__device__ inline u16 to_bf16(float value) {
  const unsigned bits = __float_as_uint(value);
  return u16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
__device__ inline double from_bf16(u16 bits) { return __uint_as_float(unsigned(bits) << 16); }
// Numbers from -8 to 8 in bfloat16: bits 0 .. 0x4100 and the same with a sign.
inline constexpr unsigned kGridHalf = 0x4101;
__device__ inline u16 grid_value(unsigned i) {
  i %= 2 * kGridHalf;
  return u16(i < kGridHalf ? i : i - kGridHalf + 0x8000);
}

#define GATE_FOR_EACH(i, count)                                               \
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < (count); \
       i += size_t(gridDim.x) * blockDim.x)

// A matrix of `columns` columns with NaN behind its last row; `spread` is the random numbers'
// standard deviation.
__global__ void fill_matrix(u16* data, int rows, int columns, Inputs inputs, bool weights,
                            float spread, unsigned seed) {
  GATE_FOR_EACH(i, size_t(rows + kGuard) * columns) {
    const unsigned row = i / columns, column = i % columns;
    if (row >= unsigned(rows)) {
      data[i] = 0x7fff;
    } else if (inputs == Inputs::kRandom) {
      const float shift = weights ? 0.f : normal(row, seed ^ 77u);  // rows have means
      data[i] = to_bf16(spread * (normal(unsigned(i), seed) + shift));
    } else if (inputs == Inputs::kIntegers) {
      data[i] = to_bf16(float(integer(unsigned(i), seed, 2)));
    } else {
      data[i] = weights ? grid_value(unsigned(i)) : u16(column == row % columns ? 0x3f80 : 0);
    }
  }
}

__global__ void fill_columns(LinearColumns* columns, const u16* w, Shape s, Epilogue e,
                             Inputs inputs, unsigned seed) {
  GATE_FOR_EACH(n, size_t(s.n + kGuard)) {
    float factor = __uint_as_float(0x7fffffff), addend = factor;
    if (n < size_t(s.n)) {
      double sum = 0;
      for (int k = 0; k < s.k; ++k) sum += from_bf16(w[n * s.k + k]);
      factor = e.norm ? float(sum) : e.scale ? 0.1f + uniform(unsigned(n), seed) : 1.f;
      addend = 0.5f * normal(unsigned(n), seed ^ 5u);
      if (inputs == Inputs::kIntegers) {
        factor = e.norm    ? float(integer(unsigned(n), seed, 3))
                 : e.scale ? ldexpf(1.f, integer(unsigned(n), seed, 1))
                           : 1.f;
        addend = float(integer(unsigned(n), seed ^ 5u, 8));
      }
      if (inputs == Inputs::kGrid) addend = 0.f;
    }
    columns[n / 2].factor[n % 2] = factor;
    columns[n / 2].addend[n % 2] = addend;
  }
}

// LayerNorm's statistics of rows of x.
__global__ void fill_rows(LinearRow* rows, const u16* x, Shape s, Inputs inputs, unsigned seed) {
  GATE_FOR_EACH(m, size_t(s.m + kGuard)) {
    const float nan = __uint_as_float(0x7fffffff);
    rows[m] = {nan, nan};
    if (m >= size_t(s.m)) continue;
    double sum = 0, squares = 0;
    for (int k = 0; k < s.k; ++k) sum += from_bf16(x[m * s.k + k]);
    const double mean = sum / s.k;
    for (int k = 0; k < s.k; ++k)
      squares += (from_bf16(x[m * s.k + k]) - mean) * (from_bf16(x[m * s.k + k]) - mean);
    const double rstd = 1 / sqrt(squares / s.k + 1e-6);
    rows[m] = {float(rstd), float(mean * rstd)};
    if (inputs == Inputs::kIntegers) rows[m] = {0.5f, 0.5f * integer(unsigned(m), seed, 4)};
    if (inputs == Inputs::kGrid) rows[m] = {1.f, 0.f};
  }
}

// 64 x 64 elements of y per CTA of 256 threads, in double precision.
__global__ void reference(Tensors t, Shape s, Epilogue e) {
  __shared__ float xs[16][65], ws[16][65];
  const int row0 = int(blockIdx.y) * 64, column0 = int(blockIdx.x) * 64;
  const int ty = int(threadIdx.x) / 16, tx = int(threadIdx.x) % 16;
  double sums[4][4] = {};
  for (int k0 = 0; k0 < s.k; k0 += 16) {
    for (int i = int(threadIdx.x); i < 64 * 16; i += 256) {
      const int r = i / 16, k = i % 16;
      const bool in_k = k0 + k < s.k;
      xs[k][r] =
          in_k && row0 + r < s.m ? float(from_bf16(t.x[size_t(row0 + r) * s.k + k0 + k])) : 0.f;
      ws[k][r] = in_k && column0 + r < s.n
                     ? float(from_bf16(t.w[size_t(column0 + r) * s.k + k0 + k]))
                     : 0.f;
    }
    __syncthreads();
    for (int k = 0; k < 16; ++k) {
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j)
          sums[i][j] += double(xs[k][ty * 4 + i]) * double(ws[k][tx * 4 + j]);
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const int m = row0 + ty * 4 + i, n = column0 + tx * 4 + j;
      if (m >= s.m || n >= s.n) continue;
      const double factor = t.columns[n / 2].factor[n % 2], addend = t.columns[n / 2].addend[n % 2];
      double value = sums[i][j] + addend;
      if (e.norm)
        value = double(t.rows[m].rstd) * sums[i][j] - double(t.rows[m].mean_rstd) * factor + addend;
      if (e.scale) value = factor * sums[i][j] + addend;
      if (e.activation) value = 0.5 * value * erfc(-value * 0.70710678118654752440);
      if (e.residual) value += from_bf16(t.residual[size_t(m) * s.n + n]);
      t.reference[size_t(m) * s.n + n] = value;
    }
  }
}

__device__ inline int ordered(u16 bits) { return bits & 0x8000 ? -int(bits & 0x7fff) : int(bits); }

// y beside the reference; with `grid`, element [m, n] is the activation of w[n, m % k].
__global__ void compare(Tensors t, Shape s, bool grid, Found* found) {
  double error = 0, norm = 0, largest = 0;
  unsigned long long not_finite = 0, not_bitwise = 0, off_grid = 0;
  GATE_FOR_EACH(i, size_t(s.m) * s.n) {
    const double y = from_bf16(t.y[i]), reference = t.reference[i];
    if (!isfinite(y)) {
      ++not_finite;
      continue;
    }
    error += (y - reference) * (y - reference);
    norm += reference * reference;
    largest = fmax(largest, fabs(y - reference));
    const u16 rounded = to_bf16(float(reference));
    not_bitwise += t.y[i] != rounded && (t.y[i] & 0x7fff) + (rounded & 0x7fff) != 0;
    if (grid) {
      const double input = from_bf16(t.w[i % s.n * s.k + i / s.n % s.k]);
      off_grid +=
          input < -5 ? fabs(y - reference) > 2.5e-6 : abs(ordered(t.y[i]) - ordered(rounded)) > 1;
    }
  }
  atomicAdd(&found->error, error);
  atomicAdd(&found->norm, norm);
  atomicMax(&found->largest, static_cast<unsigned long long>(__double_as_longlong(largest)));
  if (not_finite) atomicAdd(&found->not_finite, not_finite);
  if (not_bitwise) atomicAdd(&found->not_bitwise, not_bitwise);
  if (off_grid) atomicAdd(&found->off_grid, off_grid);
}

// Moments beside those of y as it was written.
__global__ void compare_moments(Tensors t, Shape s, int block_n, Found* found) {
  const int tiles = (s.n + block_n - 1) / block_n;
  GATE_FOR_EACH(i, size_t(s.m) * tiles) {
    const size_t m = i / tiles;
    const int n0 = int(i % tiles) * block_n, count = min(block_n, s.n - n0);
    double sum = 0, squares = 0;
    for (int n = 0; n < count; ++n) sum += from_bf16(t.y[m * s.n + n0 + n]);
    const double mean = sum / count;
    for (int n = 0; n < count; ++n) squares += pow(from_bf16(t.y[m * s.n + n0 + n]) - mean, 2);
    const double deviation = sqrt(squares / count);
    const bool good = fabs(t.moments[i].mean - mean) <= 1e-5 * (fabs(mean) + deviation) + 1e-30 &&
                      fabs(t.moments[i].m2 - squares) <= 1e-4 * squares + 1e-30;
    if (!good) atomicAdd(&found->bad_moments, 1ull);
  }
}

__global__ void count_differences(const unsigned* a, const unsigned* b, size_t words,
                                  Found* found) {
  unsigned long long count = 0;
  GATE_FOR_EACH(i, words) count += a[i] != b[i];
  if (count) atomicAdd(&found->not_bitwise, count);
}

}  // namespace gate
