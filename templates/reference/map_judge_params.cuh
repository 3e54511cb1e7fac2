// templates/reference/map_judge_params.cuh -- What the judge and the yardstick of maps are handed.
//
// Plain C++: the host fills this very struct and NVRTC reads it. map/params.cuh comes first; it is
// not named here because host and device find it by different paths.
#pragma once

namespace vitune {

// The words of expressions.
enum MapWord : int {
  kMapAdd,
  kMapSub,
  kMapMul,
  kMapDiv,
  kMapMin,
  kMapMax,
  kMapLt,
  kMapWhere,
  kMapNeg,
  kMapAbs,
  kMapExp,
  kMapLog,
  kMapSqrt,
  kMapRsqrt,
  kMapSin,
  kMapCos,
  kMapTanh,
  kMapSigmoid,
  kMapErf,
  kMapRelu,
  kMapGelu,
  kMapGeluTanh,
  kMapQuickGelu,
  kMapSilu,
  kMapHardswish,
  kMapWords
};

// An expression, arguments before their word. A code is a word, kLetter + the place of an operand
// (or of what was reduced), or kConstant + the place of a constant.
struct MapProgram {
  enum { kLetter = 64, kConstant = 128, kMostParts = 100 };
  unsigned char codes[kMostParts];
  int parts;
};

// How a step's result is rounded.
enum MapRounding : int { kMapExact, kMapFp32, kMapBf16, kMapFp16 };

// The judge writes its answer dense, in fp32; the yardstick writes call's out like any kernel.
struct MapJudgeParams {
  enum { kMostRank = 9, kMostConstants = 64 };
  MapParams call;
  float* answer;
  unsigned extents[kMostRank];                            // of the result, then the reduced ones
  unsigned strides[MapParams::kOperands + 1][kMostRank];  // of a to h, then out
  signed char types[MapParams::kOperands + 1];            // SupportType; -1: not given
  int rank, results;                                      // dimensions, and those of the result
  int reduction;                                          // MapReduction
  int rounding;                                           // of the yardstick's steps: MapRounding
  float constants[kMostConstants];                        // of x and y, each once
  MapProgram x, y;
};

}  // namespace vitune
