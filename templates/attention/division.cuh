// templates/attention/division.cuh -- Quotients without dividing.
//
// A product with a rounded-up reciprocal, whose error does not reach the quotient (Granlund and
// Montgomery 1994, "Division by Invariant Integers using Multiplication"). The host works the
// reciprocals out (AttentionDivisor). A division would also need the unit of the exponentials.
#pragma once

#include "attention/params.cuh"
#include "primitives/types.cuh"

namespace vitune {

// n / by.value for n below 2^31.
__device__ __forceinline__ u32 quotient(u32 n, const AttentionDivisor& by) {
  return __umulhi(2 * n, by.multiplier) >> by.shift;
}
// n % by.value.
__device__ __forceinline__ u32 modulo(u32 n, const AttentionDivisor& by) {
  return n - quotient(n, by) * by.value;
}

}  // namespace vitune
