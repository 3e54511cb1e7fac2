// runtime/load/loader.cpp -- Looking for stored kernels, and putting kernels on the device.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/loader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "db/binary_table.h"
#include "generator/compile_options.h"
#include "runtime/load/single_flight.h"

namespace vitune {
namespace {

// The stack that the driver sets aside for each thread from the start. A kernel with more local
// memory would have it allocated at a launch, which is not allowed in a capture.
constexpr int kMaxLocalBytes = 1024;

std::string short_name(const Digest& key) { return key.hex().substr(0, 12); }

// The driver's words for an image that it cannot run: not for this device, PTX or a binary too new
// for it. Anything else is a failure of the driver, not of the image.
bool is_about_the_image(CuResult result) {
  constexpr std::array kCodes = {200, 209, 218, 221, 222, 223, 500};
  return std::find(kCodes.begin(), kCodes.end(), result) != kCodes.end();
}

// The device whose winner the config is of, if that is another one.
const DeviceInfo* source_of(const Choice& choice) {
  return choice.outcome == LookupOutcome::kTransferred ? &choice.row->device : nullptr;
}

// True for the very image that won on another device, as a database of several GPUs has it.
bool is_sources_kernel(const Choice& choice, const Binary& binary) {
  return source_of(choice) != nullptr && choice.layer == layer_name(Layer::kUser) &&
         choice.row->winner.image_digest == image_digest(binary.image);
}

Found nothing(std::string why) { return {nullptr, std::move(why), false}; }

// The key of a kernel's row among its keys: a winner may be from before keys were made of tokens.
const Digest& stored_key(const Choice& choice, const std::vector<Digest>& keys) {
  if (choice.outcome != LookupOutcome::kExact) return keys.front();
  const auto at = std::ranges::find(keys, choice.row->winner.kernel_key);
  return at != keys.end() ? *at : keys.front();
}

}  // namespace

Loader::Loader(const PrimaryContext& context, DeviceInfo device, Environment environment,
               Databases& databases, bool may_compile, LogSink log_sink)
    : context_(context),
      device_(std::move(device)),
      environment_(std::move(environment)),
      databases_(databases),
      may_compile_(may_compile),
      log_sink_(std::move(log_sink)),
      libraries_(environment_) {}

std::shared_ptr<Loader::Slot> Loader::slot(const Digest& key) {
  const std::lock_guard lock(mutex_);
  if (const auto at = slots_.find(key); at != slots_.end()) return at->second;
  return slots_.emplace(key, std::make_shared<Slot>()).first->second;
}

bool Loader::is_loaded(const Digest& key) {
  std::shared_ptr<Slot> found;
  {
    const std::lock_guard lock(mutex_);
    const auto at = slots_.find(key);
    if (at == slots_.end()) return false;
    found = at->second;
  }
  const std::lock_guard lock(found->mutex);
  return found->kernel != nullptr;
}

void Loader::forgive() {
  const std::lock_guard lock(mutex_);
  rejected_keys_.clear();
}

// Counts and reports a stored kernel once; gives `why` back.
std::string Loader::reject(const Digest& key, const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!rejected_keys_.insert(key).second) return why;
  }
  rejected_.fetch_add(1, std::memory_order_relaxed);
  log(log_sink_, LogLevel::kWarning, why + "; it is passed over");
  return why;
}

// The compilers whose kernels may be stored for the choice, the row's own first.
std::vector<std::string> Loader::versions(const Choice& choice) {
  std::vector<std::string> result;
  if (choice.row) result.push_back(choice.row->winner.compiler_version);
  // A winner was verified as this very binary; another compiler's is for compile() to make.
  if (choice.outcome == LookupOutcome::kExact) return result;
  for (std::string& version : databases_.compiler_versions()) {
    if (std::find(result.begin(), result.end(), version) == result.end()) {
      result.push_back(std::move(version));
    }
  }
  return result;
}

std::optional<std::string> Loader::cannot_launch(const Problem& problem,
                                                 const Config& config) const {
  if (const std::int64_t version = problem.op().library_version(config)) {
    if (auto lack = libraries_.lacks_cublaslt(version)) return lack;
  }
  if (problem.op().reads_tensor_maps(config)) {
    if (auto lack = driver_lacks_tensor_maps(context_.driver())) return lack;
  }
  if (!problem.op().runs_at_once(config)) return std::nullopt;
  return driver_lacks_cooperative_launches(context_.driver());
}

bool Loader::is_blocked(const Choice& choice, const std::vector<Digest>& keys) {
  const DeviceInfo* const source = source_of(choice);
  return databases_.read([&](LayeredStore& layers) {
    return std::ranges::any_of(keys, [&](const Digest& key) {
      return layers.is_blocked(key, device_) || (source && layers.is_blocked(key, *source));
    });
  });
}

std::optional<std::string> Loader::did_not_end(const Problem& problem, const Config& config,
                                               const std::vector<Digest>& keys) {
  const ProblemKey asked{problem.operator_name(), problem.text()};
  const auto hung = databases_.read([&](LayeredStore& layers) {
    return std::ranges::find_if(
        keys, [&](const Digest& key) { return layers.did_not_end(device_, asked, config, key); });
  });
  if (hung == keys.end()) return std::nullopt;
  return formatted("the kernel {} did not end when it was tuned for this problem",
                   short_name(*hung));
}

// Why the stored kernel must not run, if so.
std::optional<std::string> Loader::bad_image(const Binary& binary, const Choice& choice,
                                             const CompileRequest& request,
                                             const std::vector<Digest>& keys) {
  const std::string name = short_name(binary.kernel_key);
  if (is_blocked(choice, keys)) return formatted("the stored kernel {} is on the block list", name);
  if (binary.arch != request.arch) {
    return formatted("the stored kernel {} is for {}, this device needs {}", name, binary.arch,
                     request.arch);
  }
  if (binary.entry != request.entry) {
    return formatted("the stored kernel {} has another entry", name);
  }
  if (binary.image.empty()) {
    return formatted("the stored winner {} calls {} of {}, which this version of vitune does not",
                     name, binary.entry, binary.compiler_version);
  }
  if (!cubin_is_well_formed(binary.image)) {
    return formatted("the stored kernel {} is damaged", name);
  }
  return std::nullopt;
}

std::optional<Binary> Loader::usable_binary(const Choice& choice, const CompileRequest& request,
                                            const std::vector<Digest>& keys, std::string& why) {
  const Digest& key = stored_key(choice, keys);
  std::optional<Digest> image;
  if (choice.outcome == LookupOutcome::kExact) image = choice.row->winner.image_digest;
  bool is_there = false;
  const auto binary = databases_.read([&](LayeredStore& layers) {
    if (source_of(choice) != nullptr) {
      Store* const own = layers.given_user();
      auto found = own != nullptr ? own->find_binary(key) : std::nullopt;
      if (found && is_sources_kernel(choice, *found)) found.reset();
      is_there = found.has_value();
      return found;
    }
    auto found = layers.find_binary(key, image);
    is_there = found || layers.has_binary(key);
    return found;
  });
  if (!is_there) return std::nullopt;
  const auto fault =
      binary
          ? bad_image(*binary, choice, request, keys)
          : formatted("the stored image of kernel {} is damaged or not the one that was verified",
                      short_name(key));
  if (!fault) return binary;
  why = reject(key, *fault);
  return std::nullopt;
}

// A winner was verified as the kernel of its row: no other may pass for it.
std::optional<std::string> Loader::not_its_sources(const Choice& choice, const Digest& key) {
  if (choice.outcome != LookupOutcome::kExact) return std::nullopt;
  const Digest& verified = choice.row->winner.kernel_key;
  if (key == verified) return std::nullopt;
  return reject(verified,
                formatted("the winner's kernel {} was made from other sources than this version "
                          "of vitune has ('vitune db rekey' keeps it if its machine code is the "
                          "same)",
                          short_name(verified)));
}

// A plan that only calls a library: its key says all that a stored row could.
std::optional<Loader::Candidate> Loader::library_call(const Problem& problem, const Choice& choice,
                                                      const CompileRequest& request,
                                                      std::string& why) {
  const std::vector<Digest> keys = keys_of(request, request.library);
  const Digest& key = keys.front();
  if (auto other = not_its_sources(choice, key)) {
    why = std::move(*other);
  } else if (is_blocked(choice, keys)) {
    why = choice.config.text() + " is on the block list";
  } else if (auto hung = did_not_end(problem, choice.config, keys)) {
    why = std::move(*hung);
  } else if (auto prune = choice.outcome != LookupOutcome::kExact
                              ? problem.op().prune(problem, choice.config, {}, device_)
                              : std::nullopt) {
    why = std::move(*prune);
  } else {
    return Candidate{key, Binary{key, request.arch, request.library, request.entry, {}, {}}};
  }
  return std::nullopt;
}

std::optional<Loader::Candidate> Loader::find(const Problem& problem, const Choice& choice,
                                              const CompileRequest& request, std::string& why) {
  if (auto lack = cannot_launch(problem, choice.config)) {
    why = std::move(*lack);
    return std::nullopt;
  }
  if (!request.library.empty()) return library_call(problem, choice, request, why);
  why = "no kernel of it is stored";
  for (const std::string& version : versions(choice)) {
    const std::vector<Digest> keys = keys_of(request, version);
    const Digest& key = stored_key(choice, keys);
    if (auto other = not_its_sources(choice, key)) {
      why = std::move(*other);
      return std::nullopt;
    }
    if (auto hung = did_not_end(problem, choice.config, keys)) {
      why = std::move(*hung);
      continue;
    }
    if (is_loaded(key)) return Candidate{key, std::nullopt};
    auto binary = usable_binary(choice, request, keys, why);
    if (!binary) continue;
    // A config verified for the problem is not judged again by rules of thumb.
    if (choice.outcome != LookupOutcome::kExact) {
      if (const auto prune = problem.op().prune(problem, choice.config, binary->compile, device_)) {
        why = formatted("the stored kernel {} {}", short_name(key), *prune);
        continue;
      }
    }
    return Candidate{key, std::move(binary)};
  }
  return std::nullopt;
}

std::optional<Digest> Loader::find_stored(const Problem& problem, const Choice& choice,
                                          std::string& why) {
  const auto request = problem.op().request(problem, choice.config, device_.arch());
  const auto candidate = find(problem, choice, request, why);
  if (candidate) return candidate->key;
  return std::nullopt;
}

Found Loader::load_stored(const Problem& problem, const Choice& choice) {
  const auto request = problem.op().request(problem, choice.config, device_.arch());
  std::string why;
  const auto candidate = find(problem, choice, request, why);
  if (!candidate) return nothing(std::move(why));
  const std::shared_ptr<Slot> place = slot(candidate->key);
  const std::lock_guard lock(place->mutex);
  if (place->kernel) return {place->kernel, {}, false};
  if (!candidate->binary) return nothing("its kernel was unloaded meanwhile");
  return put_on_device(*place, problem, choice.config, *candidate->binary, false);
}

Found Loader::put_on_device(Slot& place, const Problem& problem, const Config& config,
                            const Binary& binary, bool compiled_now) {
  try {
    load(place, problem, config, binary, compiled_now);
    return {place.kernel, {}, false};
  } catch (const CudaError& error) {
    return refused(binary, error.what(), &error, compiled_now);
  } catch (const Error& error) {
    return refused(binary, error.what(), nullptr, compiled_now);
  }
}

Found Loader::refused(const Binary& binary, const std::string& what, const CudaError* error,
                      bool compiled_now) {
  // These say nothing of the kernel: the device is lost, or its memory is taken.
  if (error != nullptr && (error->sticky() || error->result() == kCuErrorOutOfMemory)) throw;
  const std::string why =
      formatted("the kernel {} cannot be used: {}", short_name(binary.kernel_key), what);
  if (compiled_now) return {nullptr, why, error != nullptr};
  reject(binary.kernel_key, why);
  return {nullptr, why, error != nullptr && !is_about_the_image(error->result())};
}

void Loader::load(Slot& slot, const Problem& problem, const Config& config, const Binary& binary,
                  bool compiled_now) {
  const CudaDriver& driver = context_.driver();
  const CurrentContext current(context_);
  driver.check(current.result(), current.call());
  const RelaxedCapture relaxed(driver.api());
  const std::vector<KernelNeeds> needs = problem.op().kernels(problem, config);
  const CudaModule module = needs.empty() ? CudaModule(driver) : CudaModule(driver, binary.image);
  LoadedKernels loaded = LoadedKernels::of(module, needs);
  for (std::size_t i = 0; i < needs.size(); ++i) {
    const int local = loaded.kernels[i].local_bytes();
    if (local > kMaxLocalBytes) {
      throw Error(ErrorCode::kFailure,
                  formatted("it needs {} bytes of local memory per thread, {} are the most", local,
                            kMaxLocalBytes));
    }
    if (loaded.resident[i] < 1) {
      throw Error(ErrorCode::kFailure,
                  formatted("{} threads with {} bytes of shared memory do not fit on an SM",
                            needs[i].threads, needs[i].shared_bytes));
    }
  }
  slot.kernel = std::make_shared<const LoadedKernel>(
      LoadedKernel{std::move(loaded), binary.kernel_key, compiled_now});
  loaded_.fetch_add(1, std::memory_order_relaxed);
}

std::shared_ptr<const Compiler> Loader::compiler() {
  if (!may_compile_) {
    throw Error(ErrorCode::kNoCompiler, "compiling is switched off by the context's options");
  }
  const std::lock_guard lock(opening_compiler_);
  if (!compiler_) compiler_ = Compiler::open(environment_);
  return compiler_;
}

CompileResult Loader::run_compiler(const Compiler& opened, const CompileRequest& request) {
  compiling_.acquire();
  CompileResult result;
  try {
    result = opened.compile(request);
  } catch (...) {
    compiling_.release();
    throw;
  }
  compiling_.release();
  compiled_.fetch_add(1, std::memory_order_relaxed);
  return result;
}

// The compiled kernel as it is stored; nothing if it does not compile.
std::optional<Binary> Loader::make_binary(const Problem& problem, const Config& config,
                                          const CompileRequest& request, std::string& why) {
  const auto opened = compiler();
  CompileResult result = run_compiler(*opened, request);
  if (result.status != CompileStatus::kOk) {
    why = formatted("{} does not compile: {}", config.text(), result.log);
    return std::nullopt;
  }
  log(log_sink_, LogLevel::kInfo,
      formatted("compiled {} for '{}' in {:.0f} ms with {}", config.text(), problem.text(),
                result.facts.compile_ms, opened->version()));
  result.facts.shared_bytes += dynamic_shared_bytes(problem, config);
  return Binary{kernel_key(request, opened->version()),
                request.arch,
                opened->version(),
                request.entry,
                result.facts,
                std::move(result.cubin)};
}

Found Loader::compile(const Problem& problem, const Choice& choice, bool judge) {
  const auto request = problem.op().request(problem, choice.config, device_.arch());
  if (!request.library.empty()) return load_stored(problem, choice);  // nothing to compile
  const std::vector<Digest> keys = keys_of(request, compiler()->version());
  if (is_blocked(choice, keys)) return nothing(choice.config.text() + " is on the block list");
  if (auto hung = did_not_end(problem, choice.config, keys)) return nothing(std::move(*hung));
  const std::shared_ptr<Slot> place = slot(keys.front());
  const std::lock_guard lock(place->mutex);
  if (place->kernel) return {place->kernel, {}, false};
  const WorkLock turn = turn_to_compile(databases_.written(), keys.front(), log_sink_);
  const auto stored = stored_meanwhile(databases_.written(), keys, device_, log_sink_);
  if (stored && !is_sources_kernel(choice, *stored) && !bad_image(*stored, choice, request, keys)) {
    if (judge) {
      if (auto why = not_worth_loading(problem, choice.config, *stored)) return nothing(*why);
    }
    Found found = put_on_device(*place, problem, choice.config, *stored, false);
    if (found.kernel || found.by_driver) return found;
  }
  return compile_and_keep(*place, problem, choice.config, request, judge);
}

// As an outcome's `why`, if so.
std::optional<std::string> Loader::not_worth_loading(const Problem& problem, const Config& config,
                                                     const Binary& binary) const {
  const auto prune = problem.op().prune(problem, config, binary.compile, device_);
  if (!prune) return std::nullopt;
  return formatted("{} {}", config.text(), *prune);
}

Found Loader::compile_and_keep(Slot& place, const Problem& problem, const Config& config,
                               const CompileRequest& request, bool judge) {
  std::string why;
  const auto binary = make_binary(problem, config, request, why);
  if (!binary) return nothing(std::move(why));
  if (judge) {
    if (auto reason = not_worth_loading(problem, config, *binary)) {
      keep(*binary);  // or every process would compile it to find that out
      return nothing(std::move(*reason));
    }
  }
  Found found = put_on_device(place, problem, config, *binary, true);
  if (found.kernel) keep(*binary);
  return found;
}

void Loader::keep(const Binary& binary) {
  databases_.write("a compiled kernel", [&](Store& store) { store.put_binary(binary); });
}

}  // namespace vitune
