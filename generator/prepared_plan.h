// generator/prepared_plan.h -- Plans on a device: kernels loaded, tensor maps encoded, ready to be
// launched any number of times.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda_driver.h"
#include "core/cuda_driver_api.h"
#include "generator/launch_plan.h"
#include "generator/operator.h"
#include "generator/prepared_matmul.h"

namespace vitune {

// The kernels of a config, each with its shared memory reserved.
struct LoadedKernels {
  std::vector<CudaKernel> kernels;
  std::vector<int> resident;  // CTAs of each that fit on an SM at once; 0: it does not fit

  // Throws CudaError if the module lacks a kernel or one cannot have the shared memory it needs.
  static LoadedKernels of(const CudaModule& module, const std::vector<KernelNeeds>& needs);
};

// Why `driver` cannot launch kernels that copy by tensor maps, or whose CTAs run at once, as a
// clause, or nothing.
std::optional<std::string> driver_lacks_tensor_maps(const CudaDriver& driver);
std::optional<std::string> driver_lacks_cooperative_launches(const CudaDriver& driver);

// How a launch ended: the driver's answer and the call that gave it.
struct LaunchResult {
  CuResult result = kCuSuccess;
  const char* call = "cuLaunchKernel";
  bool of_addresses = false;  // whether a tensor's address was refused, before anything ran
  const PreparedMatmul* matmul = nullptr;  // the product whose call it was: then the library's word
};

// Immutable; any thread may launch it.
class PreparedPlan {
 public:
  // Kernels are counted by their place in `kernels`; `libraries` is asked by plans that call one,
  // with its context current. Throws CudaError if the driver does not take a tensor map,
  // Error(kUnsupported) if the library is not there or does not take a product, or if the driver is
  // too old for a cooperative launch, Error(kFailure) for a plan that no launch can hold.
  PreparedPlan(const LaunchPlan& plan, std::span<const CudaKernel> kernels,
               Libraries* libraries = nullptr);

  // One after the other on `stream`, with the tensors at `addresses`, in the order of
  // Operator::tensors(), and the scratch memory at `scratch`. Allocates nothing and takes no lock,
  // but for what a library does in its own calls.
  LaunchResult launch(std::span<const std::uintptr_t> addresses, std::uintptr_t scratch,
                      CuStreamTag* stream) const noexcept;
  // Throws CudaError with what to look at, Error(kFailure) if a library refused, unless `launched`
  // is success.
  void check(const LaunchResult& launched) const;

  std::int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  // Parameters are copied for each launch, whole lines of them at a time.
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  struct alignas(128) MapBlock {
    unsigned char bytes[sizeof(CuTensorMap)];
  };
  static constexpr std::size_t kMostLines = 16, kMostMaps = 8;

  struct Pointer {
    std::uint32_t tensor, at;
    std::uintptr_t offset;
  };
  struct Map {
    int tensor;  // or PointerSlot::kScratch
    std::uint32_t block;
    std::uintptr_t offset;
  };
  struct Step {
    CudaKernel kernel;
    LaunchShape shape;
    std::vector<Line> params;
    std::vector<Pointer> pointers, scratch;  // to tensors; to the scratch memory
    std::vector<MapBlock> blocks;            // the second parameter
    std::vector<Map> maps;
  };
  friend class BoundPlan;
  Step prepared(const KernelLaunch& launch, const CudaKernel& kernel) const;
  // Puts the addresses into `params` and `blocks`, copies of the step's or its own.
  CuResult set_addresses(const Step& step, std::span<const std::uintptr_t> addresses,
                         std::uintptr_t scratch, Line* params, MapBlock* blocks) const noexcept;
  LaunchResult launch(const Step& step, std::span<const std::uintptr_t> addresses,
                      std::uintptr_t scratch, CuStreamTag* stream) const noexcept;

  void prepare_matmuls(const LaunchPlan& plan, Libraries* libraries);
  // Runs `kernel` for each step and the products where they stand, until one fails.
  template <class RunKernel>
  LaunchResult run(std::span<const std::uintptr_t> addresses, std::uintptr_t scratch,
                   CuStreamTag* stream, RunKernel&& run_kernel) const noexcept;

  struct Product {
    std::size_t before;  // step
    PreparedMatmul matmul;
  };
  const CudaDriver* driver_ = nullptr;  // null: no kernels
  std::vector<Step> steps_;
  std::vector<Product> products_;
  std::int64_t scratch_bytes_ = 0;
};

// A plan with the tensors of one call, set once: what the judge and the timer launch.
class BoundPlan {
 public:
  // Throws CudaError if the driver refuses an address.
  BoundPlan(PreparedPlan plan, std::span<const std::uintptr_t> addresses, std::uintptr_t scratch);
  LaunchResult launch(CuStreamTag* stream) const noexcept;
  // Throws CudaError.
  void operator()(const CudaStream& stream) const { plan_.check(launch(stream.get())); }

 private:
  PreparedPlan plan_;
  std::vector<std::uintptr_t> addresses_;  // for products, with the scratch memory
  std::uintptr_t scratch_ = 0;
};

// The plan of (`problem`, `config`) on the kernels of `module`, of which one that only calls a
// library needs none. Throws as both do.
PreparedPlan prepare_plan(const CudaModule& module, const Problem& problem, const Config& config,
                          const DeviceInfo& device, Libraries* libraries = nullptr);

}  // namespace vitune
