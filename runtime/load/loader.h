// runtime/load/loader.h -- From a choice to a kernel on the device: a stored one, or one compiled
// here.
//
// A stored kernel runs only if its key is the one computed now from our own templates, its image is
// the one that its winner was verified with, its digest and ELF bounds hold, it is for this
// architecture and not on the block list. A config from another device's winner takes a kernel only
// from the user's own database, where kernels compiled here are kept, and none that is blocked on
// that device. Each kernel is loaded once, however many problems and threads ask for it. Any number
// of threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <set>
#include <string>
#include <vector>

#include "core/env.h"
#include "core/log.h"
#include "core/primary_context.h"
#include "generator/compiler.h"
#include "runtime/load/databases.h"
#include "runtime/load/plan.h"

namespace vitune {

// The outcome of looking for one choice's kernel.
struct Found {
  std::shared_ptr<const LoadedKernel> kernel;  // null: there is none, and `why` says so
  std::string why;         // a clause: "the stored kernel 0123abcd is for sm_80"
  bool by_driver = false;  // the driver failed, not just refused an image
};

class Loader {
 public:
  Loader(const PrimaryContext& context, DeviceInfo device, Environment environment,
         Databases& databases, bool may_compile, LogSink log_sink);

  // The kernel of (`problem`, `choice`) if one is stored or loaded already. Throws CudaError if the
  // device is lost or out of memory.
  Found load_stored(const Problem& problem, const Choice& choice);
  // The kernel compiled with NVRTC, if it is not loaded already, and kept in the user's database;
  // or as another process stores it there meanwhile, which is waited for
  // (runtime/load/single_flight). With `judge` a kernel that spills or fills no SM is not taken.
  // Throws Error(kNoCompiler) if compiling is not allowed or NVRTC not there, and as load_stored().
  Found compile(const Problem& problem, const Choice& choice, bool judge);
  // The key of the stored or loaded kernel that load_stored() would take, or else why there is
  // none, as Found says it; loads nothing.
  std::optional<Digest> find_stored(const Problem& problem, const Choice& choice, std::string& why);

  bool may_compile() const { return may_compile_; }
  // Why no plan of `config` can be launched here, whoever compiles its kernels, as Found says it.
  std::optional<std::string> cannot_launch(const Problem& problem, const Config& config) const;
  // The context that kernels are loaded into.
  const PrimaryContext& context() const { return context_; }
  // Libraries that its plans call besides kernels.
  Libraries& libraries() const { return libraries_; }

  // Kernels that were passed over may be looked at again: the databases have changed.
  void forgive();

  std::uint64_t loaded() const { return loaded_.load(std::memory_order_relaxed); }
  std::uint64_t compiled() const { return compiled_.load(std::memory_order_relaxed); }
  std::uint64_t rejected() const { return rejected_.load(std::memory_order_relaxed); }

 private:
  // One kernel; its mutex is held while it is being loaded or compiled.
  struct Slot {
    std::mutex mutex;
    std::shared_ptr<const LoadedKernel> kernel;
  };
  struct Candidate {
    Digest key;
    std::optional<Binary> binary;  // nothing: it is loaded already
  };

  std::shared_ptr<Slot> slot(const Digest& key);
  bool is_loaded(const Digest& key);
  std::vector<std::string> versions(const Choice& choice);
  std::optional<std::string> not_its_sources(const Choice& choice, const Digest& key);
  std::optional<Binary> usable_binary(const Choice& choice, const CompileRequest& request,
                                      const std::vector<Digest>& keys, std::string& why);
  std::optional<std::string> bad_image(const Binary& binary, const Choice& choice,
                                       const CompileRequest& request,
                                       const std::vector<Digest>& keys);
  std::optional<Candidate> find(const Problem& problem, const Choice& choice,
                                const CompileRequest& request, std::string& why);
  // True if a layer blocks the choice's kernel by any of its keys (generator/compile_options).
  bool is_blocked(const Choice& choice, const std::vector<Digest>& keys);
  // Why the kernel is not launched for this problem, if so: it did not end when it was.
  std::optional<std::string> did_not_end(const Problem& problem, const Config& config,
                                         const std::vector<Digest>& keys);
  std::optional<Candidate> library_call(const Problem& problem, const Choice& choice,
                                        const CompileRequest& request, std::string& why);
  void load(Slot& slot, const Problem& problem, const Config& config, const Binary& binary,
            bool compiled_now);
  Found put_on_device(Slot& place, const Problem& problem, const Config& config,
                      const Binary& binary, bool compiled_now);
  CompileResult run_compiler(const Compiler& opened, const CompileRequest& request);
  std::optional<Binary> make_binary(const Problem& problem, const Config& config,
                                    const CompileRequest& request, std::string& why);
  std::optional<std::string> not_worth_loading(const Problem& problem, const Config& config,
                                               const Binary& binary) const;
  Found compile_and_keep(Slot& place, const Problem& problem, const Config& config,
                         const CompileRequest& request, bool judge);
  Found refused(const Binary& binary, const std::string& what, const CudaError* error,
                bool compiled_now);
  std::string reject(const Digest& key, const std::string& why);
  std::shared_ptr<const Compiler> compiler();
  void keep(const Binary& binary);

  const PrimaryContext& context_;
  const DeviceInfo device_;
  const Environment environment_;
  Databases& databases_;
  const bool may_compile_;
  const LogSink log_sink_;
  mutable Libraries libraries_;

  std::mutex mutex_;  // guards slots_ and rejected_keys_
  std::map<Digest, std::shared_ptr<Slot>> slots_;
  std::set<Digest> rejected_keys_;
  std::mutex opening_compiler_;               // guards compiler_
  std::shared_ptr<const Compiler> compiler_;  // once it was needed
  std::counting_semaphore<> compiling_{4};    // a storm of new problems must not take every core
  std::atomic<std::uint64_t> loaded_{0}, compiled_{0}, rejected_{0};
};

}  // namespace vitune
