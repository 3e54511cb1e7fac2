// runtime/api/footprint.cpp -- Ranges of bytes and how they interleave.
#include "runtime/api/footprint.h"

namespace vitune {
namespace {

struct Dimensions {
  std::array<std::int64_t, 3> extents;  // batch, heads, rows
  std::array<std::int64_t, 3> strides;  // bytes
};

Dimensions dimensions(const AttentionProblem& p, const TensorStrides& s, std::int64_t heads,
                      std::int64_t rows) {
  const std::int64_t size = element_bytes(p.dtype);
  return {{p.batch, heads, rows}, {s.batch * size, s.head * size, s.row * size}};
}

// Bytes in a row that a tensor touches modulo `modulus`; at least `modulus` if it touches all.
std::int64_t bytes_modulo(const Dimensions& tensor, std::int64_t row_bytes, std::int64_t modulus) {
  std::int64_t bytes = row_bytes;
  for (std::size_t i = 0; i < tensor.extents.size(); ++i) {
    if (tensor.strides[i] % modulus != 0) bytes += (tensor.extents[i] - 1) * tensor.strides[i];
  }
  return bytes;
}

Footprint::Lanes lanes_of(const Dimensions& input, const Dimensions& output,
                          std::int64_t row_bytes) {
  Footprint::Lanes lanes;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const std::int64_t modulus = input.strides[i];
    if (modulus <= 0 || modulus != output.strides[i]) continue;
    const std::int64_t in = bytes_modulo(input, row_bytes, modulus);
    const std::int64_t out = bytes_modulo(output, row_bytes, modulus);
    if (in + out <= modulus) lanes[i] = {modulus, in, out};
  }
  return lanes;
}

// Differences wrap around as unsigned numbers do, so no pair of addresses overflows.
bool ranges_meet(std::uintptr_t a, std::int64_t a_bytes, std::uintptr_t b,
                 std::int64_t b_bytes) noexcept {
  if (a_bytes == 0 || b_bytes == 0) return false;
  return b - a < static_cast<std::uintptr_t>(a_bytes) ||
         a - b < static_cast<std::uintptr_t>(b_bytes);
}

bool lanes_apart(const Footprint::Lanes& lanes, std::uintptr_t input,
                 std::uintptr_t output) noexcept {
  for (const Footprint::Lane& lane : lanes) {
    if (lane.modulus == 0) continue;
    // Signed, so that an output before its input gives the distance to the next step.
    const std::int64_t step = static_cast<std::int64_t>(output - input) % lane.modulus;
    const std::int64_t after = step < 0 ? step + lane.modulus : step;
    if (after >= lane.input && lane.modulus - after >= lane.output) return true;
  }
  return false;
}

bool shares(std::uintptr_t input, std::int64_t input_bytes, const Footprint::Lanes& lanes,
            std::uintptr_t output, std::int64_t output_bytes) noexcept {
  return ranges_meet(input, input_bytes, output, output_bytes) &&
         !lanes_apart(lanes, input, output);
}

}  // namespace

Footprint footprint_of(const AttentionProblem& p) {
  const std::int64_t size = element_bytes(p.dtype);
  Footprint result;
  result.q = p.q_extent() * size;
  result.k = p.k_extent() * size;
  result.v = p.v_extent() * size;
  result.o = p.o_extent() * size;
  if (p.bias) result.bias = p.bias_extent() * element_bytes(p.bias->type);
  if (p.mask) result.mask = p.mask_extent() * element_bytes(p.mask->type);
  if (p.lse) result.lse = p.batch * p.heads * p.nq * element_bytes(ElementType::kFp32);
  const Dimensions o = dimensions(p, p.o, p.heads, p.nq);
  const std::int64_t row_bytes = p.d * size;
  result.q_lanes = lanes_of(dimensions(p, p.q, p.heads, p.nq), o, row_bytes);
  result.k_lanes = lanes_of(dimensions(p, p.k, p.kv_heads, p.nk), o, row_bytes);
  result.v_lanes = lanes_of(dimensions(p, p.v, p.kv_heads, p.nk), o, row_bytes);
  return result;
}

const char* find_overlap(const Footprint& f, const Tensors& t) noexcept {
  if (shares(t.q, f.q, f.q_lanes, t.o, f.o)) return "q and out";
  if (shares(t.k, f.k, f.k_lanes, t.o, f.o)) return "k and out";
  if (shares(t.v, f.v, f.v_lanes, t.o, f.o)) return "v and out";
  if (ranges_meet(t.bias, f.bias, t.o, f.o)) return "bias and out";
  if (ranges_meet(t.mask, f.mask, t.o, f.o)) return "mask and out";
  if (f.lse == 0) return nullptr;
  if (ranges_meet(t.o, f.o, t.lse, f.lse)) return "out and lse";
  if (ranges_meet(t.q, f.q, t.lse, f.lse)) return "q and lse";
  if (ranges_meet(t.k, f.k, t.lse, f.lse)) return "k and lse";
  if (ranges_meet(t.v, f.v, t.lse, f.lse)) return "v and lse";
  if (ranges_meet(t.bias, f.bias, t.lse, f.lse)) return "bias and lse";
  if (ranges_meet(t.mask, f.mask, t.lse, f.lse)) return "mask and lse";
  return nullptr;
}

}  // namespace vitune
