// tests/runtime/library_damage_gpu_test.cpp -- libvitune on a real GPU whose database holds kernels
// that must not run, under digests that are right.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <functional>
#include <stdexcept>
#include <string_view>

#include "db/binary_table.h"
#include "db/table.h"
#include "tests/generator/asked.h"
#include "tests/generator/near_configs.h"
#include "tests/runtime/library_gpu_fixture.h"

namespace vitune::test {
namespace {

using testing::HasSubstr;

class LibraryDamageGpuTest : public LibraryGpuTest {
 protected:
  static constexpr const char* kProblem = "bf16 b=2 h=2 n=50 d=64";

  static AttentionProblem problem() { return AttentionProblem::parse(kProblem).canonical(); }
  // Configs that differ from the defaults in one parameter and that any architecture can run.
  std::vector<Config> others() const {
    const std::vector<Config> defaults = default_attention_configs(problem(), device_);
    const ParameterSpace space = attention_space(problem(), device_);
    std::vector<Config> found;
    for (const Config& config : defaults) {
      for (Config& near : test::configs_near(space, config)) {
        const bool known = std::find(defaults.begin(), defaults.end(), near) != defaults.end();
        if (!known && near.at("kSwizzle") == 0) found.push_back(std::move(near));
      }
    }
    return found;
  }

  // The kernel of a config as this device has it; with code for `code_arch`, if that is given.
  StoredKernel compiled(const Config& config, const char* code_arch = nullptr) const {
    CompileRequest request = attention_compile_request(problem(), config, device_.arch());
    const Digest key = kernel_key(request, compiler_->version());
    const std::string arch = request.arch;
    if (code_arch != nullptr) request.arch = code_arch;
    CompileResult result = compiler_->compile(request);
    if (result.status != CompileStatus::kOk) throw std::runtime_error(result.log);
    result.facts.shared_bytes += dynamic_shared_bytes(*ProblemPtr(problem()), config);
    return {
        problem(),
        config,
        {key, arch, compiler_->version(), request.entry, result.facts, std::move(result.cubin)}};
  }

  // The first that the library would not pass over by its registers or spills.
  StoredKernel first_good(const std::vector<Config>& configs) const {
    for (const Config& config : configs) {
      StoredKernel kernel = compiled(config);
      if (!testing_support::pruned(problem(), config, kernel.binary.compile, device_))
        return kernel;
    }
    throw std::runtime_error("none of the configs is good");
  }

  // As the only winner of its problem on `device`, with right digests.
  void store_winner(const DeviceInfo& device, const StoredKernel& kernel) const {
    Winner winner = winner_of(kernel, 20);
    winner.runner_up.reset();
    Store::open(database_text_, Access::kReadWrite)
        ->promote(device, key_of(kernel.problem), winner, &kernel.binary);
  }

  // Another image in the row of the verified one.
  void damage_image_of(const StoredKernel& kernel) const {
    Connection raw(database_text_, Connection::Mode::kReadWrite);
    DamageLog damage{LogSink()};
    StoredTable binaries(raw, kBinaryTable, damage);
    Binary cut = kernel.binary;
    cut.image.resize(cut.image.size() / 2);
    Row row = binary_row(cut);
    row[1] = binary_row(kernel.binary)[1];
    binaries.put(row);
  }

  void put_default() const {
    Store::open(database_text_, Access::kReadWrite)
        ->put_binary(first_good(default_attention_configs(problem(), device_)).binary);
  }

  // A new context serves kProblem rightly by the stored default kernel, has passed over one other
  // and says so with `words`.
  void expect_default_instead(const std::string& words) {
    const AttentionCall call(*driver_, kProblem, kSeed);
    const Context context = make_context();
    EXPECT_EQ(answer_of(context, call), "");
    const vitune_selection found = query(context, call);
    EXPECT_EQ(found.outcome, VITUNE_DEFAULT);
    EXPECT_STREQ(found.row, "");
    EXPECT_THAT(found.reason, HasSubstr("passed over"));
    EXPECT_THAT(found.reason, HasSubstr(words));
    EXPECT_EQ(stats(context).default_calls, 1u);
    EXPECT_EQ(stats(context).rejected, 1u);
    EXPECT_EQ(stats(context).kernels_compiled, 0u);
  }
};

void flip(std::vector<std::byte>& image, std::size_t at, unsigned bits) {
  image.at(at) ^= static_cast<std::byte>(bits);
}

struct Damage {
  const char* name;
  std::function<void(Binary&)> apply;
  const char* words;  // of the reason
};

// Code that differs is not among them: nothing but the row's digest can tell it from the right one.
const std::array kDamages = {
    Damage{"magic number", [](Binary& b) { flip(b.image, 1, 4); }, "is damaged"},
    Damage{"machine", [](Binary& b) { flip(b.image, offsetof(Elf64_Ehdr, e_machine), 1); },
           "is damaged"},
    Damage{"place of the section table",
           [](Binary& b) { flip(b.image, offsetof(Elf64_Ehdr, e_shoff) + 5, 1); }, "is damaged"},
    Damage{"second half", [](Binary& b) { b.image.resize(b.image.size() / 2); }, "is damaged"},
    Damage{"kernel's name",
           [](Binary& b) {
             const auto* name = reinterpret_cast<const std::byte*>(b.entry.data());
             auto at = b.image.begin();
             while ((at = std::search(at, b.image.end(), name, name + b.entry.size())) !=
                    b.image.end()) {
               flip(b.image, static_cast<std::size_t>(at - b.image.begin()), 1);
             }
           },
           "cannot be used"},
    Damage{"architecture", [](Binary& b) { b.arch = "sm_80"; }, "is for sm_80"},
};

TEST_F(LibraryDamageGpuTest, ADamagedWinnerIsPassedOverForAStoredDefault) {
  put_default();
  const StoredKernel sound = first_good(others());
  store_winner(device_, sound);
  {
    const AttentionCall call(*driver_, kProblem, kSeed);
    const Context context = make_context();
    ASSERT_EQ(answer_of(context, call), "");
    ASSERT_EQ(query(context, call).outcome, VITUNE_EXACT) << "the sound kernel does serve";
  }
  for (const Damage& damage : kDamages) {
    SCOPED_TRACE(damage.name);
    StoredKernel damaged = sound;
    damage.apply(damaged.binary);
    ASSERT_TRUE(damaged.binary.image != sound.binary.image ||
                damaged.binary.arch != sound.binary.arch);
    store_winner(device_, damaged);
    ASSERT_EQ(Store::open(database_text_, Access::kReadOnly)->check().bad_rows, 0);
    expect_default_instead(damage.words);
  }
}

TEST_F(LibraryDamageGpuTest, ADamagedWinnerWithNothingElseStoredIsCompiledAndStoredAnew) {
  const StoredKernel kernel = first_good(others());
  store_winner(device_, kernel);
  damage_image_of(kernel);
  const AttentionCall call(*driver_, kProblem, kSeed);
  for (const std::uint64_t damaged : {1u, 0u}) {
    const Context context = make_context();
    EXPECT_EQ(answer_of(context, call), "");
    EXPECT_EQ(query(context, call).outcome, VITUNE_EXACT);
    EXPECT_EQ(stats(context).rejected, damaged);
    EXPECT_EQ(stats(context).kernels_compiled, damaged);
  }
}

TEST_F(LibraryDamageGpuTest, CodeForAnotherArchitectureInDisguiseIsRefusedByTheDriver) {
  if (emulated_) GTEST_SKIP() << "the emulated device runs code of any architecture";
  put_default();
  const Config config = first_good(others()).config;
  store_winner(device_, compiled(config, device_.cc_major == 8 ? "sm_90" : "sm_80"));
  expect_default_instead("cannot be used");
}

TEST_F(LibraryDamageGpuTest, ADatabaseOfALikeGpuGivesItsConfigAlone) {
  DeviceInfo another = device_;
  another.sm_count += 2;
  store_winner(another, first_good(others()));
  const AttentionCall call(*driver_, kProblem, kSeed);
  const Context context = make_context();

  EXPECT_EQ(answer_of(context, call), "");
  const vitune_selection found = query(context, call);
  EXPECT_EQ(found.outcome, VITUNE_TRANSFERRED);
  EXPECT_THAT(found.row, HasSubstr("b=2 h=2 nq=50 nk=50 d=64"));
  EXPECT_THAT(found.reason, HasSubstr("transferred from " + another.name));
  EXPECT_EQ(stats(context).rejected, 0u) << "another GPU's winner is no candidate here";
}

}  // namespace
}  // namespace vitune::test
