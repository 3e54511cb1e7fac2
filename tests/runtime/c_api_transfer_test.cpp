// tests/runtime/c_api_transfer_test.cpp -- A GPU that nobody tuned: configs of another one's
// winners, never their kernels.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/operator.h"
#include "generator/config_family.h"
#include "tests/generator/compile_support.h"
#include "tests/like_devices.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

using testing::HasSubstr;

// Small, so that it compiles fast.
constexpr const char* kSmall = "bf16 b=2 h=3 n=33 d=32";

class CApiTransferTest : public RuntimeTest {
 protected:
  CApiTransferTest() : h100_(testing_support::h100_device()), shipped_text_(shipped().string()) {
    h100_.driver_version = mock_device().driver_version;
  }

  vitune_context_options layered(bool may_compile) {
    vitune_context_options chosen = options();
    chosen.shipped_database = shipped_text_.c_str();
    chosen.no_compile = may_compile ? 0 : 1;
    return chosen;
  }
  // A winner of the H100 with its kernel.
  void promote_on_h100(const fs::path& file, const StoredKernel& kernel) const {
    Store::open(file, Access::kReadWrite)
        ->promote(h100_, key_of(kernel.problem), winner_of(kernel, 20), &kernel.binary);
  }
  // The image that a call of `text` runs.
  std::uint64_t image_run(const Context& context, const char* text = kVitB) {
    mock_->clear_log();
    EXPECT_STATUS(VITUNE_OK, forward(context, desc_of(text), tensors_of(text)));
    const auto launches = mock_->launches();
    return launches.size() == 1 ? launches[0].image : 0;
  }

  DeviceInfo h100_;

 private:
  const std::string shipped_text_;
};

TEST_F(CApiTransferTest, TheKernelThatWonElsewhereIsNotRunEvenWhereNothingElseIsStoredOfIt) {
  const StoredKernel won = make_kernel(kVitB, 1), standard = default_kernel(kVitB, 2);
  for (const fs::path& file : {shipped(), database()}) {
    SCOPED_TRACE(file);
    promote_on_h100(file, won);
    put_binary(database(), standard);
    const Context context(layered(false));
    EXPECT_EQ(image_run(context), standard.image_id());
    EXPECT_EQ(query(context, desc_of(kVitB)).outcome, VITUNE_DEFAULT);
    EXPECT_EQ(stats(context).transferred_calls, 0u);
    EXPECT_EQ(stats(context).default_calls, 1u);
  }
}

TEST_F(CApiTransferTest, AKernelThatWasMadeHereByTheConfigServesAndIsNoWinner) {
  const StoredKernel won = make_kernel(kVitB, 1);
  const StoredKernel made = make_kernel(won.problem, won.config, 2);
  promote_on_h100(shipped(), won);
  put_binary(database(), made);
  put_binary(database(), default_kernel(kVitB, 3));
  const Context context(layered(false));

  EXPECT_EQ(image_run(context), made.image_id());
  const vitune_selection found = query(context, desc_of(kVitB));
  EXPECT_EQ(found.outcome, VITUNE_TRANSFERRED);
  EXPECT_EQ(std::string(found.row), won.problem.canonical().text());
  EXPECT_EQ(std::string(found.config), shown_text(attention(), won.config));
  EXPECT_STREQ(found.source, "shipped");
  EXPECT_THAT(found.reason, HasSubstr("transferred from NVIDIA H100 (sm_90, 132 SMs)"));
  EXPECT_GT(found.predicted_us, 0);
  EXPECT_EQ(found.cold_us, 0) << "that is a time of another GPU";
  EXPECT_LT(found.max_error, 0);
  EXPECT_EQ(stats(context).transferred_calls, 1u);
  EXPECT_EQ(stats(context).exact_calls + stats(context).nearest_calls, 0u);
  EXPECT_EQ(stats(context).default_calls, 0u);
}

TEST_F(CApiTransferTest, APolicyOfDefaultsTakesNoConfigOfAnotherGpu) {
  const StoredKernel won = make_kernel(kVitB, 1), standard = default_kernel(kVitB, 2);
  promote_on_h100(shipped(), won);
  put_binary(database(), make_kernel(won.problem, won.config, 3));
  put_binary(database(), standard);
  vitune_context_options chosen = layered(false);
  chosen.on_miss = VITUNE_ON_MISS_DEFAULT;
  EXPECT_EQ(image_run(Context(chosen)), standard.image_id());
}

TEST_F(CApiTransferTest, AKernelThatIsBlockedOnTheOtherGpuIsNotMadeHere) {
  const StoredKernel won = make_kernel(kVitB, 1), standard = default_kernel(kVitB, 2);
  promote_on_h100(shipped(), won);
  Store::open(shipped(), Access::kReadWrite)
      ->block({won.binary.kernel_key, h100_.key(), h100_.driver_version, TrialStatus::kWrong,
               "max error 0.5"});
  put_binary(database(), make_kernel(won.problem, won.config, 3));
  put_binary(database(), standard);
  EXPECT_EQ(image_run(Context(layered(false))), standard.image_id());
}

TEST_F(CApiTransferTest, TheConfigIsCompiledHereThoughADefaultIsStoredAndKept) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const AttentionProblem problem = AttentionProblem::parse(kSmall);
  const StoredKernel won = make_kernel(problem, other_config(problem), 1, compiler->version());
  promote_on_h100(shipped(), won);
  put_binary(database(), default_kernel(kSmall, 2));
  {
    const Context context(layered(true));
    const vitune_selection before = query(context, desc_of(kSmall));
    EXPECT_EQ(before.outcome, VITUNE_TRANSFERRED);
    EXPECT_STREQ(before.kernel_key, "") << "none is stored";
    EXPECT_NE(image_run(context, kSmall), won.image_id());
    const vitune_selection found = query(context, desc_of(kSmall));
    EXPECT_EQ(found.outcome, VITUNE_TRANSFERRED) << found.reason;
    EXPECT_EQ(found.compiled, 1);
    EXPECT_EQ(std::string(found.config), shown_text(attention(), won.config));
  }
  const Context later(layered(false));
  EXPECT_NE(image_run(later, kSmall), won.image_id());
  EXPECT_EQ(query(later, desc_of(kSmall)).outcome, VITUNE_TRANSFERRED);
  EXPECT_EQ(stats(later).kernels_compiled, 0u);
}

}  // namespace
}  // namespace vitune::test
