// tests/runtime/shipped_kernels_test.cpp -- Each shipped kernel is what this tree makes of its
// winner's config: the same machine code. Needs the NVRTC that made them.
// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "db/store.h"
#include "generator/cubin_code.h"
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
        << entry.problem.text
        << " is made from other sources; see CONTRIBUTING.md, 'Changing templates'";
    const auto binary = shipped->find_binary(winner.kernel_key, winner.image_digest);
    ASSERT_TRUE(binary) << entry.problem.text;
    const bool is_library_call = !request.library.empty();
    EXPECT_EQ(code_digest(binary->image).has_value(), !is_library_call) << entry.problem.text;
  }
}

TEST_F(ShippedKernelsTest, AreRebuiltAsTheSameMachineCode) {
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
    const auto stored = shipped->find_binary(winner.kernel_key, winner.image_digest);
    ASSERT_TRUE(stored) << entry.problem.text;
    if (compiler_->version() != winner.compiler_version) continue;
    const CompileResult result = compiler_->compile(request);
    ASSERT_EQ(result.status, CompileStatus::kOk) << result.log;
    // Names of symbols may have changed since.
    const auto code = code_digest(stored->image);
    EXPECT_TRUE(code && code_digest(result.cubin) == code) << entry.problem.text;
    ++rebuilt;
  }
  if (rebuilt == 0) GTEST_SKIP() << "this is not the NVRTC that made them";
}

}  // namespace
}  // namespace vitune::test
