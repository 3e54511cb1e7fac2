// tests/emulator/cuda_driver.cpp -- A libcuda.so.1 whose device is this machine's memory and CPU.
//
// Launches run at once, in the order of the calls, whatever their stream: a valid order for
// programs that synchronise correctly. Time is virtual, so that measurements are fast and repeat: a
// kernel takes what its work says, and the kernels that only pass time are not run at all. A
// repeated launch of an attention kernel, whose outputs depend on nothing it writes, is run only
// when somebody looks at memory. A fault makes the context unusable, as on a real device.
// Signatures: core/cuda_driver_api.h.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/cuda_driver_api.h"
#include "tests/emulator/simt.h"

namespace {

using namespace vitune;
using vitune_emulator::Fault;
using vitune_emulator::Grid;

constexpr CuResult kInvalidValue = 1, kOutOfMemory = 2, kInvalidImage = 200, kNotFound = 500,
                   kIllegalAddress = 700, kMisaligned = 716, kLaunchFailed = 719,
                   kCaptureInvalid = 901;
constexpr std::size_t kTotalMemory = std::size_t{4} << 30;
constexpr int kClockKhz = 1000000, kSmCount = 4;
constexpr double kLaunchUs = 2;    // least time of a kernel
constexpr double kWorkUs = 0.002;  // per unit of work that run_grid() counts, on one SM
constexpr double kNoise = 0.004;   // largest relative deviation of a kernel's time

struct LoadedModule {
  void* library = nullptr;
  const vitune_emulator::Module* code = nullptr;
  std::map<std::string, std::unique_ptr<struct LoadedKernel>> kernels;
};

struct LoadedKernel {
  LoadedModule* module = nullptr;
  const vitune_emulator::Kernel* code = nullptr;
  std::string name;
  unsigned shared_limit = 48 << 10;
};

struct Launch {
  LoadedKernel* kernel = nullptr;
  Grid grid;
  std::vector<std::vector<char>> parameters;
};

// Equal for launches that do the same.
std::string identity(const Launch& launch) {
  std::string text(reinterpret_cast<const char*>(&launch.kernel), sizeof(launch.kernel));
  text.append(reinterpret_cast<const char*>(&launch.grid), sizeof(launch.grid));
  for (const auto& bytes : launch.parameters) text.append(bytes.begin(), bytes.end());
  return text;
}

struct Graph {
  std::vector<Launch> launches;
};

struct Stream {
  std::optional<Graph> capture;
};

struct Event {
  double at_us = 0;
};

struct Device {
  std::recursive_mutex mutex;
  std::map<CuPointer, std::size_t> allocations;
  std::size_t used = 0;
  double now_us = 0;
  CuResult fault = kCuSuccess;  // sticky
  std::string fault_text;
  unsigned turn = 0;
  std::map<std::string, unsigned long long> known_work;  // of launches that were run before
  std::vector<Launch> postponed;
  unsigned long long noise = 0x243f6a8885a308d3ull;
};

// Never destroyed: threads of the program may still call while it exits.
Device& device() {
  static Device* instance = new Device;
  return *instance;
}

thread_local std::vector<CuContextTag*> contexts;
CuContextTag* primary() { return reinterpret_cast<CuContextTag*>(&device()); }

bool inside(const void* at, std::size_t bytes) {
  const auto address = reinterpret_cast<CuPointer>(at);
  const auto& all = device().allocations;
  auto it = all.upper_bound(address);
  if (it == all.begin()) return false;
  --it;
  return address + bytes <= it->first + it->second;
}

// splitmix64: the same noise in every run.
double noise() {
  unsigned long long x = device().noise += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return 1 + kNoise * (static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53 * 2 - 1);
}

// The kernels of templates/reference that only pass time; their effect is on the clock alone.
std::optional<double> time_passer_us(const Launch& launch) {
  const std::string& name = launch.kernel->name;
  if (name == "vitune_flush_l2") return 60;
  if (name == "vitune_anchor") return 33;
  if (name != "vitune_spin") return std::nullopt;
  long long cycles;
  std::memcpy(&cycles, launch.parameters[0].data(), sizeof(cycles));
  return static_cast<double>(cycles) * 1000 / kClockKhz;
}

CuResult fault_code(Fault::Kind kind) {
  if (kind == Fault::Kind::kAddress) return kIllegalAddress;
  return kind == Fault::Kind::kMisaligned ? kMisaligned : kLaunchFailed;
}

// The work that was done; a fault is kept for a later call, as launches are asynchronous.
unsigned long long run_now(Launch& launch) {
  Device& d = device();
  if (d.fault != kCuSuccess) return 0;
  std::vector<void*> parameters;
  for (auto& bytes : launch.parameters) parameters.push_back(bytes.data());
  try {
    return run_grid(*launch.kernel->module->code, *launch.kernel->code, parameters.data(),
                    launch.grid, inside, d.turn++);
  } catch (const Fault& fault) {
    d.fault = fault_code(fault.kind);
    d.fault_text = launch.kernel->name + ": " + fault.what();
    std::fprintf(stderr, "emulated device: %s\n", d.fault_text.c_str());
    return 0;
  }
}

void run_postponed() {
  std::vector<Launch> launches;
  launches.swap(device().postponed);
  for (Launch& launch : launches) run_now(launch);
}

void pass_time(unsigned long long work) {
  device().now_us += (kLaunchUs + static_cast<double>(work) * kWorkUs / kSmCount) * noise();
}

// Only the last of several equal launches counts.
void postpone(const Launch& launch, const std::string& same) {
  auto& postponed = device().postponed;
  std::erase_if(postponed, [&](const Launch& other) { return identity(other) == same; });
  postponed.push_back(launch);
}

void execute(Launch& launch) {
  Device& d = device();
  if (const auto us = time_passer_us(launch)) {
    d.now_us += *us * noise();
    return;
  }
  const std::string same = identity(launch);
  const bool pure = launch.kernel->name == "vitune_attention_forward";
  const auto known = d.known_work.find(same);
  if (pure && known != d.known_work.end()) {
    postpone(launch, same);
    pass_time(known->second);
    return;
  }
  run_postponed();
  const unsigned long long work = run_now(launch);
  if (pure) d.known_work[same] = work;
  pass_time(work);
}

// Everything but queries of errors goes through here.
template <class Work>
CuResult guarded(Work&& work) {
  const std::lock_guard lock(device().mutex);
  if (device().fault != kCuSuccess) return device().fault;
  return work();
}

// The same for what reads or writes memory.
template <class Work>
CuResult guarded_memory(Work&& work) {
  return guarded([&] {
    run_postponed();
    return device().fault != kCuSuccess ? device().fault : work();
  });
}

std::size_t elf_bytes(const void* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof(header));
  return header.e_shoff + std::size_t{header.e_shnum} * header.e_shentsize;
}

CuResult load_module(LoadedModule& module, const void* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return kInvalidImage;
  std::string bytes(static_cast<const char*>(image), elf_bytes(image));
  bytes[18] = EM_X86_64;
  bytes[19] = 0;
  // A name of its own: dlopen() would take the path of an earlier module for that module.
  std::string path = std::filesystem::temp_directory_path() / "vitune-module-XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0 || ::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    if (fd >= 0) ::close(fd);
    return kOutOfMemory;
  }
  module.library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ::close(fd);
  ::unlink(path.c_str());
  if (module.library == nullptr) {
    std::fprintf(stderr, "emulated device: %s\n", dlerror());
    return kInvalidImage;
  }
  module.code =
      static_cast<const vitune_emulator::Module*>(dlsym(module.library, "vitune_emulated_module"));
  return module.code == nullptr ? kInvalidImage : kCuSuccess;
}

LoadedKernel* kernel_of(CuFunctionTag* function) {
  return reinterpret_cast<LoadedKernel*>(function);
}
LoadedModule* module_of(CuModuleTag* module) { return reinterpret_cast<LoadedModule*>(module); }
Stream* stream_of(CuStreamTag* stream) { return reinterpret_cast<Stream*>(stream); }

}  // namespace

using namespace vitune;

extern "C" {

CuResult cuInit(unsigned) { return kCuSuccess; }
CuResult cuDriverGetVersion(int* version) { return *version = 12080, kCuSuccess; }
CuResult cuGetErrorName(CuResult error, const char** name) {
  switch (error) {
    case kOutOfMemory:
      return *name = "CUDA_ERROR_OUT_OF_MEMORY", kCuSuccess;
    case kInvalidImage:
      return *name = "CUDA_ERROR_INVALID_IMAGE", kCuSuccess;
    case kIllegalAddress:
      return *name = "CUDA_ERROR_ILLEGAL_ADDRESS", kCuSuccess;
    case kMisaligned:
      return *name = "CUDA_ERROR_MISALIGNED_ADDRESS", kCuSuccess;
    case kLaunchFailed:
      return *name = "CUDA_ERROR_LAUNCH_FAILED", kCuSuccess;
    case kNotFound:
      return *name = "CUDA_ERROR_NOT_FOUND", kCuSuccess;
    default:
      return *name = "CUDA_ERROR_INVALID_VALUE", kCuSuccess;
  }
}
CuResult cuGetErrorString(CuResult, const char** text) {
  const std::lock_guard lock(device().mutex);
  *text =
      device().fault_text.empty() ? "refused by the emulated device" : device().fault_text.c_str();
  return kCuSuccess;
}

CuResult cuDeviceGetCount(int* count) { return *count = 1, kCuSuccess; }
CuResult cuDeviceGet(CuDevice* result, int ordinal) { return *result = ordinal, kCuSuccess; }
CuResult cuDeviceGetName(char* name, int size, CuDevice) {
  std::snprintf(name, static_cast<std::size_t>(size), "emulated device");
  return kCuSuccess;
}
CuResult cuDeviceGetUuid_v2(CuUuid* uuid, CuDevice) {
  std::memcpy(uuid->bytes, "vitune-emulated.", sizeof(uuid->bytes));
  return kCuSuccess;
}
CuResult cuDeviceTotalMem_v2(std::size_t* bytes, CuDevice) {
  return *bytes = kTotalMemory, kCuSuccess;
}

// A Hopper in what kernels can ask for, with few SMs.
CuResult cuDeviceGetAttribute(int* value, CuDeviceAttribute attribute, CuDevice) {
  switch (attribute) {
    case kCuClockRate:
      return *value = kClockKhz, kCuSuccess;
    case kCuMultiprocessorCount:
      return *value = kSmCount, kCuSuccess;
    case kCuMemoryClockRate:
      return *value = 1000000, kCuSuccess;
    case kCuMemoryBusWidth:
      return *value = 256, kCuSuccess;
    case kCuL2CacheSize:
      return *value = 1 << 20, kCuSuccess;
    case kCuMaxThreadsPerMultiprocessor:
      return *value = 2048, kCuSuccess;
    case kCuComputeCapabilityMajor:
      return *value = 9, kCuSuccess;
    case kCuComputeCapabilityMinor:
      return *value = 0, kCuSuccess;
    case kCuMaxSharedPerMultiprocessor:
      return *value = 233472, kCuSuccess;
    case kCuMaxRegistersPerMultiprocessor:
      return *value = 65536, kCuSuccess;
    case kCuMaxSharedPerBlockOptin:
      return *value = 232448, kCuSuccess;
  }
  return kInvalidValue;
}

CuResult cuDevicePrimaryCtxRetain(CuContextTag** context, CuDevice) {
  return *context = primary(), kCuSuccess;
}
CuResult cuDevicePrimaryCtxRelease_v2(CuDevice) { return kCuSuccess; }
CuResult cuCtxSetCurrent(CuContextTag* context) {
  if (!contexts.empty()) contexts.pop_back();
  contexts.push_back(context);
  return kCuSuccess;
}
CuResult cuCtxGetCurrent(CuContextTag** context) {
  return *context = contexts.empty() ? nullptr : contexts.back(), kCuSuccess;
}
CuResult cuCtxPushCurrent_v2(CuContextTag* context) {
  contexts.push_back(context);
  return kCuSuccess;
}
CuResult cuCtxPopCurrent_v2(CuContextTag** context) {
  if (contexts.empty()) return kInvalidValue;
  if (context != nullptr) *context = contexts.back();
  contexts.pop_back();
  return kCuSuccess;
}
CuResult cuCtxSynchronize() {
  return guarded([] { return kCuSuccess; });
}
CuResult cuThreadExchangeStreamCaptureMode(int*) { return kCuSuccess; }

CuResult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return guarded([&] {
    *total = kTotalMemory;
    *free = kTotalMemory - device().used;
    return kCuSuccess;
  });
}
CuResult cuMemAlloc_v2(CuPointer* address, std::size_t bytes) {
  return guarded([&] {
    if (bytes == 0) return kInvalidValue;
    if (bytes > kTotalMemory - device().used) return kOutOfMemory;
    void* memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
    if (memory == nullptr) return kOutOfMemory;
    *address = reinterpret_cast<CuPointer>(memory);
    device().allocations[*address] = bytes;
    device().used += bytes;
    return kCuSuccess;
  });
}
CuResult cuMemFree_v2(CuPointer address) {
  const std::lock_guard lock(device().mutex);
  run_postponed();
  const auto found = device().allocations.find(address);
  if (found == device().allocations.end()) return kInvalidValue;
  device().used -= found->second;
  device().allocations.erase(found);
  std::free(reinterpret_cast<void*>(address));
  return kCuSuccess;
}
CuResult cuPointerGetAttribute(void* data, CuPointerAttribute attribute, CuPointer address) {
  return guarded([&] {
    if (!inside(reinterpret_cast<void*>(address), 1)) return kInvalidValue;
    *static_cast<int*>(data) = attribute == kCuPointerMemoryType ? 2 : 0;
    return kCuSuccess;
  });
}

static CuResult copy_checked(void* to, const void* from, std::size_t bytes, bool to_device,
                             bool from_device) {
  return guarded_memory([&] {
    if ((to_device && !inside(to, bytes)) || (from_device && !inside(from, bytes)))
      return kInvalidValue;
    std::memcpy(to, from, bytes);
    device().now_us += 1;
    return kCuSuccess;
  });
}
CuResult cuMemcpyHtoD_v2(CuPointer to, const void* from, std::size_t bytes) {
  return copy_checked(reinterpret_cast<void*>(to), from, bytes, true, false);
}
CuResult cuMemcpyDtoH_v2(void* to, CuPointer from, std::size_t bytes) {
  return copy_checked(to, reinterpret_cast<void*>(from), bytes, false, true);
}
CuResult cuMemcpyDtoDAsync_v2(CuPointer to, CuPointer from, std::size_t bytes, CuStreamTag*) {
  return copy_checked(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes, true,
                      true);
}
CuResult cuMemsetD8Async(CuPointer at, unsigned char value, std::size_t count, CuStreamTag*) {
  return guarded_memory([&] {
    if (!inside(reinterpret_cast<void*>(at), count)) return kInvalidValue;
    std::memset(reinterpret_cast<void*>(at), value, count);
    return kCuSuccess;
  });
}
CuResult cuMemsetD32Async(CuPointer at, unsigned value, std::size_t count, CuStreamTag*) {
  return guarded_memory([&] {
    if (!inside(reinterpret_cast<void*>(at), 4 * count)) return kInvalidValue;
    std::fill_n(reinterpret_cast<unsigned*>(at), count, value);
    return kCuSuccess;
  });
}

CuResult cuStreamCreate(CuStreamTag** stream, unsigned) {
  return *stream = reinterpret_cast<CuStreamTag*>(new Stream), kCuSuccess;
}
CuResult cuStreamDestroy_v2(CuStreamTag* stream) {
  delete stream_of(stream);
  return kCuSuccess;
}
CuResult cuStreamSynchronize(CuStreamTag*) {
  return guarded([] { return kCuSuccess; });
}
CuResult cuStreamBeginCapture_v2(CuStreamTag* stream, int) {
  return guarded([&] {
    if (stream == nullptr || stream_of(stream)->capture) return kInvalidValue;
    stream_of(stream)->capture.emplace();
    return kCuSuccess;
  });
}
CuResult cuStreamEndCapture(CuStreamTag* stream, CuGraphTag** graph) {
  return guarded([&] {
    if (stream == nullptr || !stream_of(stream)->capture) return kCaptureInvalid;
    *graph = reinterpret_cast<CuGraphTag*>(new Graph(std::move(*stream_of(stream)->capture)));
    stream_of(stream)->capture.reset();
    return kCuSuccess;
  });
}
CuResult cuStreamIsCapturing(CuStreamTag* stream, int* status) {
  return guarded([&] {
    *status = stream != nullptr && stream_of(stream)->capture ? 1 : 0;
    return kCuSuccess;
  });
}
CuResult cuEventCreate(CuEventTag** event, unsigned) {
  return *event = reinterpret_cast<CuEventTag*>(new Event), kCuSuccess;
}
CuResult cuEventDestroy_v2(CuEventTag* event) {
  delete reinterpret_cast<Event*>(event);
  return kCuSuccess;
}
CuResult cuEventRecord(CuEventTag* event, CuStreamTag*) {
  return guarded([&] {
    reinterpret_cast<Event*>(event)->at_us = device().now_us;
    return kCuSuccess;
  });
}
CuResult cuEventSynchronize(CuEventTag*) {
  return guarded([] { return kCuSuccess; });
}
CuResult cuEventElapsedTime(float* milliseconds, CuEventTag* start, CuEventTag* end) {
  return guarded([&] {
    const double us = reinterpret_cast<Event*>(end)->at_us - reinterpret_cast<Event*>(start)->at_us;
    *milliseconds = static_cast<float>(us / 1000);
    return kCuSuccess;
  });
}

CuResult cuModuleLoadData(CuModuleTag** module, const void* image) {
  return guarded([&] {
    auto loaded = std::make_unique<LoadedModule>();
    const CuResult result = load_module(*loaded, image);
    if (result != kCuSuccess) return result;
    *module = reinterpret_cast<CuModuleTag*>(loaded.release());
    return kCuSuccess;
  });
}
CuResult cuModuleUnload(CuModuleTag* module) {
  const std::lock_guard lock(device().mutex);
  run_postponed();
  device().known_work.clear();  // a later kernel may have the same address
  dlclose(module_of(module)->library);
  delete module_of(module);
  return kCuSuccess;
}
CuResult cuModuleGetFunction(CuFunctionTag** function, CuModuleTag* module, const char* name) {
  return guarded([&] {
    auto& slot = module_of(module)->kernels[name];
    if (!slot) {
      const std::string symbol = std::string("vitune_kernel_") + name;
      const void* code = dlsym(module_of(module)->library, symbol.c_str());
      if (code == nullptr) return kNotFound;
      slot = std::make_unique<LoadedKernel>();
      slot->module = module_of(module);
      slot->code = static_cast<const vitune_emulator::Kernel*>(code);
      slot->name = name;
    }
    *function = reinterpret_cast<CuFunctionTag*>(slot.get());
    return kCuSuccess;
  });
}
CuResult cuFuncGetAttribute(int* value, CuFunctionAttribute attribute, CuFunctionTag*) {
  return *value = attribute == kCuNumRegs ? 64 : 0, kCuSuccess;
}
CuResult cuFuncSetAttribute(CuFunctionTag* function, CuFunctionAttribute attribute, int value) {
  return guarded([&] {
    if (attribute != kCuMaxDynamicSharedSizeBytes) return kCuSuccess;
    if (value < 0 || value > 232448) return kInvalidValue;
    kernel_of(function)->shared_limit = static_cast<unsigned>(value);
    return kCuSuccess;
  });
}
CuResult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CuFunctionTag*, int block_size,
                                                     std::size_t shared) {
  const int by_threads = 1024 / std::max(block_size, 1);
  const int by_shared = static_cast<int>(233472 / (shared + 1024));
  return *blocks = std::min({by_threads, by_shared, 32}), kCuSuccess;
}
CuResult cuLaunchKernel(CuFunctionTag* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CuStreamTag* stream,
                        void** parameters, void**) {
  return guarded([&] {
    LoadedKernel* kernel = kernel_of(function);
    const unsigned long long threads = 1ull * bx * by * bz;
    if (gx == 0 || gy == 0 || gz == 0 || threads == 0 || threads > 1024) return kInvalidValue;
    if (gy > 65535 || gz > 65535 || shared > kernel->shared_limit) return kInvalidValue;
    Launch launch{kernel, {{gx, gy, gz}, {bx, by, bz}, shared}, {}};
    for (unsigned i = 0; i < kernel->code->parameter_count; ++i) {
      const char* bytes = static_cast<const char*>(parameters[i]);
      launch.parameters.emplace_back(bytes, bytes + kernel->code->parameter_bytes[i]);
    }
    if (stream != nullptr && stream_of(stream)->capture) {
      stream_of(stream)->capture->launches.push_back(std::move(launch));
      return kCuSuccess;
    }
    execute(launch);
    return kCuSuccess;
  });
}

CuResult cuGraphInstantiateWithFlags(CuGraphExecTag** exec, CuGraphTag* graph, unsigned long long) {
  return guarded([&] {
    *exec = reinterpret_cast<CuGraphExecTag*>(new Graph(*reinterpret_cast<Graph*>(graph)));
    return kCuSuccess;
  });
}
CuResult cuGraphLaunch(CuGraphExecTag* exec, CuStreamTag*) {
  return guarded([&] {
    for (Launch& launch : reinterpret_cast<Graph*>(exec)->launches) execute(launch);
    return kCuSuccess;
  });
}
CuResult cuGraphDestroy(CuGraphTag* graph) {
  delete reinterpret_cast<Graph*>(graph);
  return kCuSuccess;
}
CuResult cuGraphExecDestroy(CuGraphExecTag* exec) {
  delete reinterpret_cast<Graph*>(exec);
  return kCuSuccess;
}

}  // extern "C"
