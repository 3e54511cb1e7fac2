// tests/runtime/c_api_former_keys_test.cpp -- Rows whose keys are of text, as they were at first.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <array>

#include "generator/attention/operator.h"
#include "generator/compile_options.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

using ::testing::HasSubstr;

class CApiFormerKeysTest : public RuntimeTest {
 protected:
  // The image that a call of the problem runs.
  std::uint64_t image_run(const Context& context, const char* text) {
    mock_->clear_log();
    EXPECT_STATUS(VITUNE_OK, forward(context, desc_of(text), tensors_of(text)));
    const auto launches = mock_->launches();
    return launches.size() == 1 ? launches[0].image : 0;
  }
};

// A winner stored by the rule of before, where a key was of text.
StoredKernel keyed_by_text(StoredKernel kernel) {
  const CompileRequest request =
      attention_compile_request(kernel.problem, kernel.config, mock_device().arch());
  kernel.binary.kernel_key = text_kernel_key(request, kernel.binary.compiler_version);
  return kernel;
}

TEST_F(CApiFormerKeysTest, AWinnerKeyedByTheRuleOfBeforeServesWhileItsTextIsTheSame) {
  const StoredKernel kernel = keyed_by_text(make_kernel(kVitB, 1)),
                     standard = default_kernel(kVitB, 2);
  promote(database(), kernel);
  put_binary(database(), standard);
  const Context context = make_context();
  EXPECT_EQ(image_run(context, kVitB), kernel.image_id());
  EXPECT_EQ(query(context, desc_of(kVitB)).outcome, VITUNE_EXACT);
}

// The block may be written into the user's database, merged into it or in a pack below it.
TEST_F(CApiFormerKeysTest, ABlockByEitherRuleHoldsAWinnerByEitherRuleBackHoweverItCame) {
  const StoredKernel today = make_kernel(kVitB, 1), standard = default_kernel(kVitB, 2);
  const std::array both = {today, keyed_by_text(today)};
  for (const StoredKernel& winner : both) {
    for (const StoredKernel& blocked : both) {
      for (const std::string way : {"written", "merged", "packed"}) {
        SCOPED_TRACE(way);
        const TempDir folder;
        const fs::path user = folder / "user.db", pack = folder / "site.pack",
                       from = way == "written" ? user : folder / "other.db";
        promote(user, winner);
        put_binary(user, standard);
        promote(from, winner);
        Store::open(from, Access::kReadWrite)
            ->block({blocked.binary.kernel_key, mock_device().key(), mock_device().driver_version,
                     TrialStatus::kWrong, "max error 0.5"});
        const auto other = Store::open(from, Access::kReadOnly);
        if (way == "merged") Store::open(user, Access::kReadWrite)->merge(*other);
        if (way == "packed") other->write_pack(pack, {"test", {}, {}});
        vitune_context_options chosen = options();
        const std::string database = user.string(), below = pack.string();
        chosen.database = database.c_str();
        if (way == "packed") chosen.shipped_database = below.c_str();
        const Context context(chosen);
        EXPECT_EQ(image_run(context, kVitB), standard.image_id());
        EXPECT_THAT(std::string(query(context, desc_of(kVitB)).reason), HasSubstr("block"));
      }
    }
  }
}

TEST_F(CApiFormerKeysTest, ABlockByTheRuleOfBeforeHoldsADefaultBack) {
  const StoredKernel standard = default_kernel(kVitB, 2);
  put_binary(database(), standard);
  ASSERT_EQ(image_run(make_context(), kVitB), standard.image_id());
  Store::open(database(), Access::kReadWrite)
      ->block({keyed_by_text(standard).binary.kernel_key, mock_device().key(),
               mock_device().driver_version, TrialStatus::kCrash, "it crashed"});
  EXPECT_NE(forward(make_context(), desc_of(kVitB), tensors_of(kVitB)), VITUNE_OK);
}

TEST_F(CApiFormerKeysTest, AKernelThatDidNotEndByTheRuleOfBeforeIsPassedOver) {
  const StoredKernel kernel = make_kernel(kVitB, 1), standard = default_kernel(kVitB, 2);
  promote(database(), kernel);
  put_binary(database(), standard);
  Trial trial;
  trial.config = kernel.config;
  trial.kernel_key = keyed_by_text(kernel).binary.kernel_key;
  trial.status = TrialStatus::kTimeout;
  trial.reason = "did not finish";
  Store::open(database(), Access::kReadWrite)
      ->put_trial(mock_device(), key_of(kernel.problem), trial);
  const Context context = make_context();
  EXPECT_EQ(image_run(context, kVitB), standard.image_id());
  EXPECT_THAT(std::string(query(context, desc_of(kVitB)).reason), HasSubstr("did not end"));
}

}  // namespace
}  // namespace vitune::test
