// tests/runtime/c_api_compile_test.cpp -- Compiling in process, real cubins, and no compiler at
// all.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <random>

#include "generator/attention/operator.h"
#include "generator/compile_options.h"
#include "generator/config_family.h"
#include "tests/generator/compile_support.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

// Small, so that it compiles fast.
constexpr const char* kCompiled = "bf16 b=2 h=3 n=33 d=32";

class CApiCompileTest : public RuntimeTest {
 protected:
  vitune_context_options compiling() {
    vitune_context_options chosen = options();
    chosen.no_compile = 0;
    return chosen;
  }
  vitune_status call(const Context& context, const char* text = kCompiled) {
    return forward(context, desc_of(text), tensors_of(text));
  }
  // A winner of a problem of the same class, with a config that is in both spaces and a kernel that
  // nobody stored; and the default of kCompiled with its kernel. Gives the texts of both configs.
  std::pair<std::string, std::string> put_neighbour_and_default() {
    const StoredKernel standard = default_kernel(kCompiled, 1);
    const AttentionProblem neighbour = AttentionProblem::parse("bf16 b=2 h=3 n=35 d=32");
    const ParameterSpace space = attention_space(standard.problem, mock_device());
    for (const Config& config : attention_space(neighbour, mock_device()).enumerate()) {
      const auto defaults = default_attention_configs(standard.problem, mock_device());
      if (space.explain(config) || config.at("kConstantKeys") != 0) continue;
      if (std::find(defaults.begin(), defaults.end(), config) != defaults.end()) continue;
      const StoredKernel best = make_kernel(neighbour, config, 2);
      const auto store = Store::open(database(), Access::kReadWrite);
      store->put_binary(standard.binary);
      store->promote(mock_device(), key_of(neighbour), winner_of(best, 5), nullptr);
      return {shown_text(attention(), config), shown_text(attention(), standard.config)};
    }
    throw std::runtime_error("no config fits both problems");
  }
  // The kernel of (kCompiled, `config`) as NVRTC makes it.
  StoredKernel compile(const Compiler& compiler, const Config& config) {
    StoredKernel kernel =
        make_kernel(AttentionProblem::parse(kCompiled), config, 1, compiler.version());
    const CompileResult result =
        compiler.compile(attention_compile_request(kernel.problem, config, mock_device().arch()));
    EXPECT_EQ(result.status, CompileStatus::kOk) << result.log;
    kernel.binary.image = result.cubin;
    kernel.binary.compile = result.facts;
    return kernel;
  }
};

TEST_F(CApiCompileTest, WithoutACompilerAStoredKernelServesAndNothingElse) {
  hide_nvrtc(true);
  promote(database(), make_kernel(kVitB, 1));
  const std::uint64_t before = nvrtc_opens();
  const Context context(compiling());
  EXPECT_STATUS(VITUNE_OK, call(context, kVitB));
  EXPECT_EQ(nvrtc_opens(), before) << "libnvrtc is not opened before it is needed";
  EXPECT_REFUSED(VITUNE_NO_COMPILER, call(context), "libnvrtc");
  EXPECT_THAT(vitune_last_error(), testing::ContainsRegex("CUDA_HOME|install|vitune tune"));
  EXPECT_GT(nvrtc_opens(), before);
  const std::uint64_t tried = nvrtc_opens();
  EXPECT_REFUSED(VITUNE_NO_COMPILER, call(context), "libnvrtc");
  EXPECT_EQ(nvrtc_opens(), tried) << "a failure is remembered";
}

TEST_F(CApiCompileTest, AProblemWithoutAnyKernelIsCompiledOnceAndKept) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const Config config = default_attention_config(AttentionProblem::parse(kCompiled), mock_device());
  {
    const Context context(compiling());
    ASSERT_STATUS(VITUNE_OK, call(context));
    ASSERT_STATUS(VITUNE_OK, call(context));
    const vitune_selection found = query(context, desc_of(kCompiled));
    EXPECT_EQ(found.outcome, VITUNE_DEFAULT);
    EXPECT_EQ(found.compiled, 1);
    EXPECT_EQ(std::string(found.config), shown_text(attention(), config));
    EXPECT_EQ(stats(context).kernels_compiled, 1u);
  }
  hide_nvrtc(true);
  const Context later(compiling());
  ASSERT_STATUS(VITUNE_OK, call(later)) << "the kernel was kept in the database";
  EXPECT_EQ(query(later, desc_of(kCompiled)).compiled, 0);
  EXPECT_EQ(stats(later).kernels_compiled, 0u);
}

TEST_F(CApiCompileTest, AKernelThatIsBlockedByTheRuleOfBeforeIsNotCompiled) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const AttentionProblem problem = AttentionProblem::parse(kCompiled);
  const Config config = default_attention_config(problem, mock_device());
  const CompileRequest request = attention_compile_request(problem, config, mock_device().arch());
  Store::open(database(), Access::kReadWrite)
      ->block({text_kernel_key(request, compiler->version()), mock_device().key(),
               mock_device().driver_version, TrialStatus::kWrong, "max error 0.5"});
  const Context context(compiling());
  if (call(context) != VITUNE_OK) return;
  EXPECT_NE(std::string(query(context, desc_of(kCompiled)).config),
            shown_text(attention(), config));
}

TEST_F(CApiCompileTest, AContextThatMayNotWriteCompilesForItselfOnly) {
  VITUNE_REQUIRE_COMPILER(compiler);
  promote(database(), make_kernel(kVitB, 1));
  const std::string before = read_bytes(database());
  vitune_context_options quiet = compiling();
  quiet.read_only = 1;
  {
    const Context context(quiet);
    EXPECT_STATUS(VITUNE_OK, call(context));
    EXPECT_EQ(stats(context).kernels_compiled, 1u);
  }
  EXPECT_EQ(read_bytes(database()), before);
}

TEST_F(CApiCompileTest, NoCompileMeansNoCompile) {
  const std::uint64_t before = nvrtc_opens();
  const Context context(options());
  EXPECT_NE(call(context), VITUNE_OK);
  EXPECT_EQ(nvrtc_opens(), before);
  EXPECT_EQ(stats(context).kernels_compiled, 0u);
}

TEST_F(CApiCompileTest, AMuchSlowerStoredKernelDoesNotKeepABetterOneFromBeingCompiled) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const char* const text = "bf16 b=32 h=12 n=1024 d=64";
  const AttentionProblem problem = AttentionProblem::parse(text);
  const AttentionProblem neighbour = AttentionProblem::parse("bf16 b=32 h=12 n=1040 d=64");
  const Config fast = default_attention_config(neighbour, mock_device());
  const Config slow = default_attention_configs(problem, mock_device()).back();
  const StoredKernel stored = make_kernel(problem, slow, 1, compiler->version());
  put_binary(database(), stored);
  Store::open(database(), Access::kReadWrite)
      ->promote(mock_device(), key_of(neighbour), winner_of(make_kernel(neighbour, fast, 2), 400),
                nullptr);
  {
    // A kernel that cannot be compiled cannot be waited for.
    const Context context(options());
    ASSERT_STATUS(VITUNE_OK, call(context, text));
    EXPECT_EQ(std::string(query(context, desc_of(text)).config), shown_text(attention(), slow));
  }
  const Context context(compiling());
  EXPECT_NE(std::string(query(context, desc_of(text)).config), shown_text(attention(), slow))
      << "as it would be";
  ASSERT_STATUS(VITUNE_OK, call(context, text));
  const vitune_selection found = query(context, desc_of(text));
  EXPECT_EQ(found.compiled, 1);
  EXPECT_NE(std::string(found.config), slow.text());
  EXPECT_EQ(stats(context).kernels_compiled, 1u);
}

TEST_F(CApiCompileTest, AWinnerWhoseBinaryIsGoneIsCompiledAgain) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const AttentionProblem problem = AttentionProblem::parse(kCompiled);
  const StoredKernel kernel = make_kernel(problem, other_config(problem), 1, compiler->version());
  Store::open(database(), Access::kReadWrite)
      ->promote(mock_device(), key_of(problem), winner_of(kernel, 5), nullptr);
  const Context context(compiling());
  ASSERT_STATUS(VITUNE_OK, call(context));
  const vitune_selection found = query(context, desc_of(kCompiled));
  EXPECT_EQ(found.outcome, VITUNE_EXACT);
  EXPECT_EQ(found.compiled, 1);
  EXPECT_EQ(std::string(found.config), shown_text(attention(), kernel.config));
  EXPECT_EQ(std::string(found.kernel_key), kernel.binary.kernel_key.hex());
}

TEST_F(CApiCompileTest, ManyThreadsOnOneNewProblemCompileItOnce) {
  VITUNE_REQUIRE_COMPILER(compiler);
  constexpr int kThreads = 256;
  const Context context(compiling());
  const vitune_attention_desc desc = desc_of(kCompiled);
  const Tensors t = tensors_of(kCompiled);
  EXPECT_THAT(calls_at_once(context, desc, t, kThreads), testing::Each(VITUNE_OK));
  EXPECT_EQ(stats(context).kernels_compiled, 1u);
  EXPECT_EQ(calls_of("cuModuleLoadData"), 1);
}

TEST_F(CApiCompileTest, ACompilerAtWorkHoldsUpNoHitAndNoOtherStoredKernel) {
  VITUNE_REQUIRE_COMPILER(compiler);
  promote(database(), make_kernel(kVitB, 1));
  const Context context(compiling());
  ASSERT_STATUS(VITUNE_OK, call(context, kVitB));
  std::vector<std::pair<vitune_attention_desc, Tensors>> untuned;
  for (const char* text : {kCompiled, "bf16 b=2 h=3 n=90 d=96", "bf16 b=2 h=3 n=90 d=128"}) {
    untuned.emplace_back(desc_of(text), tensors_of(text));
  }
  std::atomic<bool> done{false};
  std::jthread compile([&] {
    for (const auto& [asked, tensors] : untuned) {
      EXPECT_STATUS(VITUNE_OK, forward(context, asked, tensors));
    }
    done = true;
  });
  const vitune_attention_desc desc = desc_of(kVitB);
  const Tensors t = tensors_of(kVitB);
  int hits = 0;
  for (; !done; ++hits) EXPECT_STATUS(VITUNE_OK, forward(context, desc, t));
  // A hit that waited for a compile would be one of about four; the machine may be busy.
  EXPECT_GT(hits, 200);
}

// The winner has lost its binary; the default one's is there.
TEST_F(CApiCompileTest, TheCompilePolicyCompilesTheBestWhereALesserStoredOneWouldDo) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const StoredKernel standard = default_kernel(kCompiled, 1);
  const StoredKernel best = make_kernel(standard.problem, other_config(standard.problem), 2);
  {
    const auto store = Store::open(database(), Access::kReadWrite);
    store->put_binary(standard.binary);
    store->promote(mock_device(), key_of(best.problem), winner_of(best, 5), nullptr);
  }
  vitune_context_options eager = compiling();
  eager.read_only = 1;
  {
    const Context context(eager);
    ASSERT_STATUS(VITUNE_OK, call(context));
    EXPECT_EQ(query(context, desc_of(kCompiled)).outcome, VITUNE_DEFAULT);
    EXPECT_EQ(stats(context).kernels_compiled, 0u) << "a stored one does";
  }
  eager.on_miss = VITUNE_ON_MISS_COMPILE;
  const Context context(eager);
  ASSERT_STATUS(VITUNE_OK, call(context));
  EXPECT_EQ(query(context, desc_of(kCompiled)).outcome, VITUNE_EXACT);
  EXPECT_EQ(stats(context).kernels_compiled, 1u);
}

// The same of a choice that was predicted, not measured here: a neighbour's winner without a kernel
// for this problem, beside a stored default.
TEST_F(CApiCompileTest, TheCompilePolicyCompilesWhatIsPredictedToBeBest) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const auto [best, stored] = put_neighbour_and_default();
  vitune_context_options eager = compiling();
  eager.read_only = 1;
  {
    const Context context(eager);
    ASSERT_STATUS(VITUNE_OK, call(context));
    EXPECT_EQ(query(context, desc_of(kCompiled)).config, stored);
    EXPECT_EQ(stats(context).kernels_compiled, 0u) << "a stored one is preferred";
  }
  eager.on_miss = VITUNE_ON_MISS_COMPILE;
  const Context context(eager);
  const vitune_selection before = query(context, desc_of(kCompiled));
  EXPECT_EQ(before.config, best);
  EXPECT_STREQ(before.kernel_key, "");
  EXPECT_THAT(before.reason, testing::HasSubstr("would compile it"));
  ASSERT_STATUS(VITUNE_OK, call(context));
  const vitune_selection found = query(context, desc_of(kCompiled));
  EXPECT_EQ(found.outcome, VITUNE_NEAREST);
  EXPECT_EQ(found.compiled, 1);
  EXPECT_EQ(found.config, best);
  EXPECT_THAT(found.reason, testing::Not(testing::HasSubstr("passed over")))
      << "what serves is not among what does not";
  EXPECT_EQ(stats(context).kernels_compiled, 1u);
}

// The policy is a wish for speed; that it cannot be followed is no reason to serve nothing.
TEST_F(CApiCompileTest, TheCompilePolicyServesWhatIsStoredWhereNothingCanBeCompiled) {
  const auto [best, stored] = put_neighbour_and_default();
  hide_nvrtc(true);
  for (const int32_t no_compile : {0, 1}) {
    SCOPED_TRACE(no_compile);
    vitune_context_options eager = compiling();
    eager.read_only = 1;
    eager.on_miss = VITUNE_ON_MISS_COMPILE;
    eager.no_compile = no_compile;
    LogBook book;
    eager.log_user = &book;
    const Context context(eager);
    ASSERT_STATUS(VITUNE_OK, call(context));
    const vitune_selection found = query(context, desc_of(kCompiled));
    EXPECT_EQ(found.config, stored);
    EXPECT_THAT(found.reason, testing::HasSubstr("passed over: "));
    EXPECT_THAT(found.reason, testing::HasSubstr("nothing can be compiled here"));
    EXPECT_EQ(book.count(VITUNE_LOG_WARNING, "on_miss"), 1);
    EXPECT_REFUSED(VITUNE_NO_COMPILER, call(context, kVitB), "no stored kernel");
    EXPECT_EQ(book.count(VITUNE_LOG_WARNING, "on_miss"), 1) << "said once";
  }
}

TEST_F(CApiCompileTest, ARealCubinIsServedAndOneOfAnotherArchitectureIsNot) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const AttentionProblem problem = AttentionProblem::parse(kCompiled);
  StoredKernel kernel = compile(*compiler, other_config(problem));
  promote(database(), kernel);
  {
    const Context context = make_context();
    ASSERT_STATUS(VITUNE_OK, call(context));
    EXPECT_EQ(query(context, desc_of(kCompiled)).outcome, VITUNE_EXACT);
  }
  // The row says sm_90, the cubin is of sm_80: only the driver can tell.
  const CompileResult other =
      compiler->compile(attention_compile_request(problem, kernel.config, "sm_80"));
  ASSERT_EQ(other.status, CompileStatus::kOk);
  kernel.binary.image = other.cubin;
  promote(database(), kernel);
  put_binary(database(), default_kernel(kCompiled, 4));
  const Context context = make_context();
  ASSERT_STATUS(VITUNE_OK, call(context));
  EXPECT_EQ(query(context, desc_of(kCompiled)).outcome, VITUNE_DEFAULT);
  EXPECT_EQ(stats(context).rejected, 1u);
}

// The row's digest is right, the image is not: bounds are checked before the driver sees it.
TEST_F(CApiCompileTest, ADamagedCubinWithARightDigestNeverCrashes) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const AttentionProblem problem = AttentionProblem::parse(kCompiled);
  const StoredKernel whole = compile(*compiler, other_config(problem));
  const StoredKernel standard = default_kernel(kCompiled, 4);
  put_binary(database(), standard);
  std::mt19937_64 random(5);
  Elf64_Ehdr header;
  std::memcpy(&header, whole.binary.image.data(), sizeof(header));
  int fallbacks = 0;
  for (int i = 0; i < 120; ++i) {
    StoredKernel damaged = whole;
    auto& image = damaged.binary.image;
    // Most of the bytes are code, of which nothing can be said: aim at headers and tables.
    const std::size_t tables = header.e_shnum * sizeof(Elf64_Shdr);
    const std::size_t at = i % 2 == 0 ? random() % sizeof(Elf64_Ehdr)
                                      : (header.e_shoff + random() % tables) % image.size();
    image[at] ^= static_cast<std::byte>(1 + random() % 255);
    if (i % 8 == 0) image.resize(1 + random() % image.size());
    promote(database(), damaged);
    const Context context = make_context();
    const vitune_status status = call(context);
    EXPECT_EQ(status, VITUNE_OK) << i << ": " << vitune_last_error();
    fallbacks += query(context, desc_of(kCompiled)).outcome == VITUNE_DEFAULT;
  }
  EXPECT_GT(fallbacks, 30);
}

}  // namespace
}  // namespace vitune::test
