// tests/runtime/runtime_fixture.h -- libvitune on the mock driver, with databases of the test's
// own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "db/store.h"
#include "generator/attention/kernel_spec.h"
#include "generator/operator.h"
#include "tests/db/test_support.h"
#include "tests/generator/elf_image.h"
#include "tests/generator/near_configs.h"
#include "tests/runtime/descriptor_fuzzer.h"
#include "tests/runtime/libc_counters.h"
#include "tests/runtime/mock_image.h"
#include "tests/runtime/mock_libcuda.h"
#include "vitune/vitune.h"

namespace vitune::test {

inline constexpr const char* kCompilerVersion = "nvrtc 13.0 0123456789ab";
inline constexpr const char* kVitB = "bf16 b=2 h=12 n=197 d=64";

// A kernel of a problem as `vitune tune` would store it.
struct StoredKernel {
  AttentionProblem problem;
  Config config;
  Binary binary;
  std::uint64_t image_id() const { return mock_image_id(binary.image.data(), binary.image.size()); }
};

// A well-formed image that differs from those of other seeds.
inline std::vector<std::byte> image_of(unsigned seed) {
  std::vector<std::byte> image = elf_image();
  Elf64_Ehdr header;
  std::memcpy(&header, image.data(), sizeof(header));
  Elf64_Shdr code;
  std::memcpy(&code, image.data() + header.e_shoff + 3 * sizeof(code), sizeof(code));
  std::memcpy(image.data() + code.sh_offset, &seed, sizeof(seed));
  return image;
}

// The kernel of (`problem`, `config`) with its true key and a hand-made image.
inline StoredKernel make_kernel(const AttentionProblem& problem, const Config& config,
                                unsigned seed, const std::string& version = kCompilerVersion) {
  StoredKernel kernel{problem, config, {}};
  const CompileRequest request = attention_compile_request(problem, config, mock_device().arch());
  kernel.binary.kernel_key = kernel_key(request, version);
  kernel.binary.arch = request.arch;
  kernel.binary.compiler_version = version;
  kernel.binary.entry = request.entry;
  kernel.binary.compile = {128, 0, dynamic_shared_bytes(*ProblemPtr(problem), config), 100};
  kernel.binary.image = image_of(seed);
  return kernel;
}

// A config of the space that is not the default one; `which` chooses among them.
inline Config other_config(const AttentionProblem& problem, std::size_t which = 0) {
  const Config standard = default_attention_config(problem, mock_device());
  const auto near = configs_near(attention_space(problem, mock_device()), standard);
  return near.at(which % near.size());
}

inline StoredKernel make_kernel(std::string_view text, unsigned seed) {
  const AttentionProblem problem = AttentionProblem::parse(text);
  return make_kernel(problem, other_config(problem), seed);
}

// A kernel that holds the key count as a constant, so that no other problem shares it.
inline StoredKernel own_kernel(const AttentionProblem& problem, unsigned seed) {
  Config config = default_attention_config(problem, mock_device());
  config.set("kConstantKeys", 1);
  if (const auto why = attention_space(problem, mock_device()).explain(config)) {
    throw std::runtime_error(problem.text() + ": " + *why);
  }
  return make_kernel(problem, config, seed);
}

// The kernel that serves a problem without any row.
inline StoredKernel default_kernel(std::string_view text, unsigned seed) {
  const AttentionProblem problem = AttentionProblem::parse(text);
  return make_kernel(problem, default_attention_config(problem, mock_device()), seed);
}

inline Winner winner_of(const StoredKernel& kernel, double cold_us) {
  Winner winner = sample_winner(1);
  winner.config = kernel.config;
  winner.kernel_key = kernel.binary.kernel_key;
  winner.runner_up = default_attention_config(kernel.problem, mock_device());
  winner.measurement = sample_measurement(cold_us);
  winner.compiler_version = kernel.binary.compiler_version;
  return winner;
}

inline ProblemKey key_of(const AttentionProblem& problem) {
  return {"attention", problem.canonical().text()};
}

// Stores the kernel as a verified winner with its binary, as another process would.
inline void promote(const fs::path& database, const StoredKernel& kernel, double cold_us = 20) {
  const auto store = Store::open(database, Access::kReadWrite);
  store->promote(mock_device(), key_of(kernel.problem), winner_of(kernel, cold_us), &kernel.binary);
}

inline void put_binary(const fs::path& database, const StoredKernel& kernel) {
  Store::open(database, Access::kReadWrite)->put_binary(kernel.binary);
}

// Device addresses of one call.
struct Tensors {
  const void *q = nullptr, *k = nullptr, *v = nullptr, *bias = nullptr, *mask = nullptr;
  void* out = nullptr;
  float* lse = nullptr;
};

// The lines that a context logged.
class LogBook {
 public:
  static void receive(void* user, int32_t level, const char* message) {
    auto* book = static_cast<LogBook*>(user);
    const std::lock_guard lock(book->mutex_);
    book->lines_.emplace_back(level, message);
  }
  std::vector<std::pair<int32_t, std::string>> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  // Messages of at least `level` that contain `word`.
  int count(int32_t level, std::string_view word) const {
    int found = 0;
    for (const auto& [at, text] : lines()) {
      found += at >= level && text.find(word) != std::string::npos;
    }
    return found;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<int32_t, std::string>> lines_;
};

// Destroys the context with its scope.
class Context {
 public:
  Context() = default;
  explicit Context(const vitune_context_options& options) {
    status_ = vitune_context_create(&options, &context_);
    EXPECT_EQ(status_, VITUNE_OK) << vitune_last_error();
  }
  ~Context() { destroy(); }
  Context(Context&& other) noexcept : context_(std::exchange(other.context_, nullptr)) {}
  Context& operator=(Context&&) = delete;
  void destroy() {
    if (vitune_context* const old = std::exchange(context_, nullptr)) vitune_context_destroy(old);
  }
  vitune_context* get() const { return context_; }

 private:
  vitune_context* context_ = nullptr;
  vitune_status status_ = VITUNE_OK;
};

class RuntimeTest : public ::testing::Test {
 protected:
  RuntimeTest() : mock_(open_mock_cuda(VITUNE_MOCK_LIBCUDA)) {}
  void SetUp() override {
    if (mock_ == nullptr) GTEST_SKIP() << "this process has loaded the machine's own driver";
    for (const char* name : {"VITUNE_DB", "VITUNE_CACHE_DIR", "VITUNE_MISS", "VITUNE_CAPTURE",
                             "VITUNE_DISABLE", "VITUNE_LOG_LEVEL", "VITUNE_LOG_CMD"}) {
      unsetenv(name);
    }
    setenv("HOME", directory_.path().c_str(), 1);
    unsetenv("XDG_CACHE_HOME");
    live_before_ = mock_->live().total();
    mock_->set_current(nullptr);
  }
  void TearDown() override {
    hide_nvrtc(false);
    if (mock_ == nullptr) return;
    mock_->hold_loads(false);
    mock_->clear_failures();
    EXPECT_EQ(mock_->live().total(), live_before_) << "the test left driver objects behind";
  }

  fs::path database() const { return directory_ / "user.db"; }
  fs::path shipped() const { return directory_ / "shipped.db"; }

  // Options of a context on this test's databases that never compiles and logs to log_.
  vitune_context_options options() {
    vitune_context_options options = VITUNE_CONTEXT_OPTIONS_INIT;
    options.database = database_text_.c_str();
    options.shipped_database = "";
    options.no_compile = 1;
    options.log = LogBook::receive;
    options.log_user = &log_;
    return options;
  }
  Context make_context() { return Context(options()); }

  static vitune_attention_desc desc_of(std::string_view text) {
    return describe(AttentionProblem::parse(text));
  }

  // Buffers of device 0 for all that the problem reads and writes, 1 MiB apart at least.
  Tensors tensors_of(const AttentionProblem& problem) {
    const std::int64_t size = element_bytes(problem.dtype);
    Tensors t;
    t.q = buffer(problem.q_extent() * size);
    t.k = buffer(problem.k_extent() * size);
    t.v = buffer(problem.v_extent() * size);
    t.out = buffer(problem.o_extent() * size);
    if (problem.bias) t.bias = buffer(problem.bias_extent() * element_bytes(problem.bias->type));
    if (problem.mask) t.mask = buffer(problem.mask_extent());
    if (problem.lse) {
      t.lse = static_cast<float*>(buffer(4 * problem.batch * problem.heads * problem.nq));
    }
    return t;
  }
  Tensors tensors_of(std::string_view text) { return tensors_of(AttentionProblem::parse(text)); }

  // The status of one call from each of `threads` threads, which all start at once.
  static std::vector<vitune_status> calls_at_once(const Context& context,
                                                  const vitune_attention_desc& desc,
                                                  const Tensors& tensors, int threads) {
    std::vector<vitune_status> statuses(static_cast<std::size_t>(threads));
    std::barrier start(threads);
    std::vector<std::jthread> running;
    for (vitune_status& status : statuses) {
      running.emplace_back([&] {
        start.arrive_and_wait();
        status = forward(context, desc, tensors);
        if (status != VITUNE_OK) {
          EXPECT_STRNE(vitune_last_error(), "");
        }
      });
    }
    running.clear();  // joins
    return statuses;
  }

  void* buffer(std::int64_t bytes, int device = 0, int memory_type = 2) {
    const CuPointer address = next_address_;
    mock_->add_range(address, static_cast<std::size_t>(bytes), device, memory_type);
    next_address_ += ((static_cast<CuPointer>(bytes) >> 20) + 2) << 20;
    return reinterpret_cast<void*>(address);
  }

  static vitune_status forward(const Context& context, const vitune_attention_desc& desc,
                               const Tensors& t, CuStreamTag* stream = kStream) {
    return vitune_attention_forward(context.get(), &desc, t.q, t.k, t.v, t.bias, t.mask, t.out,
                                    t.lse, nullptr, 0, stream);
  }

  static vitune_selection query(const Context& context, const vitune_attention_desc& desc) {
    vitune_selection selection = VITUNE_SELECTION_INIT;
    EXPECT_EQ(vitune_query(context.get(), &desc, &selection), VITUNE_OK) << vitune_last_error();
    return selection;
  }

  static vitune_stats stats(const Context& context) {
    vitune_stats stats = VITUNE_STATS_INIT;
    EXPECT_EQ(vitune_context_stats(context.get(), &stats), VITUNE_OK) << vitune_last_error();
    return stats;
  }

  // Names of the driver calls since the log was cleared.
  std::vector<std::string> call_names() {
    std::vector<std::string> names;
    for (MockCall& call : mock_->calls()) names.push_back(std::move(call.name));
    return names;
  }
  std::int64_t calls_of(std::string_view name) {
    const auto names = call_names();
    return std::count(names.begin(), names.end(), name);
  }

  static inline CuStreamTag* const kStream = reinterpret_cast<CuStreamTag*>(0x5000);

  MockCuda* mock_;
  TempDir directory_;
  LogBook log_;

 private:
  const std::string database_text_ = database().string();  // what options() points to
  CuPointer next_address_ = 0x7f0000000000;
  int live_before_ = 0;
};

}  // namespace vitune::test

// The status of a call, with the sentence where it is another.
#define EXPECT_STATUS(expected, call) EXPECT_EQ(call, expected) << vitune_last_error()
#define ASSERT_STATUS(expected, call) ASSERT_EQ(call, expected) << vitune_last_error()
// A call that fails with this status and a sentence that has these words.
#define EXPECT_REFUSED(expected, call, words) \
  EXPECT_STATUS(expected, call);              \
  EXPECT_THAT(vitune_last_error(), ::testing::ContainsRegex(words))
