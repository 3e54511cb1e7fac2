// benchmarks/dispatch_fixture.cpp -- A driver, 10,000 winners and memory for the benchmarks of
// libvitune.
// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/dispatch_fixture.h"

#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <map>
#include <stdexcept>

#include "core/env.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/attention/facts.h"
#include "generator/attention/kernel_spec.h"
#include "tests/generator/elf_image.h"
#include "tests/runtime/mock_libcuda.h"

namespace vitune::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostKernels = 64;
constexpr const char* kCompilerOfImages = "nvrtc 13.0 0123456789ab";

test::MockCuda* loaded_mock() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  auto* get = reinterpret_cast<test::MockCuda* (*)()>(dlsym(library, "vitune_mock_cuda"));
  return get != nullptr ? get() : nullptr;
}

AttentionProblem parsed(const Attention& attention) {
  return AttentionProblem::parse(attention.text());
}

// The first default without constants of one problem.
Config shared_default(const AttentionProblem& problem, const DeviceInfo& device) {
  for (const Config& config : default_attention_configs(problem, device)) {
    if (!attention_keys_are_constant(config)) return config;
  }
  throw std::runtime_error("no kernel for any number of keys serves " + problem.text());
}

// A config that all problems of a class share where they can: kernels of one number of keys would
// take minutes to compile.
Config config_of(const AttentionProblem& problem, const DeviceInfo& device) {
  static std::map<std::int64_t, Config> by_head_size;
  const auto [found, is_new] = by_head_size.try_emplace(problem.d);
  if (is_new) {
    const AttentionSizes large{.batch = 8, .heads = 16, .nq = 1024, .d = problem.d};
    found->second = shared_default(parsed(Attention(large).packed()), device);
  }
  const bool fits = !attention_space(problem, device).explain(found->second);
  return fits ? found->second : shared_default(problem, device);
}

// Makes the stored kernels, each distinct one once.
class KernelMaker {
 public:
  explicit KernelMaker(const Driver& driver) : driver_(driver) {
    if (!driver.is_mock) compiler_ = Compiler::open(read_environment());
  }

  Binary make(const AttentionProblem& problem, const Config& config, bool launched) {
    const CompileRequest request =
        attention_compile_request(problem, config, driver_.device.arch());
    const std::string version = compiler_ ? compiler_->version() : kCompilerOfImages;
    const Digest key = kernel_key(request, version);
    const auto [found, is_new] = made_.try_emplace(key);
    if (!is_new) return found->second;
    if (made_.size() > kMostKernels) {
      throw std::runtime_error(
          formatted("the winners need more than {} kernels, which would take "
                    "minutes to compile on a GPU's machine",
                    kMostKernels));
    }
    Binary& binary = found->second;
    binary = {key, request.arch, version, request.entry, {128, 0, 0, 100}, test::elf_image()};
    binary.compile.shared_bytes = AttentionShape(problem, config).shared_bytes();
    if (compiler_ && launched) {
      CompileResult result = compiler_->compile(request);
      if (result.status != CompileStatus::kOk) throw std::runtime_error(result.log);
      binary.compile = result.facts;
      binary.image = std::move(result.cubin);
    }
    return binary;
  }

 private:
  const Driver& driver_;
  std::shared_ptr<const Compiler> compiler_;
  std::map<Digest, Binary> made_;
};

Winner winner_of(const Config& config, const Binary& binary, int index) {
  Winner winner;
  winner.config = config;
  winner.kernel_key = binary.kernel_key;
  const double us = 5 + 0.001 * index;
  winner.measurement = {{us, us - 0.1, us + 0.1, 40}, {us - 1, us - 1.1, us - 0.9, 60}, false};
  winner.error = {0.0071, 0.00023, 0.0156, 0.00046};
  winner.trials = 432;
  winner.driver_version = 13000;
  winner.compiler_version = binary.compiler_version;
  winner.tuned_at = "2026-01-31T10:20:30Z";
  return winner;
}

}  // namespace

Driver Driver::open() {
  Driver driver;
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) == nullptr) {
#ifdef VITUNE_MOCK_LIBCUDA
    if (test::MockCuda* mock = test::open_mock_cuda(VITUNE_MOCK_LIBCUDA)) {
      mock->set_recording(false);
    }
#endif
  }
  driver.is_mock = loaded_mock() != nullptr;
  driver.cuda = CudaDriver::open();
  driver.device = driver.cuda->device_info(0);
  return driver;
}

ScratchFolder::ScratchFolder() {
  const fs::path base = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : fs::temp_directory_path();
  std::string name = (base / "vitune_bench.XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed: " + name);
  path_ = fs::canonical(name);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

WinnerDatabase::WinnerDatabase(const Driver& driver) : driver_(driver) {
  KernelMaker kernels(driver);
  const auto memory = Store::in_memory();
  for (int i = 0; i < kWinners; ++i) {
    const AttentionProblem asked = parsed(problem(i));
    const Config config = config_of(asked, driver.device);
    const Binary binary = kernels.make(asked, config, i % 4 == 0);
    memory->promote(driver.device, {"attention", asked.canonical().text()},
                    winner_of(config, binary, i), &binary);
  }
  const AttentionProblem missing = parsed(missing_problem());
  memory->put_binary(kernels.make(missing, config_of(missing, driver.device), true));
  memory->put_binary(kernels.make(missing, default_attention_config(missing, driver.device), true));
  const auto store = Store::open(path(), Access::kReadWrite);
  store->merge(*memory);  // one transaction
}

Attention WinnerDatabase::problem(int index) {
  static constexpr AttentionSizes kClasses[] = {{.dtype = DataType::kBf16, .d = 64},
                                                {.dtype = DataType::kFp16, .d = 64},
                                                {.dtype = DataType::kBf16, .d = 32},
                                                {.dtype = DataType::kBf16, .d = 80}};
  AttentionSizes sizes = kClasses[index % 4];
  sizes.nq = 16 + (index / 4) % 250;
  sizes.heads = 1 + index / 1000;
  return Attention(sizes).packed();
}

Attention WinnerDatabase::missing_problem() {
  return Attention({.batch = 3, .heads = 5, .nq = 333, .d = 64}).packed();
}

Binary WinnerDatabase::kernel(int index) const {
  const AttentionProblem asked = parsed(problem(index));
  const auto store = Store::open(path(), Access::kReadOnly);
  const auto winner =
      store->find_winner(driver_.device, {"attention", asked.canonical().text()}, Objective::kCold);
  return store->find_binary(winner.value().kernel_key).value();
}

ContextOptions WinnerDatabase::options() const {
  return {.on_miss = OnMiss::kNearest,
          .read_only = true,
          .compile = false,
          .database = path(),
          .shipped_database = "",
          .log = [](LogSeverity, std::string_view) {}};
}

TensorMemory::TensorMemory(const Driver& driver) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;  // the largest problem needs 8 MB
  context_.emplace(driver.cuda, 0);
  memory_.emplace(*driver.cuda, kBytes);
  base_ = memory_->address();
  if (test::MockCuda* mock = loaded_mock()) {
    base_ = 0x7f0000000000;  // the mock's own is one byte of the host
    mock->add_range(base_, kBytes, 0, 2);
  }
}

AttentionTensors TensorMemory::tensors(const Attention& attention) const {
  const CuPointer slice = static_cast<CuPointer>(2 * attention.desc().heads * attention.desc().d);
  return {.q = base_,
          .k = base_ + slice,
          .v = base_ + 2 * slice,
          .out = base_ + (std::size_t{32} << 20)};
}

void add_report_context(const Driver& driver) {
  benchmark::AddCustomContext("vitune_version", std::to_string(vitune_version()));
  benchmark::AddCustomContext("vitune_driver",
                              driver.is_mock ? "mock, nothing is computed" : "CUDA");
  benchmark::AddCustomContext("vitune_device", driver.device.name);
  benchmark::AddCustomContext("vitune_winners", std::to_string(WinnerDatabase::kWinners));
}

}  // namespace vitune::bench
