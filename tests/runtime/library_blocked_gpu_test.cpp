// tests/runtime/library_blocked_gpu_test.cpp -- Kernels on the block list that libvitune could
// compile itself: none of them may be.
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "generator/operator.h"
#include "tests/runtime/library_gpu_fixture.h"

namespace vitune::test {
namespace {

class LibraryBlockedGpuTest : public LibraryGpuTest {
 protected:
  std::vector<Config> defaults_of(const Problem& problem) const {
    return problem.op().defaults(problem, device_, problem.op().space(problem, device_));
  }
  // The key of the kernel as the compiler at hand would make it, or of the library's call.
  Digest key_of_config(const Problem& problem, const Config& config) const {
    const CompileRequest request = problem.op().request(problem, config, device_.arch());
    return kernel_key(request, request.library.empty() ? compiler_->version() : request.library);
  }
  void block(const Digest& key) const {
    Store::open(database_text_, Access::kReadWrite)
        ->block({key, device_.key(), device_.driver_version, TrialStatus::kWrong, "wrong"});
  }
  vitune_selection query_text(const Context& context, const char* text) const {
    vitune_selection selection = VITUNE_SELECTION_INIT;
    EXPECT_STATUS(VITUNE_OK, vitune_query_text(context.get(), text, &selection));
    return selection;
  }
};

TEST_F(LibraryBlockedGpuTest, ABlockedDefaultLeavesTheNextToBeCompiled) {
  const AttentionCall call(*driver_, "bf16 b=1 h=2 nq=21 nk=33 d=32", kSeed);
  const ProblemPtr problem = parse_problem(call.problem().text());
  const Digest blocked = key_of_config(*problem, defaults_of(*problem).front());
  block(blocked);
  const Context context = make_context();

  ASSERT_STATUS(VITUNE_OK, vitune_prepare(context.get(), &call.desc()));

  const vitune_selection found = query(context, call);
  EXPECT_EQ(found.outcome, VITUNE_DEFAULT);
  EXPECT_EQ(found.compiled, 1);
  EXPECT_NE(found.kernel_key, blocked.hex());
  EXPECT_EQ(answer_of(context, call), "");
}

TEST_F(LibraryBlockedGpuTest, WhereAllDefaultsAreBlockedNothingIsCompiled) {
  for (const char* const text :
       {"attention bf16 b=1 h=2 nq=21 nk=33 d=32", "norm bf16 m=7 d=64 weight bias",
        "group_norm bf16 n=1 c=64 l=64 g=32", "linear bf16 m=30 n=24 k=40",
        "window_attention bf16 b=1 image=14x14 window=7x7 h=2 d=32"}) {
    SCOPED_TRACE(text);
    const ProblemPtr problem = parse_problem(text);
    for (const Config& config : defaults_of(*problem)) block(key_of_config(*problem, config));
    const Context context = make_context();

    EXPECT_REFUSED(VITUNE_UNSUPPORTED, vitune_prepare_text(context.get(), text), "block list");

    EXPECT_EQ(stats(context).kernels_compiled, 0u);
    EXPECT_EQ(stats(context).kernels_loaded, 0u);
  }
}

}  // namespace
}  // namespace vitune::test
