// tuner/judge/reference.cpp -- Running the judge, and turning the yardstick's error into an
// allowance.
#include "tuner/judge/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/checked.h"
#include "core/error.h"

namespace vitune {
namespace {

template <class T>
T* device_pointer(CuPointer address) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));
}

std::int64_t rows_of(const AttentionProblem& p) { return p.batch * p.heads * p.nq; }

double finite(double value) {
  return std::isfinite(value) ? value : std::numeric_limits<double>::max();
}

double from_bits(std::uint32_t bits) { return finite(std::bit_cast<float>(bits)); }

AttentionView view_of(const TensorStrides& s) { return {s.batch, s.head, s.row}; }

AttentionScoreView view_of(const ScoreOperand& operand) {
  const auto& s = operand.strides;
  return {s[0], s[1], s[2], s[3], static_cast<int>(operand.batches)};
}

int support_type(ElementType type) {
  if (type == ElementType::kFp16) return kSupportFp16;
  return type == ElementType::kBf16 ? kSupportBf16 : kSupportFp32;
}

AttentionParams call_of(const AttentionProblem& p, const AttentionPointers& at) {
  AttentionParams call = {};
  call.q = device_pointer<const void>(at.q);
  call.k = device_pointer<const void>(at.k);
  call.v = device_pointer<const void>(at.v);
  call.o = device_pointer<void>(at.o);
  call.lse = device_pointer<float>(at.lse);
  call.bias = device_pointer<const void>(at.bias);
  call.mask = device_pointer<const void>(at.mask);
  call.q_view = view_of(p.q);
  call.k_view = view_of(p.k);
  call.v_view = view_of(p.v);
  call.o_view = view_of(p.o);
  call.bias_view = call.mask_view = {0, 0, 0, 0, 1};
  if (p.bias) call.bias_view = view_of(*p.bias);
  if (p.mask) call.mask_view = view_of(*p.mask);
  call.batch = static_cast<int>(p.batch);
  call.heads = static_cast<int>(p.heads);
  call.heads_per_kv = static_cast<int>(p.heads / p.kv_heads);
  call.queries = static_cast<int>(p.nq);
  call.keys = static_cast<int>(p.nk);
  call.scale = static_cast<float>(p.scale);
  return call;
}

}  // namespace

OutputError output_error(const Findings& findings, std::int64_t elements) {
  const double count = static_cast<double>(std::max<std::int64_t>(elements, 1));
  OutputError error;
  error.max_error = from_bits(static_cast<std::uint32_t>(findings.worst >> 32));
  error.rms_error = finite(std::sqrt(findings.error_squares / count));
  error.largest_reference = from_bits(findings.largest_reference);
  error.rms_reference = finite(std::sqrt(findings.reference_squares / count));
  error.lse_error = from_bits(findings.lse_error);
  error.largest_lse = from_bits(findings.largest_lse);
  return error;
}

ErrorBounds derive_bounds(const OutputError& plain, ElementType dtype, std::int64_t rows) {
  // Largest relative error of one rounding to nearest: 8 bits of significand in bf16, 11 in fp16.
  const double roundoff = dtype == ElementType::kBf16 ? 0x1p-8 : 0x1p-11;
  // Errors of two correct kernels differ by chance: the weights of a row round differently after
  // another running maximum, and few rows average little of that out.
  const double chance = 1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(rows, 1)));
  ErrorBounds bounds;
  // A perfect kernel still rounds its largest output once, even where the plain one had luck there.
  bounds.max_error = (2.0 + 4.0 * chance) * plain.max_error + roundoff * plain.largest_reference;
  // One rounding of the output alone has an rms of about 0.4 roundoff * rms_reference; the floor of
  // a third of that matters only where the plain kernel is all but exact.
  bounds.rms_error =
      (1.3 + 3.0 * chance) * plain.rms_error + 0.125 * roundoff * plain.rms_reference;
  // The log-sum-exp is fp32 throughout. Matrix units truncate when they add, about one unit of
  // 2^-23 of the score per 16 columns (8 times 2^-23 at d = 128); the base-2 exponential, the
  // logarithm and the factor log2(e) add a few 2^-22 relative each. 2^-15 relative covers their sum
  // four times; the plain kernel's own error scales with scores that cancel.
  bounds.lse_error = 8.0 * plain.lse_error + 0x1p-15 * std::max(1.0, plain.largest_lse);
  return bounds;
}

std::int64_t Reference::bytes(const AttentionProblem& problem) {
  const auto elements = checked_mul(rows_of(problem), problem.d + 1);
  const auto size = elements ? checked_mul(*elements, 4) : std::nullopt;
  if (!size) throw Error(ErrorCode::kUsage, "the output does not fit 64-bit addresses");
  return *size;
}

Reference::Reference(const GpuTools& tools, Workload& workload) : tools_(tools) {
  const AttentionProblem& p = workload.problem();
  const CudaDriver& driver = tools.context.driver();
  require_memory(tools.context, bytes(p));
  const std::int64_t rows = rows_of(p);
  // Multiples of 8 bytes, so that a digest covers them.
  out_ = DeviceBuffer(driver, static_cast<std::size_t>(round_up(rows * p.d * 4, 8)));
  lse_ = DeviceBuffer(driver, static_cast<std::size_t>(round_up(rows * 4, 8)));
  scratch_ = DeviceBuffer(driver, 256);
  static_assert(sizeof(Findings) <= 256);
  tools.stream.fill8(out_.address(), 0, out_.size());
  tools.stream.fill8(lse_.address(), 0, lse_.size());
  tools.support.reference(tools.stream, params(workload));
  digest_ = digest();

  workload.poison_outputs();
  tools.support.plain16(tools.stream, params(workload));
  tools.stream.fill8(scratch_.address(), 0, scratch_.size());
  compare(workload, scratch_.address());
  tools.stream.synchronize();
  Findings findings;
  scratch_.download(std::as_writable_bytes(std::span(&findings, 1)));
  if (findings.unwritten + findings.not_finite + findings.not_zero + findings.lse_wrong != 0) {
    throw Error(
        ErrorCode::kNoDevice,
        "the plain 16-bit implementation disagrees with the fp64 reference on '" + p.text() +
            "': the device or its driver is at fault, or a candidate has damaged the inputs");
  }
  bounds_ = derive_bounds(output_error(findings, rows * p.d), p.dtype, rows);
}

ReferenceParams Reference::params(const Workload& workload) const {
  const AttentionProblem& p = workload.problem();
  ReferenceParams result = {};
  result.call = call_of(p, workload.pointers());
  result.scale = p.scale;
  result.out = device_pointer<float>(out_.address());
  result.lse = device_pointer<float>(lse_.address());
  result.head_size = static_cast<int>(p.d);
  result.element = support_type(p.dtype);
  result.bias = p.bias ? support_type(p.bias->type) : kSupportFp32;
  result.causal = p.causal ? 1 : 0;
  return result;
}

void Reference::compare(const Workload& workload, CuPointer findings) const {
  const AttentionProblem& p = workload.problem();
  const AttentionPointers at = workload.pointers();
  CompareParams compare = {};
  compare.o = device_pointer<unsigned short>(at.o);
  compare.view = view_of(p.o);
  compare.out = device_pointer<const float>(out_.address());
  compare.lse = device_pointer<const float>(lse_.address());
  compare.got_lse = device_pointer<float>(at.lse);
  compare.findings = device_pointer<Findings>(findings);
  compare.batch = p.batch;
  compare.heads = p.heads;
  compare.queries = p.nq;
  compare.head_size = static_cast<int>(p.d);
  compare.element = support_type(p.dtype);
  tools_.support.compare(tools_.stream, compare);
}

std::uint64_t Reference::digest() const {
  tools_.stream.fill8(scratch_.address(), 0, scratch_.size());
  tools_.support.digest(tools_.stream, out_.address(), static_cast<std::int64_t>(out_.size()),
                        scratch_.address());
  tools_.support.digest(tools_.stream, lse_.address(), static_cast<std::int64_t>(lse_.size()),
                        scratch_.address() + 8);
  tools_.stream.synchronize();
  std::uint64_t sums[2] = {};
  scratch_.download(std::as_writable_bytes(std::span(sums)));
  return sums[0] ^ std::rotl(sums[1], 32);
}

Reference::Answer Reference::download() const {
  tools_.stream.synchronize();
  Answer answer;
  answer.out.resize(out_.size() / sizeof(float));
  answer.lse.resize(lse_.size() / sizeof(float));
  out_.download(std::as_writable_bytes(std::span(answer.out)));
  lse_.download(std::as_writable_bytes(std::span(answer.lse)));
  return answer;
}

bool Reference::intact() const { return digest() == digest_; }

}  // namespace vitune
