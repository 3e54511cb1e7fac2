// probe/ceiling_worker.cpp -- The process that owns the GPU while its ceilings are measured.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <csignal>
#include <exception>
#include <nlohmann/json.hpp>

#include "core/cuda_driver.h"
#include "core/env.h"
#include "core/error.h"
#include "core/frame.h"
#include "generator/compiler.h"
#include "probe/ceiling_probes.h"
#include "probe/ceilings.h"
#include "tuner/measure/gpu_lock.h"

namespace vitune {
namespace {

constexpr int kSocket = 3;

void say(std::uint32_t type, std::string payload) { write_frame(kSocket, {type, 1, payload}); }

std::vector<std::byte> compiled(const Compiler& compiler, const CompileRequest& request) {
  CompileResult result = compiler.compile(request);
  if (result.status == CompileStatus::kOk) return std::move(result.cubin);
  throw Error(ErrorCode::kFailure, "the probes do not compile for " + request.arch + " with " +
                                       compiler.version() + ": " + result.log);
}

[[noreturn]] void fail(ErrorCode code, const std::string& what) {
  say(kCeilingFailure, nlohmann::json{{"code", static_cast<int>(code)}, {"what", what}}.dump(
                           -1, ' ', false, nlohmann::json::error_handler_t::replace));
  // A context that faulted may hang where it is taken down: the end of the process does that.
  std::_Exit(exit_status(code));
}

// Compiling here is as safe as in a compile worker: the parent's deadline covers all of this
// process.
Ceilings measured(int ordinal, const CeilingEffort& effort) {
  const auto driver = CudaDriver::open();
  const DeviceInfo device = driver->device_info(ordinal);
  say(kCeilingPhase, "compile");
  const auto compiler = Compiler::open(read_environment());
  const auto cubin = compiled(*compiler, probe_compile_request(device.arch()));
  const auto wgmma_request = wgmma_probe_compile_request(device.arch());
  const auto wgmma = wgmma_request ? compiled(*compiler, *wgmma_request) : std::vector<std::byte>();
  const CudaContext context(driver, ordinal);
  const CudaStream stream(*driver);
  CeilingProbes probes(context, stream, device, cubin, wgmma, effort);
  const GpuLock lock(gpu_lock_path(device), kGpuLockPatience);
  Ceilings ceilings;
  ceilings.compiler = compiler->version();
  ceilings.contended = lock.contended();
  try {
    for (const std::string& name : ceiling_names()) {
      say(kCeilingPhase, name);
      if (const auto figure = probes.measure(name)) ceilings.figures.push_back(*figure);
    }
  } catch (const Error& error) {
    fail(error.code(), error.what());
  }
  if (const CeilingFigure* fma = ceilings.find("fma_tflops")) ceilings.clock_mhz = fma->clock_mhz;
  return ceilings;
}

}  // namespace

int run_ceiling_worker(int ordinal) {
  // A parent that is gone shows as a failed write.
  std::signal(SIGPIPE, SIG_IGN);
  FrameParser parser;
  const auto request = read_frame(kSocket, parser);
  if (!request) return 0;
  try {
    say(kCeilingResult, encode(measured(ordinal, decode_effort(request->payload))));
    return 0;
  } catch (const Error& error) {
    fail(error.code(), error.what());
  } catch (const std::exception& error) {
    fail(ErrorCode::kFailure, error.what());
  }
}

}  // namespace vitune
