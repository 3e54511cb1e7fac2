// core/cuda_kernel.cpp -- Loading a cubin and launching its kernels.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "core/cuda_driver_api.h"

namespace vitune {
namespace {

constexpr std::size_t kMaxArguments = 32;

// So few bytes are sums of threads that work together; the data of such a kernel passes through L1.
constexpr std::uint32_t kMostOfSums = 1024;

std::shared_ptr<CuModuleTag> load_module(const CudaDriver& driver,
                                         std::span<const std::byte> cubin) {
  if (cubin.empty()) throw Error(ErrorCode::kFailure, "cannot load a cubin of 0 bytes");
  CuModuleTag* module = nullptr;
  driver.check(driver.api().module_load_data(&module, cubin.data()),
               "cuModuleLoadData of " + std::to_string(cubin.size()) + " bytes");
  return {module, [&driver](CuModuleTag* loaded) { driver.api().module_unload(loaded); }};
}

}  // namespace

CudaModule::CudaModule(const CudaDriver& driver, std::span<const std::byte> cubin)
    : driver_(&driver), module_(load_module(driver, cubin)) {}

CudaKernel::CudaKernel(const CudaDriver& driver, std::span<const std::byte> cubin,
                       const std::string& entry)
    : CudaKernel(driver, load_module(driver, cubin), entry) {}

CudaKernel::CudaKernel(const CudaDriver& driver, std::shared_ptr<CuModuleTag> module,
                       const std::string& entry)
    : driver_(&driver), module_(std::move(module)) {
  driver.check(driver.api().module_get_function(&function_, module_.get(), entry.c_str()),
               "cuModuleGetFunction of " + entry);
}

void CudaKernel::reserve_shared(std::uint32_t bytes) const {
  const DriverApi& api = driver_->api();
  driver_->check(
      api.func_set_attribute(function_, kCuMaxDynamicSharedSizeBytes, static_cast<int>(bytes)),
      "cuFuncSetAttribute of " + std::to_string(bytes) + " bytes of shared memory");
  if (bytes <= kMostOfSums) return;
  driver_->check(api.func_set_attribute(function_, kCuPreferredSharedMemoryCarveout,
                                        kCuSharedMemoryCarveoutMaxShared),
                 "cuFuncSetAttribute of the shared memory carveout");
}

int CudaKernel::attribute(int which) const {
  int value = 0;
  driver_->check(
      driver_->api().func_get_attribute(&value, static_cast<CuFunctionAttribute>(which), function_),
      "cuFuncGetAttribute");
  return value;
}

int CudaKernel::registers() const { return attribute(kCuNumRegs); }

int CudaKernel::local_bytes() const { return attribute(kCuLocalSizeBytes); }

int CudaKernel::resident_ctas(int threads, std::uint32_t shared_bytes) const {
  int ctas = 0;
  driver_->check(
      driver_->api().occupancy_max_active_blocks(&ctas, function_, threads, shared_bytes),
      "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  return ctas;
}

CuResult CudaKernel::try_launch(const LaunchShape& shape, const void* params, CuStreamTag* stream,
                                const void* second) const noexcept {
  // The driver reads as many parameters as the kernel has during the call but declares them
  // writable.
  void* parameters[] = {const_cast<void*>(params), const_cast<void*>(second)};
  const auto launch_ex = driver_->api().launch_kernel_ex;
  if (shape.is_cooperative && launch_ex == nullptr) return kCuErrorNotSupported;
  if (launch_ex != nullptr && (shape.is_cooperative || shape.waits_for_earlier)) {
    std::array<CuLaunchAttribute, 2> attributes{};
    unsigned count = 0;
    if (shape.waits_for_earlier) attributes[count++] = {kCuLaunchProgrammaticSerialization, 1, {}};
    if (shape.is_cooperative) attributes[count++] = {kCuLaunchCooperative, 1, {}};
    const CuLaunchConfig config{{shape.grid[0], shape.grid[1], shape.grid[2]},
                                {shape.block[0], shape.block[1], shape.block[2]},
                                shape.shared_bytes,
                                stream,
                                attributes.data(),
                                count};
    return launch_ex(&config, function_, parameters, nullptr);
  }
  return driver_->api().launch_kernel(function_, shape.grid[0], shape.grid[1], shape.grid[2],
                                      shape.block[0], shape.block[1], shape.block[2],
                                      shape.shared_bytes, stream, parameters, nullptr);
}

void CudaKernel::launch(const LaunchShape& shape, const void* params,
                        const CudaStream& stream) const {
  driver_->check(try_launch(shape, params, stream.get()), "cuLaunchKernel");
}

void CudaKernel::launch(const LaunchShape& shape, std::span<const void* const> arguments,
                        const CudaStream& stream) const {
  if (shape.is_cooperative || shape.waits_for_earlier) {
    throw Error(ErrorCode::kFailure, "a launch with attributes takes its parameters as one block");
  }
  // The driver reads the arguments during the call but declares them writable; a fixed array keeps
  // allocation out of the launch path.
  std::array<void*, kMaxArguments> pointers{};
  if (arguments.size() > pointers.size()) {
    throw Error(ErrorCode::kFailure, "a kernel launch with " + std::to_string(arguments.size()) +
                                         " arguments: at most " + std::to_string(pointers.size()));
  }
  std::transform(arguments.begin(), arguments.end(), pointers.begin(),
                 [](const void* argument) { return const_cast<void*>(argument); });
  driver_->check(
      driver_->api().launch_kernel(function_, shape.grid[0], shape.grid[1], shape.grid[2],
                                   shape.block[0], shape.block[1], shape.block[2],
                                   shape.shared_bytes, stream.get(), pointers.data(), nullptr),
      "cuLaunchKernel");
}

}  // namespace vitune
