// tests/runtime/c_api_trust_test.cpp -- Who may give a kernel to a GPU, and which image it is.
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include "db/binary_table.h"
#include "db/table.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

using testing::HasSubstr;

class CApiTrustTest : public RuntimeTest {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    promote(database(), winner_);
    put_binary(database(), standard_);
  }

  std::uint64_t image_run(const Context& context) {
    mock_->clear_log();
    EXPECT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), tensors_of(kVitB)));
    const auto launches = mock_->launches();
    return launches.size() == 1 ? launches[0].image : 0;
  }

  // Writes what anybody could who may write the file: another image with digests that fit.
  void alter_image(bool key_too) {
    Connection raw(database(), Connection::Mode::kReadWrite);
    DamageLog damage{LogSink()};
    StoredTable binaries(raw, kBinaryTable, damage);
    const Digest& kernel = winner_.binary.kernel_key;
    const Row genuine = *binaries.find(binary_key(kernel, image_digest(winner_.binary.image)));
    Binary other = winner_.binary;
    other.image.resize(other.image.size() + 18);
    Row altered = binary_row(other);
    if (key_too) binaries.erase(binaries.key_of(genuine));
    if (!key_too) altered[1] = genuine[1];
    binaries.put(altered);
  }

  StoredKernel winner_ = make_kernel(kVitB, 1), standard_ = default_kernel(kVitB, 2);
};

TEST_F(CApiTrustTest, AnImageThatWasAlteredDoesNotRunWhateverItsRowsDigestSays) {
  for (const bool key_too : {false, true}) {
    {
      const Context whole = make_context();
      ASSERT_EQ(image_run(whole), winner_.image_id());
    }
    alter_image(key_too);
    const Context context = make_context();
    EXPECT_EQ(image_run(context), standard_.image_id()) << key_too;
    EXPECT_EQ(stats(context).rejected, 1u);
    EXPECT_THAT(std::string(query(context, desc_of(kVitB)).reason), HasSubstr("verified"));
    promote(database(), winner_);
  }
}

TEST_F(CApiTrustTest, ADatabaseOfAnotherUserGivesNoKernelUnlessItsOwnerIsTrusted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  constexpr std::uint32_t kOther = 1001;
  ASSERT_EQ(::chown(database().c_str(), kOther, kOther), 0);
  vitune_context_options chosen = options();
  LogBook book;
  chosen.log_user = &book;
  {
    const Context context(chosen);
    const vitune_attention_desc desc = desc_of(kVitB);
    EXPECT_NE(vitune_prepare(context.get(), &desc), VITUNE_OK) << "nothing else is stored";
    EXPECT_EQ(stats(context).kernels_loaded, 0u);
    EXPECT_EQ(stats(context).without_block_list, 1u);
    EXPECT_EQ(book.count(VITUNE_LOG_WARNING, "default kernels only"), 1);
    EXPECT_GE(book.count(VITUNE_LOG_WARNING, "--trust-owner 1001"), 1);
  }
  chosen.trust_owner = kOther;
  const Context context(chosen);
  EXPECT_EQ(image_run(context), winner_.image_id());
  EXPECT_EQ(stats(context).without_block_list, 0u);
}

TEST_F(CApiTrustTest, ADatabaseThatOthersMayWriteGivesNoKernel) {
  const auto loads_something = [&] {
    const Context context = make_context();
    const vitune_attention_desc desc = desc_of(kVitB);
    return vitune_prepare(context.get(), &desc) == VITUNE_OK;
  };
  ASSERT_TRUE(loads_something());
  ASSERT_EQ(::chmod(database().c_str(), 0666), 0);
  EXPECT_FALSE(loads_something());
  ASSERT_EQ(::chmod(database().c_str(), 0600), 0);
  fs::create_hard_link(database(), database().string() + ".second");
  EXPECT_FALSE(loads_something());
  fs::remove(database().string() + ".second");
  EXPECT_TRUE(loads_something());
}

TEST_F(CApiTrustTest, ABlockedKernelStaysBlockedWhenItsRowIsDamagedOrLost) {
  Store::open(database(), Access::kReadWrite)
      ->block({winner_.binary.kernel_key, mock_device().key(), mock_device().driver_version,
               TrialStatus::kWrong, "a wrong answer"});
  for (const char* sql : {"UPDATE block SET reason = 'a wrong anxwer'", "DELETE FROM block"}) {
    Connection(database(), Connection::Mode::kReadWrite).execute(sql);
    const Context context = make_context();
    EXPECT_EQ(image_run(context), standard_.image_id()) << sql;
    EXPECT_EQ(query(context, desc_of(kVitB)).outcome, VITUNE_DEFAULT) << sql;
    EXPECT_EQ(stats(context).without_block_list, 1u) << sql;
  }
}

TEST_F(CApiTrustTest, TheShippedWinnersDoNotServeWhileTheUsersBlockListCannotBeRead) {
  promote(shipped(), winner_);
  put_binary(shipped(), standard_);
  Store::open(database(), Access::kReadWrite)
      ->block({winner_.binary.kernel_key, mock_device().key(), mock_device().driver_version,
               TrialStatus::kWrong, "a wrong answer"});
  vitune_context_options layered = options();
  const std::string below = shipped().string();
  layered.shipped_database = below.c_str();
  layered.lock_wait_ms = 1;
  Connection writer(database(), Connection::Mode::kReadWrite);
  writer.execute("BEGIN EXCLUSIVE");
  const Context context(layered);
  EXPECT_EQ(image_run(context), standard_.image_id());
  EXPECT_EQ(stats(context).without_block_list, 1u);
  writer.execute("ROLLBACK");
  ASSERT_EQ(vitune_context_refresh(context.get(), nullptr), VITUNE_OK);
  EXPECT_EQ(image_run(context), standard_.image_id()) << "it is blocked";
}

}  // namespace
}  // namespace vitune::test
