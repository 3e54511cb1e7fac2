// tests/emulator/device.cpp -- Modules, launches and virtual time of the emulated device.
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/device.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace vitune_emulator {
namespace {

constexpr double kLaunchUs = 2;    // least time of a kernel
constexpr double kWorkUs = 0.002;  // per unit of work that run_grid() counts, on one SM
constexpr double kNoise = 0.004;   // largest relative deviation of a kernel's time

// Equal for launches that do the same.
std::string identity(const Launch& launch) {
  std::string text(reinterpret_cast<const char*>(&launch.kernel), sizeof(launch.kernel));
  text.append(reinterpret_cast<const char*>(&launch.grid), sizeof(launch.grid));
  for (const auto& bytes : launch.parameters) text.append(bytes.begin(), bytes.end());
  return text;
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
  if (d.fault != kSuccess) return 0;
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

void pass_time(unsigned long long work) {
  device().now_us += (kLaunchUs + static_cast<double>(work) * kWorkUs / kSmCount) * noise();
}

// Only the last of several equal launches counts.
void postpone(const Launch& launch, const std::string& same) {
  auto& postponed = device().postponed;
  std::erase_if(postponed, [&](const Launch& other) { return identity(other) == same; });
  postponed.push_back(launch);
}

std::size_t elf_bytes(const void* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof(header));
  return header.e_shoff + std::size_t{header.e_shnum} * header.e_shentsize;
}

}  // namespace

// Never destroyed: threads of the program may still call while it exits.
Device& device() {
  static Device* instance = new Device;
  return *instance;
}

bool inside(const void* at, std::size_t bytes) {
  const auto address = reinterpret_cast<CuPointer>(at);
  const auto& all = device().allocations;
  auto it = all.upper_bound(address);
  if (it == all.begin()) return false;
  --it;
  return address + bytes <= it->first + it->second;
}

void run_postponed() {
  std::vector<Launch> launches;
  launches.swap(device().postponed);
  for (Launch& launch : launches) run_now(launch);
}

void execute(Launch& launch) {
  Device& d = device();
  if (launch.kernel == nullptr) {
    run_postponed();
    if (d.fault == kSuccess) launch.host();
    d.now_us += launch.host_us * noise();
    return;
  }
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
  module.code = static_cast<const Module*>(dlsym(module.library, "vitune_emulated_module"));
  if (module.code == nullptr || module.code->machine_bytes != sizeof(Machine)) return kInvalidImage;
  return kSuccess;
}

}  // namespace vitune_emulator
