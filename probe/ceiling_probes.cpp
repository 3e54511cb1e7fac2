// probe/ceiling_probes.cpp -- Launching, timing and checking the probes.
// SPDX-License-Identifier: Apache-2.0
#include "probe/ceiling_probes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "core/format.h"
#include "templates/probes/probe_params.cuh"
#include "tuner/measure/statistics.h"

namespace vitune {
namespace {

constexpr std::size_t kMemoryInL2s = 32;  // at most 3 % of it can be left from the launch before
constexpr std::int64_t kL2Share = 3;      // a third stays there whatever else is in it
constexpr int kFirstRounds = 16;
constexpr int kMostRounds = 1 << 24;
constexpr int kDiscardedLaunches = 2;
constexpr double kMegaPerUs = 1e6;  // 1e12 per second are 1e6 per microsecond

template <class T>
T* device_pointer(CuPointer address) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));
}

std::size_t whole_tiles(std::size_t bytes) {
  return std::max<std::size_t>(bytes / kProbeTileBytes, 1) * kProbeTileBytes;
}

unsigned tiles_of(const DeviceBuffer& buffer) {
  return static_cast<unsigned>(buffer.size() / kProbeTileBytes);
}

CudaModule checked_module(const CudaDriver& driver, std::span<const std::byte> cubin) {
  if (cubin_is_well_formed(cubin)) return {driver, cubin};
  throw Error(ErrorCode::kFailure, "the image of the probes is not a well-formed cubin");
}

void check_sums(const std::string& name, const std::vector<float>& got, std::uint32_t cta_threads,
                const std::vector<ExpectedSum>& expected) {
  for (std::size_t first = 0; first < got.size(); first += cta_threads) {
    for (const ExpectedSum& each : expected) {
      const double sum = got[first + static_cast<std::size_t>(each.thread)];
      if (std::abs(sum - each.value) <= each.tolerance) continue;
      throw Error(ErrorCode::kVerification,
                  formatted("the probe of {} gave {} in thread {} of CTA {}, which should be {}: "
                            "the GPU or its compiler is at fault",
                            name, sum, each.thread, first / cta_threads, each.value));
    }
  }
}

}  // namespace

CompileRequest probe_compile_request(const std::string& arch) {
  return {assemble("#include \"probes/probes.cuh\"\n"), arch, "vitune_probe_read"};
}

std::optional<CompileRequest> wgmma_probe_compile_request(const std::string& arch) {
  if (arch != "sm_90") return std::nullopt;
  return CompileRequest{assemble("#include \"probes/tensor_sm90.cuh\"\n"), arch + "a",
                        "vitune_probe_wgmma"};
}

CeilingProbes::CeilingProbes(const CudaContext& context, const CudaStream& stream,
                             const DeviceInfo& device, std::span<const std::byte> cubin,
                             std::span<const std::byte> wgmma, const CeilingEffort& effort)
    : context_(context),
      stream_(stream),
      device_(device),
      effort_(effort),
      module_(checked_module(context.driver(), cubin)),
      fill_(probe(module_, "vitune_probe_fill", kProbeThreads, 0)),
      copy_(probe(module_, "vitune_probe_copy", kProbeThreads, 0)),
      read_(probe(module_, "vitune_probe_read", kProbeThreads, 0)),
      fma_(probe(module_, "vitune_probe_fma", kProbeThreads, 0)),
      exp2_(probe(module_, "vitune_probe_exp2", kProbeThreads, 0)),
      mma_(probe(module_, "vitune_probe_mma", kTensorThreads, 0)),
      span_(context.driver(), 2 * sizeof(long long)),
      start_(context.driver()),
      stop_(context.driver()) {
  std::size_t most = 0;
  for (const Probe* each : {&read_, &fma_, &exp2_, &mma_}) most = std::max(most, each->threads());
  if (!wgmma.empty()) {
    wgmma_ = probe(checked_module(context.driver(), wgmma), "vitune_probe_wgmma", kTensorThreads,
                   kWgmmaSharedBytes);
    most = std::max(most, wgmma_->threads());
  }
  out_ = DeviceBuffer(context.driver(), most * sizeof(float));
}

CeilingProbes::Probe CeilingProbes::probe(const CudaModule& module, const char* name, int threads,
                                          std::uint32_t shared) const {
  Probe result{module.kernel(name), {}};
  if (shared > 0) result.kernel.reserve_shared(shared);
  const int resident = result.kernel.resident_ctas(threads, shared);
  if (resident < 1) {
    throw Error(ErrorCode::kFailure,
                formatted("{} does not fit on an SM of {}", name, device_.name));
  }
  result.shape.grid[0] = static_cast<std::uint32_t>(resident * device_.sm_count);
  result.shape.block[0] = static_cast<std::uint32_t>(threads);
  result.shape.shared_bytes = shared;
  return result;
}

// The launch in front keeps the device busy until the second one is in its queue, so that the time
// of the launch call itself is not counted.
double CeilingProbes::time_once(const std::function<void()>& launch) const {
  launch();
  start_.record(stream_);
  launch();
  stop_.record(stream_);
  stop_.synchronize();
  return stop_.microseconds_since(start_);
}

int CeilingProbes::calibrate(const RoundsLaunch& launch) const {
  int rounds = kFirstRounds;
  for (;;) {
    const double us = time_once([&] { launch(rounds); });
    const double scale = effort_.launch_us / std::max(us, 0.1);
    if (scale < 4 || rounds >= kMostRounds) {
      return static_cast<int>(std::clamp<double>(rounds * scale, 1, kMostRounds));
    }
    rounds = static_cast<int>(std::min<double>(rounds * std::min(scale, 64.0), kMostRounds));
  }
}

CeilingFigure CeilingProbes::sample(const std::string& name, double work,
                                    const std::function<void()>& launch) const {
  for (int i = 0; i < kDiscardedLaunches; ++i) launch();
  std::vector<double> us;
  for (int i = 0; i < effort_.samples; ++i) us.push_back(std::max(time_once(launch), 1e-3));
  const auto [fastest, slowest] = std::minmax_element(us.begin(), us.end());
  return {name, work / median(us), work / *slowest, work / *fastest, 0};
}

double CeilingProbes::clock_mhz() const {
  stream_.synchronize();
  std::array<long long, 2> span{};
  span_.download(std::as_writable_bytes(std::span(span)));
  return span[1] > 0 ? 1e3 * static_cast<double>(span[0]) / static_cast<double>(span[1]) : 0;
}

template <class T>
std::vector<T> CeilingProbes::outputs(const Probe& probe) const {
  stream_.synchronize();
  std::vector<T> values(probe.threads());
  out_.download(std::as_writable_bytes(std::span(values)));
  return values;
}

std::size_t CeilingProbes::memory_bytes() const {
  const std::size_t wanted = kMemoryInL2s * static_cast<std::size_t>(device_.l2_bytes);
  return whole_tiles(std::min(wanted, context_.free_and_total_memory().first / 4));
}

void CeilingProbes::fill(const DeviceBuffer& buffer) const {
  const ProbeFillParams params{device_pointer<unsigned>(buffer.address()), buffer.size() / 4};
  fill_.kernel.launch(fill_.shape, &params, stream_);
}

void CeilingProbes::read(const DeviceBuffer& buffer, int rounds) const {
  const ProbeReadParams params{device_pointer<const void>(buffer.address()), tiles_of(buffer),
                               rounds, device_pointer<unsigned>(out_.address())};
  read_.kernel.launch(read_.shape, &params, stream_);
}

void CeilingProbes::check_read(const std::string& name, const DeviceBuffer& buffer,
                               int rounds) const {
  std::uint32_t sum = 0;
  for (const std::uint32_t each : outputs<std::uint32_t>(read_)) sum += each;
  const std::uint32_t expected = expected_read_sum(buffer.size() / 4, rounds);
  if (sum == expected) return;
  throw Error(ErrorCode::kVerification,
              formatted("the probe of {} read words whose sum is {:08x} and should be {:08x}: "
                        "the GPU or its compiler is at fault",
                        name, sum, expected));
}

CeilingFigure CeilingProbes::hbm_copy(const std::string& name) {
  const DeviceBuffer from(context_.driver(), memory_bytes());
  const DeviceBuffer to(context_.driver(), from.size());
  fill(from);
  stream_.fill8(to.address(), 0, to.size());
  const ProbeCopyParams params{device_pointer<const void>(from.address()),
                               device_pointer<void>(to.address()), tiles_of(from)};
  const CeilingFigure figure = sample(name, 2 * static_cast<double>(from.size()) / kMegaPerUs,
                                      [&] { copy_.kernel.launch(copy_.shape, &params, stream_); });
  read(to, 1);
  check_read(name, to, 1);
  return figure;
}

CeilingFigure CeilingProbes::hbm_read(const std::string& name) {
  const DeviceBuffer buffer(context_.driver(), memory_bytes());
  fill(buffer);
  const CeilingFigure figure =
      sample(name, static_cast<double>(buffer.size()) / kMegaPerUs, [&] { read(buffer, 1); });
  check_read(name, buffer, 1);
  return figure;
}

CeilingFigure CeilingProbes::l2_read(const std::string& name) {
  const DeviceBuffer buffer(context_.driver(),
                            whole_tiles(static_cast<std::size_t>(device_.l2_bytes / kL2Share)));
  fill(buffer);
  const int rounds = calibrate([&](int count) { read(buffer, count); });
  const CeilingFigure figure =
      sample(name, static_cast<double>(buffer.size()) * rounds / kMegaPerUs,
             [&] { read(buffer, rounds); });
  check_read(name, buffer, rounds);
  return figure;
}

CeilingProbes::RoundsLaunch CeilingProbes::launcher(const Probe& probe) const {
  return [this, &probe](int rounds) {
    const ProbeRateParams params{rounds, device_pointer<float>(out_.address()),
                                 device_pointer<long long>(span_.address())};
    probe.kernel.launch(probe.shape, &params, stream_);
  };
}

CeilingFigure CeilingProbes::rate(const std::string& name, const Probe& probe, double work,
                                  double unit, std::vector<ExpectedSum> (*expected)(int rounds)) {
  const RoundsLaunch launch = launcher(probe);
  const int rounds = calibrate(launch);
  const double operations = work * rounds * probe.shape.grid[0];
  CeilingFigure figure = sample(name, operations / unit * kMegaPerUs, [&] { launch(rounds); });
  figure.clock_mhz = clock_mhz();
  check_sums(name, outputs<float>(probe), probe.shape.block[0], expected(rounds));
  return figure;
}

std::optional<CeilingFigure> CeilingProbes::measure(const std::string& name) {
  constexpr double kTera = 1e12, kGiga = 1e9;
  constexpr double kChained = double{kProbeThreads} * kProbeChains * kProbeUnroll;
  constexpr double kMma = 2.0 * 16 * 8 * 16 * kMmaTiles * kMmaTiles * (kTensorThreads / 32);
  constexpr double kWgmma =
      2.0 * 64 * kWgmmaColumns * 16 * kProbeUnroll * (double{kTensorThreads} / 128);
  if (name == "hbm_copy_tb_s") return hbm_copy(name);
  if (name == "hbm_read_tb_s") return hbm_read(name);
  if (name == "l2_read_tb_s") return l2_read(name);
  if (name == "mma_tflops") return rate(name, mma_, kMma, kTera, expected_mma);
  if (name == "exp2_gops") return rate(name, exp2_, kChained, kGiga, expected_exp2);
  if (name == "fma_tflops") return rate(name, fma_, 2 * kChained, kTera, expected_fma);
  if (name != "wgmma_tflops") throw Error(ErrorCode::kFailure, "no probe is called " + name);
  if (!wgmma_) return std::nullopt;
  return rate(name, *wgmma_, kWgmma, kTera, expected_wgmma);
}

}  // namespace vitune
