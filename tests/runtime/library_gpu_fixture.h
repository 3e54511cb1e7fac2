// tests/runtime/library_gpu_fixture.h -- libvitune on the machine's GPU, with a database of the
// test's own, or a visible skip.
//
// Needs a process of its own: where another suite has loaded the mock driver, or where there is no
// GPU or no NVRTC, each test is skipped.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "core/env.h"
#include "generator/compiler.h"
#include "tests/runtime/attention_call.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {

inline constexpr std::uint64_t kSeed = 20261120;
inline constexpr int kSampledRows = 40;

class LibraryGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"VITUNE_DB", "VITUNE_CACHE_DIR", "VITUNE_MISS", "VITUNE_CAPTURE",
                             "VITUNE_DISABLE", "VITUNE_LOG_LEVEL", "VITUNE_LOG_CMD"}) {
      unsetenv(name);
    }
    void* const loaded = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (loaded != nullptr && dlsym(loaded, "vitune_mock_cuda") != nullptr) {
      GTEST_SKIP() << "this process has the mock driver: run LibraryGpuTest in one of its own";
    }
    try {
      driver_ = CudaDriver::open();
      device_ = driver_->device_info(0);
      compiler_ = Compiler::open(read_environment());
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    emulated_ = device_.name == "emulated device";
    cuda_.emplace(driver_, 0);
    stream_.emplace(*driver_);
  }

  // Options of a context on this test's database alone, which may compile.
  vitune_context_options options() {
    vitune_context_options options = VITUNE_CONTEXT_OPTIONS_INIT;
    options.database = database_text_.c_str();
    options.shipped_database = "";
    options.log = LogBook::receive;
    options.log_user = &log_;
    return options;
  }
  Context make_context() { return Context(options()); }

  // Calls once and says what is wrong with the answer; empty if nothing is.
  std::string answer_of(const Context& context, const AttentionCall& call) const {
    call.clear(*stream_);
    if (call.forward(context.get(), *stream_) != VITUNE_OK) return vitune_last_error();
    return call.what_is_wrong(call.output(*stream_), kSampledRows, kSeed);
  }

  static vitune_selection query(const Context& context, const AttentionCall& call) {
    vitune_selection selection = VITUNE_SELECTION_INIT;
    EXPECT_STATUS(VITUNE_OK, vitune_query(context.get(), &call.desc(), &selection));
    return selection;
  }
  static vitune_stats stats(const Context& context) {
    vitune_stats stats = VITUNE_STATS_INIT;
    EXPECT_STATUS(VITUNE_OK, vitune_context_stats(context.get(), &stats));
    return stats;
  }

  std::shared_ptr<const CudaDriver> driver_;
  std::shared_ptr<const Compiler> compiler_;
  DeviceInfo device_;
  bool emulated_ = false;
  TempDir directory_;
  const std::string database_text_ = (directory_ / "user.db").string();
  LogBook log_;
  std::optional<CudaContext> cuda_;
  std::optional<CudaStream> stream_;
};

}  // namespace vitune::test
