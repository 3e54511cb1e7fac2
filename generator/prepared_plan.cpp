// generator/prepared_plan.cpp -- Encoding a plan's tensor maps, and launching it.
// SPDX-License-Identifier: Apache-2.0
#include "generator/prepared_plan.h"

#include <algorithm>
#include <cstring>

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr std::uint32_t kRank = TensorMapSlot::kRank;
constexpr std::int64_t kElementBytes = 2;  // of fp16 and bf16, which are moved alike
constexpr CuResult kInvalidValue = 1;
constexpr char kReplaceCall[] = "cuTensorMapReplaceAddress";

int swizzle_code(std::int64_t bytes) {
  if (bytes == 0) return kCuTensorMapSwizzleNone;
  if (bytes == 128) return kCuTensorMapSwizzle128;
  return bytes == 64 ? kCuTensorMapSwizzle64 : kCuTensorMapSwizzle32;
}

// `advice` is for values that the driver refuses; other failures are not of the call.
void check_map(const CudaDriver& driver, CuResult result, const char* call, const char* advice) {
  try {
    driver.check(result, call);
  } catch (const CudaError& error) {
    if (result != kInvalidValue) throw;
    throw CudaError(result, formatted("{}; {}", error.what(), advice));
  }
}

void encode(const CudaDriver& driver, CuTensorMap* map, const TensorMapSlot& tensor) {
  std::uint64_t sizes[kRank], strides[kRank - 1];
  for (std::uint32_t i = 0; i < tensor.rank; ++i) {
    sizes[i] = static_cast<std::uint64_t>(tensor.sizes[i]);
    if (i == 0) continue;
    // Where there is only one of something its stride says nothing.
    const std::int64_t bytes = sizes[i] == 1 ? 16 : tensor.strides[i - 1] * kElementBytes;
    strides[i - 1] = static_cast<std::uint64_t>(bytes);
  }
  const std::uint32_t box[kRank] = {static_cast<std::uint32_t>(tensor.columns),
                                    static_cast<std::uint32_t>(tensor.rows), 1, 1};
  const std::uint32_t every[kRank] = {1, 1, 1, 1};
  const CuResult result = driver.api().tensor_map_encode_tiled(
      map, kCuTensorMapFloat16, tensor.rank, reinterpret_cast<void*>(kNoAddress), sizes, strides,
      box, every, kCuTensorMapInterleaveNone, swizzle_code(tensor.swizzle),
      kCuTensorMapL2Promotion128, kCuTensorMapFillZeros);
  check_map(driver, result, "cuTensorMapEncodeTiled",
            "the driver does not take this problem's sizes and strides for a kernel that copies by "
            "tensor maps: tune the problem again with this driver");
}

std::string lack(const CudaDriver& driver, const char* what, const char* since) {
  const int version = driver.version();
  return formatted(
      "{}, which the driver (CUDA {}.{}) does not have; install one for CUDA {} or newer", what,
      version / 1000, version % 1000 / 10, since);
}

}  // namespace

LoadedKernels LoadedKernels::of(const CudaModule& module, const std::vector<KernelNeeds>& needs) {
  LoadedKernels loaded;
  for (const KernelNeeds& each : needs) {
    const CudaKernel& kernel = loaded.kernels.emplace_back(module.kernel(each.entry));
    const auto shared = static_cast<std::uint32_t>(each.shared_bytes);
    kernel.reserve_shared(shared);
    loaded.resident.push_back(kernel.resident_ctas(each.threads, shared));
  }
  return loaded;
}

std::optional<std::string> driver_lacks_tensor_maps(const CudaDriver& driver) {
  const DriverApi& api = driver.api();
  if (api.tensor_map_encode_tiled != nullptr && api.tensor_map_replace_address != nullptr) {
    return std::nullopt;
  }
  return lack(driver, "it copies by tensor maps", "12.0");
}

// The call that takes attributes of launches is used from the driver on that captures early starts.
std::optional<std::string> driver_lacks_cooperative_launches(const CudaDriver& driver) {
  if (driver.api().launch_kernel_ex != nullptr) return std::nullopt;
  return lack(driver, "it launches CTAs that run at once and start early", "12.3");
}

PreparedPlan::PreparedPlan(const LaunchPlan& plan, std::span<const CudaKernel> kernels,
                           Libraries* libraries)
    : scratch_bytes_(plan.scratch_bytes) {
  for (const KernelLaunch& launch : plan.kernels) {
    if (launch.kernel >= kernels.size()) {
      throw Error(ErrorCode::kFailure, "a plan names a kernel that was not loaded for it");
    }
    driver_ = &kernels[launch.kernel].driver();
    steps_.push_back(prepared(launch, kernels[launch.kernel]));
  }
  if (!plan.matmuls.empty()) prepare_matmuls(plan, libraries);
}

void PreparedPlan::prepare_matmuls(const LaunchPlan& plan, Libraries* libraries) {
  if (libraries == nullptr) {
    throw Error(ErrorCode::kFailure, "a plan that calls a library was prepared without one");
  }
  for (const MatmulCall& call : plan.matmuls) {
    const std::size_t earliest = products_.empty() ? 0 : products_.back().before;
    if (call.before < earliest || call.before > steps_.size()) {
      throw Error(ErrorCode::kFailure,
                  formatted("a product ahead of kernel {}, behind one ahead of {}; there are {}",
                            call.before, earliest, steps_.size()));
    }
    products_.push_back({call.before, PreparedMatmul(call, libraries->cublaslt())});
  }
}

PreparedPlan::Step PreparedPlan::prepared(const KernelLaunch& launch,
                                          const CudaKernel& kernel) const {
  const auto lines =
      static_cast<std::size_t>(ceil_div(static_cast<std::int64_t>(launch.params.size()), 64));
  if (lines > kMostLines || launch.map_bytes > kMostMaps * sizeof(MapBlock)) {
    throw Error(ErrorCode::kFailure,
                formatted("a kernel with {} bytes of parameters and {} of tensor maps: {} and {} "
                          "are the most",
                          launch.params.size(), launch.map_bytes, kMostLines * sizeof(Line),
                          kMostMaps * sizeof(MapBlock)));
  }
  if (launch.shape.is_cooperative) {
    if (const auto lack = driver_lacks_cooperative_launches(kernel.driver())) {
      throw Error(ErrorCode::kUnsupported, "the kernel cannot be launched: " + *lack);
    }
  }
  Step step{kernel, launch.shape, std::vector<Line>(lines), {}, {}, {}, {}};
  std::memcpy(step.params.data(), launch.params.data(), launch.params.size());
  for (const PointerSlot& slot : launch.pointers) {
    const auto offset = static_cast<std::uintptr_t>(slot.offset);
    const bool of_scratch = slot.tensor == PointerSlot::kScratch;
    (of_scratch ? step.scratch : step.pointers)
        .push_back({of_scratch ? 0 : static_cast<std::uint32_t>(slot.tensor), slot.at, offset});
  }
  step.blocks.resize(launch.map_bytes / sizeof(MapBlock));
  if (launch.maps.empty()) return step;
  if (const auto lack = driver_lacks_tensor_maps(kernel.driver())) {
    throw CudaError(kCuErrorNotSupported, "the kernel cannot be launched: " + *lack);
  }
  for (const TensorMapSlot& slot : launch.maps) {
    const auto block = static_cast<std::uint32_t>(slot.at / sizeof(MapBlock));
    encode(kernel.driver(), reinterpret_cast<CuTensorMap*>(step.blocks[block].bytes), slot);
    step.maps.push_back({slot.tensor, block, static_cast<std::uintptr_t>(slot.offset)});
  }
  return step;
}

inline CuResult PreparedPlan::set_addresses(const Step& step,
                                            std::span<const std::uintptr_t> addresses,
                                            std::uintptr_t scratch, Line* params,
                                            MapBlock* blocks) const noexcept {
  const auto set = [params](const Pointer& pointer, std::uintptr_t base) {
    const std::uintptr_t address = base + pointer.offset;
    std::memcpy(reinterpret_cast<std::byte*>(params) + pointer.at, &address, sizeof(address));
  };
  for (const Pointer& pointer : step.pointers) set(pointer, addresses[pointer.tensor]);
  for (const Pointer& pointer : step.scratch) set(pointer, scratch);
  for (const Map& map : step.maps) {
    const std::uintptr_t base =
        map.tensor >= 0 ? addresses[static_cast<std::size_t>(map.tensor)] : scratch;
    auto* const at = reinterpret_cast<CuTensorMap*>(blocks[map.block].bytes);
    void* const address = reinterpret_cast<void*>(base + map.offset);
    const CuResult result = driver_->api().tensor_map_replace_address(at, address);
    if (result != kCuSuccess) [[unlikely]]
      return result;
  }
  return kCuSuccess;
}

inline LaunchResult PreparedPlan::launch(const Step& step,
                                         std::span<const std::uintptr_t> addresses,
                                         std::uintptr_t scratch,
                                         CuStreamTag* stream) const noexcept {
  Line params[kMostLines];
  for (std::size_t i = 0; i < step.params.size(); ++i) params[i] = step.params[i];
  MapBlock blocks[kMostMaps];  // nothing is in them where the kernel has no such parameter
  for (std::size_t i = 0; i < step.blocks.size(); ++i) blocks[i] = step.blocks[i];
  const CuResult set = set_addresses(step, addresses, scratch, params, blocks);
  if (set != kCuSuccess) [[unlikely]]
    return {set, kReplaceCall, true};
  return {step.kernel.try_launch(step.shape, params, stream, blocks)};
}

template <class RunKernel>
inline LaunchResult PreparedPlan::run(std::span<const std::uintptr_t> addresses,
                                      std::uintptr_t scratch, CuStreamTag* stream,
                                      RunKernel&& run_kernel) const noexcept {
  auto product = products_.begin();
  for (std::size_t i = 0; i <= steps_.size(); ++i) {
    for (; product != products_.end() && product->before == i; ++product) {
      const int status = product->matmul.launch(addresses, scratch, stream);
      if (status != CublasLtApi::kSuccess) [[unlikely]]
        return {status, "cublasLtMatmul", false, &product->matmul};
    }
    if (i == steps_.size()) break;
    const LaunchResult launched = run_kernel(steps_[i]);
    if (launched.result != kCuSuccess) [[unlikely]]
      return launched;
  }
  return {};
}

LaunchResult PreparedPlan::launch(std::span<const std::uintptr_t> addresses, std::uintptr_t scratch,
                                  CuStreamTag* stream) const noexcept {
  return run(addresses, scratch, stream,
             [&](const Step& step) { return launch(step, addresses, scratch, stream); });
}

void PreparedPlan::check(const LaunchResult& launched) const {
  if (launched.result == kCuSuccess) return;
  if (launched.matmul != nullptr) launched.matmul->fail(launched.result);
  if (!launched.of_addresses) return driver_->check(launched.result, launched.call);
  check_map(*driver_, launched.result, launched.call,
            "look whether the tensors of this call are in the device's memory, at multiples of 16 "
            "bytes");
}

BoundPlan::BoundPlan(PreparedPlan plan, std::span<const std::uintptr_t> addresses,
                     std::uintptr_t scratch)
    : plan_(std::move(plan)), addresses_(addresses.begin(), addresses.end()), scratch_(scratch) {
  for (PreparedPlan::Step& step : plan_.steps_) {
    const CuResult set =
        plan_.set_addresses(step, addresses, scratch, step.params.data(), step.blocks.data());
    plan_.check({set, kReplaceCall, true});
  }
}

LaunchResult BoundPlan::launch(CuStreamTag* stream) const noexcept {
  return plan_.run(addresses_, scratch_, stream, [&](const PreparedPlan::Step& step) {
    return LaunchResult{
        step.kernel.try_launch(step.shape, step.params.data(), stream, step.blocks.data())};
  });
}

PreparedPlan prepare_plan(const CudaModule& module, const Problem& problem, const Config& config,
                          const DeviceInfo& device, Libraries* libraries) {
  const Operator& op = problem.op();
  const LoadedKernels loaded = LoadedKernels::of(module, op.kernels(problem, config));
  std::vector<int> resident = loaded.resident;
  // A plan that does not fit is refused when it is launched.
  for (int& ctas : resident) ctas = std::max(ctas, 1);
  return PreparedPlan(op.plan(problem, config, device, resident), loaded.kernels, libraries);
}

}  // namespace vitune
