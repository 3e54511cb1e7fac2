// probe/ceiling_probes.h -- The probes of templates/probes on a GPU: launched, timed, checked.
//
// Every launch fills the GPU exactly once. The result of the last timed launch is compared with
// what the host computes from the same numbers. One thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/cuda_driver.h"
#include "generator/compiler.h"
#include "probe/ceiling_checks.h"
#include "probe/ceilings.h"

namespace vitune {

// The source of the probes that every architecture ("sm_90") has.
CompileRequest probe_compile_request(const std::string& arch);
// The source of the wgmma probe; nothing for an architecture without wgmma.
std::optional<CompileRequest> wgmma_probe_compile_request(const std::string& arch);

class CeilingProbes {
 public:
  // `wgmma` is empty where the architecture has none. Throws Error(kFailure) for an image that is
  // no cubin, CudaError.
  CeilingProbes(const CudaContext& context, const CudaStream& stream, const DeviceInfo& device,
                std::span<const std::byte> cubin, std::span<const std::byte> wgmma,
                const CeilingEffort& effort);

  // Measures one of ceiling_names(), or nothing where the GPU lacks the unit. Throws
  // Error(kVerification) if the probe's result is wrong, CudaError.
  std::optional<CeilingFigure> measure(const std::string& name);

 private:
  // A kernel with as many CTAs as fit at once.
  struct Probe {
    CudaKernel kernel;
    LaunchShape shape;
    std::size_t threads() const { return std::size_t{shape.grid[0]} * shape.block[0]; }
  };
  using RoundsLaunch = std::function<void(int rounds)>;
  // Launches a probe of computing.
  RoundsLaunch launcher(const Probe& probe) const;

  Probe probe(const CudaModule& module, const char* name, int threads, std::uint32_t shared) const;
  // Microseconds of one launch, right behind one that is not timed.
  double time_once(const std::function<void()>& launch) const;
  // How many rounds make a launch of about effort.launch_us.
  int calibrate(const RoundsLaunch& launch) const;
  // The rate of launches that each do `work` units.
  CeilingFigure sample(const std::string& name, double work,
                       const std::function<void()>& launch) const;
  // SM clock during the last launch of a rate's probe.
  double clock_mhz() const;
  template <class T>
  std::vector<T> outputs(const Probe& probe) const;

  CeilingFigure hbm_copy(const std::string& name);
  CeilingFigure hbm_read(const std::string& name);
  CeilingFigure l2_read(const std::string& name);
  // A probe of computing: `work` operations per CTA and round, each one 1 / `unit` of the figure's.
  CeilingFigure rate(const std::string& name, const Probe& probe, double work, double unit,
                     std::vector<ExpectedSum> (*expected)(int rounds));
  void fill(const DeviceBuffer& buffer) const;
  void read(const DeviceBuffer& buffer, int rounds) const;
  void check_read(const std::string& name, const DeviceBuffer& buffer, int rounds) const;
  std::size_t memory_bytes() const;

  const CudaContext& context_;
  const CudaStream& stream_;
  DeviceInfo device_;
  CeilingEffort effort_;
  CudaModule module_;
  Probe fill_, copy_, read_, fma_, exp2_, mma_;
  std::optional<Probe> wgmma_;
  DeviceBuffer out_, span_;
  CudaEvent start_, stop_;
};

}  // namespace vitune
