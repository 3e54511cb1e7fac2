// templates/reference/support_params.cuh -- What the support kernels are handed at launch.
//
// Plain C++: the bench worker fills these very structs and NVRTC reads them. Counts and strides are
// in elements unless they say otherwise.
#pragma once

namespace vitune {

// Element types as the support kernels number them.
enum SupportType : int {
  kSupportFp16 = 0,
  kSupportBf16 = 1,
  kSupportFp32 = 2,
  kSupportU8 = 3,
  kSupportBool = 4
};

// A view of four dimensions, outermost first; an extent is 1 where it broadcasts.
struct FillView {
  void* data;
  long long strides[4];
  long long extents[4];
};

// Normal values from a counter-based generator; a share of them becomes -inf, and a share of the
// runs of 64 neighbours in memory the most negative finite number of their type.
struct FillNormalParams {
  FillView target;
  unsigned long long seed;
  float mean, deviation;
  float unit;  // above 0: values are rounded to multiples of it
  float infinite_share, masked_share;
  int type;  // SupportType
};

// A bool mask: about every eighth row attends to nothing, the others to each key with probability
// `share`.
struct FillMaskParams {
  FillView target;
  unsigned long long seed;
  float share;
};

// The findings of a comparison of one output. All zero before the launch. Rows are counted over the
// first three dimensions.
struct Findings {
  double error_squares;      // sum of squared differences
  double reference_squares;  // sum of squared reference values
  // Largest absolute difference (fp32 bits) in the upper half, low bits of its row in the lower.
  unsigned long long worst;
  unsigned long long unwritten;   // elements that are still poison
  unsigned long long not_finite;  // elements that are NaN or infinite where the reference is finite
  unsigned long long not_infinite;  // fp32 elements that are not the infinity that they must be
  unsigned long long not_zero;      // elements other than 0 in rows that are empty
  unsigned int largest_reference;   // fp32 bits of the largest |reference|
  unsigned int reserved;
};

// Compares an output with the judge's and writes poison back over every element that was compared.
struct CompareParams {
  void* data;
  long long strides[4];
  long long extents[4];
  const float* want;   // of the judge, dense
  const float* empty;  // one word per row: -inf says that the row is empty; null: none is
  Findings* findings;
  int type;  // SupportType
};

// Adds an order-independent digest of `words` 64-bit words to *sum.
struct DigestParams {
  const unsigned long long* data;
  unsigned long long words;
  unsigned long long* sum;
};

// Adds the number of 64-bit words that are not all ones to *count.
struct DamageParams {
  const unsigned long long* data;
  unsigned long long words;
  unsigned long long* count;
};

// Reads `vectors` 16-byte vectors; writes to `sink` only if some thread's sum is `impossible`.
struct FlushParams {
  const void* data;
  unsigned long long vectors;
  unsigned int* sink;
  unsigned int impossible;
};

// Keeps every SM busy for about `cycles` clocks.
struct SpinParams {
  long long cycles;
  unsigned int* sink;
};

// A fixed chain of `steps` dependent multiply-adds per thread: its time follows the clock alone.
struct AnchorParams {
  int steps;
  float factor;
  float* sink;  // one word per CTA
};

// data[i] = i * factor for i < count.
struct ProbeParams {
  unsigned int* data;
  unsigned int count;
  unsigned int factor;
};

}  // namespace vitune
