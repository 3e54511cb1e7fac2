// tuner/judge/support_kernels.cpp -- Loading and launching the kernels a bench worker runs for
// itself.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/judge/support_kernels.h"

#include <algorithm>
#include <utility>

#include "core/checked.h"
#include "core/error.h"
#include "generator/operator.h"

namespace vitune {
namespace {

constexpr int kThreads = 256;
constexpr int kCtasPerSm = 16;
constexpr int kAnchorSteps = 16384;  // 4 clocks each: 33 us at 2 GHz

constexpr std::array<const char*, 9> kEntryNames = {
    "vitune_fill_normal",  "vitune_fill_mask",    "vitune_compare_outputs",
    "vitune_digest_words", "vitune_count_damage", "vitune_flush_l2",
    "vitune_spin",         "vitune_anchor",       "vitune_probe",
};

std::int64_t elements_of(const FillView& view) {
  std::int64_t count = 1;
  for (const long long extent : view.extents) count *= extent;
  return count;
}

}  // namespace

CompileRequest support_compile_request(const std::string& arch,
                                       std::span<const Operator* const> judges) {
  CompileRequest request;
  std::string main = "#include \"reference/support_kernels.cuh\"\n";
  for (const Operator* each : judges) main += each->judge_source();
  request.source = assemble(std::move(main));
  request.arch = arch;
  request.entry = kEntryNames.back();
  return request;
}

CompileRequest judge_compile_request(const std::string& arch, const Operator& op) {
  CompileRequest request;
  request.source = assemble(op.judge_source());
  request.arch = arch;
  request.entry = op.judge_entries().front();
  return request;
}

CudaModule SupportKernels::load(const CudaDriver& driver, std::span<const std::byte> cubin) {
  if (!cubin_is_well_formed(cubin)) {
    throw Error(ErrorCode::kFailure, "the image of the support kernels is not a well-formed cubin");
  }
  return CudaModule(driver, cubin);
}

SupportKernels::SupportKernels(const CudaDriver& driver, std::span<const std::byte> cubin,
                               const DeviceInfo& device, std::span<const Operator* const> judges)
    : device_(device) {
  static_assert(kEntryNames.size() == kEntries);
  const CudaModule module = load(driver, cubin);
  for (const char* name : kEntryNames) kernels_.push_back(module.kernel(name));
  for (const Operator* each : judges) take_judge(module, *each);
}

void SupportKernels::take_judge(const CudaModule& module, const Operator& op) {
  std::vector<CudaKernel> kernels;
  for (const std::string& name : op.judge_entries()) kernels.push_back(module.kernel(name));
  answers_[&op] = std::move(kernels);
}

void SupportKernels::add_judge(const CudaDriver& driver, std::span<const std::byte> cubin,
                               const Operator& op) {
  if (!answers_.contains(&op)) take_judge(load(driver, cubin), op);
}

std::span<const CudaKernel> SupportKernels::answer_kernels(const Operator& op) const {
  const auto known = answers_.find(&op);
  if (known == answers_.end()) {
    throw Error(ErrorCode::kFailure,
                "a job came before the judge of '" + std::string(op.name()) + "'");
  }
  return known->second;
}

void SupportKernels::launch(Entry entry, const void* params, std::int64_t threads,
                            const CudaStream& stream) const {
  if (threads <= 0) return;
  const std::int64_t limit = std::int64_t{std::max(device_.sm_count, 1)} * kCtasPerSm;
  LaunchShape shape;
  shape.grid[0] = static_cast<std::uint32_t>(std::min(ceil_div(threads, kThreads), limit));
  shape.block[0] = kThreads;
  kernels_[entry].launch(shape, params, stream);
}

void SupportKernels::fill(const CudaStream& stream, const FillNormalParams& params) const {
  launch(kFillNormal, &params, elements_of(params.target), stream);
}

void SupportKernels::fill(const CudaStream& stream, const FillMaskParams& params) const {
  launch(kFillMask, &params, elements_of(params.target), stream);
}

void SupportKernels::compare(const CudaStream& stream, const CompareParams& params) const {
  const std::int64_t rows = params.extents[0] * params.extents[1] * params.extents[2];
  launch(kCompare, &params, rows * 32, stream);
}

void SupportKernels::digest(const CudaStream& stream, CuPointer address, std::int64_t bytes,
                            CuPointer sum) const {
  const std::int64_t words = bytes / 8;
  const DigestParams params = {device_pointer<const unsigned long long>(address),
                               static_cast<unsigned long long>(words),
                               device_pointer<unsigned long long>(sum)};
  launch(kDigest, &params, words, stream);
}

void SupportKernels::damage(const CudaStream& stream, CuPointer address, std::int64_t bytes,
                            CuPointer count) const {
  const std::int64_t words = bytes / 8;
  const DamageParams params = {device_pointer<const unsigned long long>(address),
                               static_cast<unsigned long long>(words),
                               device_pointer<unsigned long long>(count)};
  launch(kDamage, &params, words, stream);
}

void SupportKernels::flush(const CudaStream& stream, const DeviceBuffer& buffer,
                           CuPointer sink) const {
  const std::int64_t vectors = static_cast<std::int64_t>(buffer.size() / 16);
  // The buffer holds one repeated byte, so a thread's sum is 0 or that word: never this one.
  const FlushParams params = {device_pointer<const void>(buffer.address()),
                              static_cast<unsigned long long>(vectors),
                              device_pointer<unsigned int>(sink), 0x12345678u};
  launch(kFlush, &params, vectors, stream);
}

void SupportKernels::spin(const CudaStream& stream, double microseconds, CuPointer sink) const {
  const double clocks_per_us = std::max(device_.clock_khz, 100000) / 1000.0;
  const double bounded = std::clamp(microseconds, 0.0, 1e6);
  const SpinParams params = {static_cast<long long>(bounded * clocks_per_us),
                             device_pointer<unsigned int>(sink)};
  launch(kSpin, &params, std::int64_t{kThreads} * std::max(device_.sm_count, 1), stream);
}

void SupportKernels::anchor(const CudaStream& stream, CuPointer sink) const {
  const AnchorParams params = {kAnchorSteps, 0.9999f, device_pointer<float>(sink)};
  launch(kAnchor, &params, std::int64_t{kThreads} * std::max(device_.sm_count, 1), stream);
}

void SupportKernels::probe(const CudaDriver& driver, const CudaStream& stream) const {
  constexpr std::uint32_t kCount = 65536, kFactor = 2654435761u;
  DeviceBuffer buffer(driver, kCount * sizeof(std::uint32_t));
  stream.fill8(buffer.address(), 0xff, buffer.size());
  const ProbeParams params = {device_pointer<unsigned int>(buffer.address()), kCount, kFactor};
  launch(kProbe, &params, kCount, stream);
  stream.synchronize();
  std::vector<std::uint32_t> words(kCount);
  buffer.download(std::as_writable_bytes(std::span(words)));
  for (std::uint32_t i = 0; i < kCount; ++i) {
    if (words[i] == i * kFactor) continue;
    throw Error(ErrorCode::kNoDevice,
                "the device failed its probe: a known-good kernel wrote " +
                    std::to_string(words[i]) + " instead of " + std::to_string(i * kFactor) +
                    " at word " + std::to_string(i) + "; check the device with nvidia-smi -q");
  }
}

}  // namespace vitune
