// tests/cli/memory_test.cpp -- What the command does where there is too little memory.
// SPDX-License-Identifier: Apache-2.0
#include <zstd.h>

#include "tests/cli/command_fixture.h"

namespace vitune::testing {
namespace {

using ::testing::HasSubstr;

class LittleMemory : public CommandTest {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "AddressSanitizer needs terabytes of addresses";
#endif
  }
  static constexpr rlim_t kMiB = 1 << 20;
};

TEST_F(LittleMemory, ARecordingOfAFewKilobytesTakesNoGigabyte) {
  std::string text = "{\"problems\":[{}";
  for (int i = 0; i < 60'000'000; ++i) text += ",{}";
  text += "]}";
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  const fs::path bomb = write_file("bomb.recording", packed);

  CommandOptions options;
  options.memory_limit = 1024 * kMiB;
  const CommandResult result = run({"tune", "--device", "replay:" + bomb.string()}, options);
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("more values than any recording"));
}

// Whatever it is that finds no memory: a value being copied, one being destroyed, the message.
TEST_F(LittleMemory, NoCommandIsEndedByASignal) {
  const fs::path data = fs::path(VITUNE_SOURCE_DIR) / "data";
  const std::string shipped = (data / "winners.db").string();
  const std::vector<std::vector<std::string>> commands = {
      {"show", "--json", "--db", shipped},
      {"db", "export", "--json", "--db", shipped},
  };
  int without_memory = 0;
  for (const auto& command : commands) {
    // Small steps from where the loader is through: the runtime has no reserve for exceptions
    // there.
    int small_steps = 32;
    rlim_t step = kMiB / 16;
    for (rlim_t limit = 14 * kMiB; limit <= 34 * kMiB; limit += step) {
      CommandOptions options;
      options.memory_limit = limit;
      const CommandResult result = run(command, options);
      // 127: the loader found no room for the libraries.
      EXPECT_THAT(result.status, ::testing::AnyOf(0, 1, 2, 3, 5, 127))
          << command[0] << " with " << limit / 1024 << " KiB: " << result.err.substr(0, 300);
      if (result.status != 127) step = small_steps-- > 0 ? kMiB / 64 : kMiB / 4;
      without_memory += result.status == 1 && result.err.find("memory") != std::string::npos;
    }
  }
  EXPECT_GT(without_memory, 5) << "no limit was one that tells";
}

}  // namespace
}  // namespace vitune::testing
