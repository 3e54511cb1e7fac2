// tests/runtime/shipped_kernels_test.cpp -- Each shipped kernel is what this tree makes of its
// winner's config, bit for bit. Needs the NVRTC that made them.
// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "db/store.h"
#include "generator/operator.h"
#include "tests/generator/compile_support.h"

namespace vitune::test {
namespace {

class ShippedKernelsTest : public RealCompilerTest {};

// Whatever a config's text says beside its tunables, and whichever compiler is at hand.
TEST(ShippedKernelKeysTest, AreThoseOfTheWinnersThatTheyStandFor) {
  const auto shipped =
      Store::open(std::string(VITUNE_SOURCE_DIR) + "/data/winners.db", Access::kReadOnly);
  const std::vector<WinnerEntry> winners = shipped->winners();
  ASSERT_GE(winners.size(), 40u);
  for (const WinnerEntry& entry : winners) {
    const Winner& winner = entry.winner;
    const ProblemPtr problem = parse_problem(entry.problem.text);
    const auto request = problem->op().request(*problem, winner.config, entry.device.arch());
    EXPECT_EQ(kernel_key(request, winner.compiler_version), winner.kernel_key)
        << entry.problem.text << " is made from other sources; tune the shipped winners again";
    EXPECT_TRUE(shipped->find_binary(winner.kernel_key, winner.image_digest)) << entry.problem.text;
  }
}

TEST_F(ShippedKernelsTest, AreRebuiltBitForBit) {
  const auto shipped =
      Store::open(std::string(VITUNE_SOURCE_DIR) + "/data/winners.db", Access::kReadOnly);
  const std::vector<WinnerEntry> winners = shipped->winners();
  ASSERT_GE(winners.size(), 40u);
  std::set<Digest> seen;
  int rebuilt = 0;
  for (const WinnerEntry& entry : winners) {
    const Winner& winner = entry.winner;
    if (!seen.insert(winner.kernel_key).second) continue;
    const ProblemPtr problem = parse_problem(entry.problem.text);
    const auto request = problem->op().request(*problem, winner.config, entry.device.arch());
    ASSERT_EQ(kernel_key(request, winner.compiler_version), winner.kernel_key)
        << entry.problem.text << " is made from other sources; tune the shipped winners again";
    const auto stored = shipped->find_binary(winner.kernel_key, winner.image_digest);
    ASSERT_TRUE(stored) << entry.problem.text;
    if (compiler_->version() != winner.compiler_version) continue;
    const CompileResult result = compiler_->compile(request);
    ASSERT_EQ(result.status, CompileStatus::kOk) << result.log;
    EXPECT_TRUE(result.cubin == stored->image) << entry.problem.text;
    ++rebuilt;
  }
  if (rebuilt == 0) GTEST_SKIP() << "this is not the NVRTC that made them";
}

}  // namespace
}  // namespace vitune::test
