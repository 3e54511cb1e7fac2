// templates/reference/map_entries.cuh -- The judge of every map, and its yardstick.
//
// Both walk through the expression, part by part, for each element: nothing here is generated, and
// the walk is one function for all callers, or it would take half a minute to compile. In fp64 it
// is the judge; with each step rounded it is the yardstick, a model that writes every step's result
// to memory. An element that fp32 cannot hold on the way is what fp32 makes of it.
#pragma once

#include "map/params.cuh"
#include "reference/map_judge_params.cuh"
#include "reference/numbers.cuh"

namespace vitune {

__device__ inline bool map_is_number(double x) { return x - x == 0; }

// To `bits` of significand, whatever the exponent.
__device__ inline double map_cut(double x, RefU32 bits) {
  const RefU32 unit = 1u << (24 - bits), word = __float_as_uint(float(x));
  if ((word & 0x7f800000u) == 0x7f800000u) return x;
  return __uint_as_float((word + unit / 2 - 1 + (word / unit & 1)) & ~(unit - 1));
}

__device__ inline double map_rounded(double x, int rounding) {
  if (rounding == kMapExact) return x;
  if (rounding == kMapFp32) return float(x);
  return map_cut(x, rounding == kMapBf16 ? 8 : 11);
}

__device__ inline double map_sigmoid_of(double x) { return 1 / (1 + exp(-x)); }

__device__ __attribute__((noinline)) double map_one(int word, double a) {
  switch (word) {
    case kMapNeg:
      return -a;
    case kMapAbs:
      return fabs(a);
    case kMapExp:
      return exp(a);
    case kMapLog:
      return log(a);
    case kMapSqrt:
      return sqrt(a);
    case kMapRsqrt:
      return 1 / sqrt(a);
    case kMapSin:
      return sin(a);
    case kMapCos:
      return cos(a);
    case kMapTanh:
      return tanh(a);
    case kMapSigmoid:
      return map_sigmoid_of(a);
    case kMapErf:
      return erf(a);
    case kMapRelu:
      return a < 0 ? 0 : a;
    case kMapGelu:
      return 0.5 * a * erfc(a * -0.70710678118654752440);
    case kMapGeluTanh:
      return 0.5 * a * (1 + tanh(0.79788456080286535588 * (a + 0.044715 * a * a * a)));
    case kMapQuickGelu:
      return a * map_sigmoid_of(1.702 * a);
    case kMapSilu:
      return a * map_sigmoid_of(a);
    default:
      return a * fmin(fmax(a + 3, 0.0), 6.0) / 6;  // hardswish; of NaN it is NaN
  }
}

__device__ inline double map_two(int word, double a, double b) {
  const bool is_none = a != a || b != b;
  switch (word) {
    case kMapAdd:
      return a + b;
    case kMapSub:
      return a - b;
    case kMapMul:
      return a * b;
    case kMapDiv:
      return a / b;
    case kMapMin:
      return is_none ? a + b : fmin(a, b);
    case kMapMax:
      return is_none ? a + b : fmax(a, b);
    default:
      return a < b ? 1 : 0;
  }
}

// `letters`: the operands a to h, or what was reduced.
__device__ __attribute__((noinline)) double map_value(const MapJudgeParams& p,
                                                      const MapProgram& program,
                                                      const double* letters, int rounding) {
  double stack[MapProgram::kMostParts];
  int top = 0;
#pragma unroll 1
  for (int part = 0; part < program.parts; ++part) {
    const int code = program.codes[part];
    if (code >= MapProgram::kConstant) {
      stack[top++] = p.constants[code - MapProgram::kConstant];
    } else if (code >= MapProgram::kLetter) {
      stack[top++] = letters[code - MapProgram::kLetter];
    } else if (code == kMapWhere) {
      top -= 2;
      stack[top - 1] = stack[top - 1] != 0 ? stack[top] : stack[top + 1];
    } else if (code <= kMapLt) {
      top -= 1;
      stack[top - 1] = map_rounded(map_two(code, stack[top - 1], stack[top]), rounding);
    } else {
      stack[top - 1] = map_rounded(map_one(code, stack[top - 1]), rounding);
    }
  }
  return stack[0];
}

// Element number `index` along dimensions `first` to `last` adds to the offsets of all tensors.
__device__ __attribute__((noinline)) void map_offsets(const MapJudgeParams& p, long long index,
                                                      int first, int last,
                                                      long long (&at)[MapParams::kOperands + 1]) {
  for (int i = last - 1; i >= first; --i) {
    const long long extent = p.extents[i], entry = index % extent;
    index /= extent;
#pragma unroll 1
    for (int k = 0; k <= MapParams::kOperands; ++k) at[k] += entry * (long long)(p.strides[k][i]);
  }
}

struct MapPlace {
  long long at[MapParams::kOperands + 1];
};

__device__ __attribute__((noinline)) double map_x(const MapJudgeParams& p, const MapPlace& place,
                                                  int rounding) {
  double letters[MapParams::kOperands];
#pragma unroll 1
  for (int k = 0; k < MapParams::kOperands; ++k) {
    letters[k] = p.types[k] < 0 ? 0 : element_value(p.call.in[k], place.at[k], p.types[k]);
  }
  return map_value(p, p.x, letters, rounding);
}

__device__ inline double map_y(const MapJudgeParams& p, double reduced, int rounding) {
  return map_value(p, p.y, &reduced, rounding);
}

// The answer in fp64, or with rounded steps; of an element that fp32 has no number for, fp32's.
struct MapBoth {
  double exact, in_fp32, rounded;
};

// How a value is written: the judge's answer, or a result.
template <bool kJudge>
__device__ inline void map_write(const MapJudgeParams& p, long long index, long long at,
                                 const MapBoth& value) {
  constexpr int kOut = MapParams::kOperands;
  const int type = p.types[kOut];
  const double exact = map_is_number(value.in_fp32) ? value.exact : value.in_fp32;
  // Beyond fp16 it is infinite.
  const float answer =
      type == kSupportFp32 ? float(exact) : value16(bits16(float(exact), type), type);
  if (kJudge) {
    p.answer[index] = map_is_number(answer) ? float(exact) : answer;
    return;
  }
  double y = value.rounded;
  if (!map_is_number(answer)) {
    y = answer;
  } else if (type != kSupportFp32) {
    const double most = -double(lowest_value(type));
    y = fmin(fmax(y, -most), most);
  }
  if (type == kSupportFp32) {
    static_cast<float*>(p.call.out)[at] = float(y);
  } else {
    static_cast<RefU16*>(p.call.out)[at] = bits16(float(y), type);
  }
}

__device__ inline MapPlace map_place(const MapJudgeParams& p, long long result, long long reduced) {
  MapPlace place = {};
  map_offsets(p, result, 0, p.results, place.at);
  map_offsets(p, reduced, p.results, p.rank, place.at);
  return place;
}

// A warp's sum, or the largest.
__device__ inline double map_over_warp(double value, bool is_most) {
  for (int mask = 16; mask > 0; mask /= 2) {
    const double other = __shfl_xor_sync(0xffffffffu, value, mask);
    value = is_most ? map_two(kMapMax, value, other) : value + other;
  }
  return value;
}

// A reduced row: the sum (for a softmax that of the exponentials) and the largest element.
struct MapReduced {
  double sum, most;
};

__device__ __attribute__((noinline)) MapReduced map_reduced(const MapJudgeParams& p,
                                                            long long result, long long count,
                                                            int rounding) {
  const int lane = threadIdx.x % 32;
  MapReduced row = {0, reference_minus_infinity()};
  for (long long r = lane; r < count; r += 32) {
    const double x = map_x(p, map_place(p, result, r), rounding);
    row.sum += x;
    row.most = map_two(kMapMax, row.most, x);
  }
  row.most = map_over_warp(row.most, true);
  if (p.reduction == kMapSoftmax) {
    row.sum = 0;
    for (long long r = lane; r < count; r += 32) {
      row.sum += exp(map_x(p, map_place(p, result, r), rounding) - row.most);
    }
  }
  row.sum = map_rounded(map_over_warp(row.sum, false), rounding);
  return row;
}

// The argument of y: a row's result, or element `r` of a softmax.
__device__ inline double map_r(const MapJudgeParams& p, const MapReduced& row, long long result,
                               long long r, long long count, int rounding) {
  if (p.reduction == kMapMost) return row.most;
  if (p.reduction == kMapMean) return map_rounded(row.sum / double(count), rounding);
  if (p.reduction == kMapSum) return row.sum;
  const double x = map_x(p, map_place(p, result, r), rounding);
  return map_rounded(exp(x - row.most) / row.sum, rounding);
}

template <bool kJudge>
__device__ inline void map_row(const MapJudgeParams& p, long long result, long long count) {
  constexpr int kOut = MapParams::kOperands;
  const MapReduced exact = map_reduced(p, result, count, kMapExact);
  const MapReduced in_fp32 = map_reduced(p, result, count, kMapFp32);
  const MapReduced rounded = map_reduced(p, result, count, p.rounding);
  const bool is_softmax = p.reduction == kMapSoftmax;
  for (long long r = threadIdx.x % 32; r < (is_softmax ? count : 1); r += 32) {
    const MapBoth value = {map_y(p, map_r(p, exact, result, r, count, kMapExact), kMapExact),
                           map_y(p, map_r(p, in_fp32, result, r, count, kMapFp32), kMapFp32),
                           map_y(p, map_r(p, rounded, result, r, count, p.rounding), p.rounding)};
    map_write<kJudge>(p, is_softmax ? result * count + r : result,
                      map_place(p, result, is_softmax ? r : 0).at[kOut], value);
  }
}

template <bool kJudge>
__device__ inline void map_judge(const MapJudgeParams& p) {
  constexpr int kOut = MapParams::kOperands;
  long long count = 1;
  for (int i = p.results; i < p.rank; ++i) count *= p.extents[i];
  const long long results = p.call.results;
  if (p.reduction != kMapNone) {
    for (long long row = global_thread() / 32; row < results; row += global_threads() / 32) {
      map_row<kJudge>(p, row, count);
    }
    return;
  }
  for (long long i = global_thread(); i < results; i += global_threads()) {
    const MapPlace place = map_place(p, i, 0);
    map_write<kJudge>(
        p, i, place.at[kOut],
        {map_x(p, place, kMapExact), map_x(p, place, kMapFp32), map_x(p, place, p.rounding)});
  }
}

}  // namespace vitune

extern "C" __global__ void __launch_bounds__(256)
    vitune_map_reference(const __grid_constant__ vitune::MapJudgeParams params) {
  vitune::map_judge<true>(params);
}

extern "C" __global__ void __launch_bounds__(256)
    vitune_map_plain(const __grid_constant__ vitune::MapJudgeParams params) {
  vitune::map_judge<false>(params);
}
