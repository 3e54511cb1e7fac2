// tuner/judge/reference.cpp -- Running the judge, and turning the yardstick's error into an
// allowance.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/judge/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "core/checked.h"
#include "core/error.h"

namespace vitune {
namespace {

double finite(double value) {
  return std::isfinite(value) ? value : std::numeric_limits<double>::max();
}

double from_bits(std::uint32_t bits) { return finite(std::bit_cast<float>(bits)); }

// Bytes of the answer to a tensor: a multiple of 8, so that a digest covers them.
std::int64_t answer_bytes(const TensorSpec& tensor) {
  std::optional<std::int64_t> bytes = 4;
  for (const std::int64_t extent : tensor.extents) {
    if (bytes) bytes = checked_mul(*bytes, extent);
  }
  if (!bytes) throw Error(ErrorCode::kUsage, "the output does not fit 64-bit addresses");
  return round_up(*bytes, 8);
}

}  // namespace

OutputError output_error(const Findings& findings, std::int64_t elements) {
  const double count = static_cast<double>(std::max<std::int64_t>(elements, 1));
  OutputError error;
  error.max_error = from_bits(static_cast<std::uint32_t>(findings.worst >> 32));
  error.rms_error = finite(std::sqrt(findings.error_squares / count));
  error.largest_reference = from_bits(findings.largest_reference);
  error.rms_reference = finite(std::sqrt(findings.reference_squares / count));
  return error;
}

namespace {

// Error allowed to sums in fp32, beside the plain implementation's own error.
double fp32_allowance(const OutputError& plain) {
  return 0x1p-15 * std::max(1.0, plain.largest_reference);
}

bool is_within_fp32(const OutputError& plain) { return plain.max_error <= fp32_allowance(plain); }

// "dq 3 were not written, 0 are not finite ..."
std::string described(const Findings& findings, const TensorSpec& tensor) {
  return tensor.name + " " + std::to_string(findings.unwritten) + " were not written, " +
         std::to_string(findings.not_finite) + " are not finite, " +
         std::to_string(findings.not_infinite) + " not infinite and " +
         std::to_string(findings.not_zero) + " not zero where the reference's are";
}

}  // namespace

ErrorBounds derive_bounds(const OutputError& plain, ElementType type, std::int64_t rows) {
  ErrorBounds bounds;
  if (type == ElementType::kFp32) {
    // Sums in fp32 throughout. Matrix units truncate when they add, about one unit of 2^-23 of a
    // score per 16 columns (8 times 2^-23 for 128); base-2 exponentials, logarithms and factors add
    // a few 2^-22 relative each. 2^-15 relative covers their sum four times; the plain kernel's own
    // error scales with sums that cancel.
    bounds.max_error = 8.0 * plain.max_error + fp32_allowance(plain);
    bounds.rms_error = bounds.max_error;
    return bounds;
  }
  // Largest relative error of one rounding to nearest: 8 bits of significand in bf16, 11 in fp16.
  const double roundoff = type == ElementType::kBf16 ? 0x1p-8 : 0x1p-11;
  // Errors of two correct kernels differ by chance: the weights of a row round differently after
  // another running maximum, and few rows average little of that out.
  const double chance = 1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(rows, 1)));
  // A perfect kernel still rounds its largest output once, even where the plain one had luck there.
  bounds.max_error = (2.0 + 4.0 * chance) * plain.max_error + roundoff * plain.largest_reference;
  // One rounding of the output alone has an rms of about 0.4 roundoff * rms_reference; the floor of
  // a third of that matters only where the plain kernel is all but exact.
  bounds.rms_error =
      (1.3 + 3.0 * chance) * plain.rms_error + 0.125 * roundoff * plain.rms_reference;
  return bounds;
}

std::vector<int> judged_outputs(const std::vector<TensorSpec>& tensors) {
  std::vector<int> places;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool judged = tensors[i].given && tensors[i].role == Role::kOutput;
    if (judged) places.push_back(static_cast<int>(i));
  }
  if (places.size() <= kMaxOutputs) return places;
  throw Error(ErrorCode::kFailure, "a problem has more outputs than the " +
                                       std::to_string(kMaxOutputs) + " that a launch is judged by");
}

std::int64_t Reference::bytes(const Problem& problem) {
  const std::vector<TensorSpec> tensors = problem.op().tensors(problem);
  std::int64_t total = 0;
  for (const int place : problem.op().answers(problem)) {
    const auto sum = checked_add(total, answer_bytes(tensors[static_cast<std::size_t>(place)]));
    if (!sum) throw Error(ErrorCode::kUsage, "the outputs do not fit 64-bit addresses");
    total = *sum;
  }
  return total;
}

Reference::Reference(const GpuTools& tools, Workload& workload) : tools_(tools) {
  const Problem& problem = workload.problem();
  const CudaDriver& driver = tools.context.driver();
  require_memory(tools.context, bytes(problem));
  answers_.resize(workload.tensors().size());
  for (const int place : problem.op().answers(problem)) {
    const auto index = static_cast<std::size_t>(place);
    answers_[index] =
        DeviceBuffer(driver, static_cast<std::size_t>(answer_bytes(workload.tensors()[index])));
    tools.stream.fill8(answers_[index].address(), 0, answers_[index].size());
  }
  scratch_ = DeviceBuffer(driver, std::max(sizeof(AllFindings), 8 * answers_.size()));
  run(workload, Precision::kExact);
  digest_ = digest();

  workload.poison_outputs();
  run(workload, Precision::kPlain);
  derive_from_plain(workload);
}

void Reference::run(Workload& workload, Precision precision) {
  const Problem& problem = workload.problem();
  PreparedPlan plan(problem.op().answer(problem, precision),
                    tools_.support.answer_kernels(problem.op()));
  std::vector<std::uintptr_t> addresses = workload.addresses();
  for (const DeviceBuffer& each : answers_) addresses.push_back(each.address());
  // Freed once the device is done with it, as of all memory.
  DeviceBuffer memory;
  if (plan.scratch_bytes() > 0) {
    memory = DeviceBuffer(tools_.context.driver(), static_cast<std::size_t>(plan.scratch_bytes()));
  }
  plan.check(plan.launch(addresses, memory.address(), tools_.stream.get()));
  if (memory.size() > 0) tools_.stream.synchronize();
}

// Bounds from what the plain implementation has left in the outputs.
void Reference::derive_from_plain(const Workload& workload) {
  tools_.stream.fill8(scratch_.address(), 0, scratch_.size());
  compare(workload, scratch_.address());
  tools_.stream.synchronize();
  AllFindings all;
  scratch_.download(std::as_writable_bytes(std::span(&all, 1)));
  std::size_t at = 0;
  for (const int place : judged_outputs(workload.tensors())) {
    const Findings& findings = all[at++];
    const TensorSpec& tensor = workload.tensors()[static_cast<std::size_t>(place)];
    if (findings.unwritten + findings.not_finite + findings.not_infinite + findings.not_zero != 0) {
      throw Error(
          ErrorCode::kNoDevice,
          "the plain implementation disagrees with the fp64 reference on '" +
              workload.problem().text() + "': of the elements of " + described(findings, tensor) +
              ". The device or its driver is at fault, or a candidate has damaged the inputs");
    }
    const OutputError plain = output_error(findings, tensor.elements());
    const bool is_exact =
        tensor.exact_from_whole_numbers && workload.holds_whole_numbers() && is_within_fp32(plain);
    const ElementType type = is_exact ? tensor.type : tensor.rounded_before.value_or(tensor.type);
    bounds_.push_back(derive_bounds(plain, type, tensor.rows()));
  }
}

const DeviceBuffer& Reference::answer(int tensor) const {
  return answers_[static_cast<std::size_t>(tensor)];
}

void Reference::compare(const Workload& workload, CuPointer findings) const {
  const std::vector<std::uintptr_t> addresses = workload.addresses();
  for (const int place : judged_outputs(workload.tensors())) {
    const TensorSpec& tensor = workload.tensors()[static_cast<std::size_t>(place)];
    CompareParams compare = {};
    compare.data = device_pointer<void>(addresses[static_cast<std::size_t>(place)]);
    std::copy(tensor.strides.begin(), tensor.strides.end(), std::begin(compare.strides));
    std::copy(tensor.extents.begin(), tensor.extents.end(), std::begin(compare.extents));
    compare.want = device_pointer<const float>(answer(place).address());
    if (tensor.empty_rows >= 0) {
      compare.empty = device_pointer<const float>(answer(tensor.empty_rows).address());
    }
    compare.findings = device_pointer<Findings>(findings);
    compare.type = judge_type(tensor.type);
    tools_.support.compare(tools_.stream, compare);
    findings += sizeof(Findings);
  }
}

std::uint64_t Reference::digest() const {
  tools_.stream.fill8(scratch_.address(), 0, scratch_.size());
  for (std::size_t i = 0; i < answers_.size(); ++i) {
    tools_.support.digest(tools_.stream, answers_[i].address(),
                          static_cast<std::int64_t>(answers_[i].size()),
                          scratch_.address() + 8 * i);
  }
  tools_.stream.synchronize();
  std::vector<std::uint64_t> sums(answers_.size());
  scratch_.download(std::as_writable_bytes(std::span(sums)));
  std::uint64_t all = 0;
  for (const std::uint64_t sum : sums) all = std::rotl(all, 11) ^ sum;
  return all;
}

std::vector<float> Reference::download(int tensor) const {
  tools_.stream.synchronize();
  std::vector<float> values(answer(tensor).size() / sizeof(float));
  answer(tensor).download(std::as_writable_bytes(std::span(values)));
  return values;
}

bool Reference::intact() const { return digest() == digest_; }

}  // namespace vitune
