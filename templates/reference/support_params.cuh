// templates/reference/support_params.cuh -- What the support kernels are handed at launch.
//
// Plain C++: the bench worker fills these very structs and NVRTC reads them. attention/params.cuh
// comes first; it is not named here because host and device find it by different paths. Counts and
// strides are in elements unless they say otherwise.
#pragma once

namespace vitune {

// Element types as the support kernels number them.
enum SupportType : int { kSupportFp16 = 0, kSupportBf16 = 1, kSupportFp32 = 2 };

// The elements of a [batch, head, row, column] view; an extent is 1 where the view broadcasts.
// view.batches is not used here: extents[0] is the number of entries.
struct FillView {
  void* data;
  AttentionScoreView view;
  long long extents[4];
};

// Normal values from a counter-based generator; a share of them becomes -inf, and a share of the
// runs of 64 neighbours in memory the most negative finite number of their type.
struct FillNormalParams {
  FillView target;
  unsigned long long seed;
  float mean, deviation;
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

// The judge and the yardstick. The judge writes `out` [batch, heads, queries, head_size] and `lse`
// [batch, heads, queries], dense fp32; the yardstick writes call.o and call.lse like any kernel.
struct ReferenceParams {
  AttentionParams call;
  double scale;  // of the scores, unrounded
  float* out;
  float* lse;
  int head_size;
  int element;  // SupportType of q, k, v and o
  int bias;     // SupportType of the bias
  int causal;
};

// What comparing one output found. All zero before the launch.
struct Findings {
  double error_squares;      // sum of squared differences
  double reference_squares;  // sum of squared reference values
  // Largest absolute difference (fp32 bits) in the upper half, low bits of its row in the lower.
  unsigned long long worst;
  unsigned long long unwritten;   // elements that are still poison
  unsigned long long not_finite;  // elements that are NaN or infinite where the reference is finite
  unsigned long long not_zero;    // elements other than 0 in rows without any key
  unsigned long long lse_wrong;   // NaN, or -inf where the reference is not, or the other way round
  unsigned int largest_reference;  // fp32 bits of the largest |reference|
  unsigned int lse_error;          // fp32 bits of the largest difference of finite values
  unsigned int largest_lse;        // fp32 bits of the largest |reference|
  unsigned int reserved;
};

// Compares an output with the judge's and writes poison back over every element that was compared.
struct CompareParams {
  unsigned short* o;
  AttentionView view;
  const float* out;  // of the judge
  const float* lse;  // of the judge
  float* got_lse;    // null if the problem has none
  Findings* findings;
  long long batch, heads, queries;
  int head_size;
  int element;  // SupportType
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
