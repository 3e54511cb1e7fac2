// tests/runtime/c_api_workspace_test.cpp -- The scratch memory of a call: how much there is, where
// it lies.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "generator/operator.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

// Problems with configs whose plans need scratch memory: sums of groups and of parts of k.
struct ScratchCase {
  const char* name;
  const char* text;
};
void PrintTo(const ScratchCase& c, std::ostream* out) { *out << c.text; }

constexpr ScratchCase kCases[] = {
    {"GroupNorm", "group_norm bf16 n=2 c=320 l=4096 g=32 nhwc weight bias"},
    {"SplitLinear", "linear bf16 m=32 n=64 k=1024 bias"},
    {"WeightGrad", "linear_weight_grad bf16 m=1024 n=64 k=96 bias scale add out=fp32"},
    {"NormBackward", "norm_backward bf16 m=1024 d=96 weight bias residual second=fp32"},
    {"AttentionBackward", "attention_backward bf16 b=2 h=3 n=49 d=32 bias=bf16:3x49x49 dbias"},
    {"WindowAttentionBackward",
     "window_attention_backward bf16 b=2 image=8 window=4 h=2 d=16 bias=bf16:1x2x16x16 dtable=49"},
};

std::int64_t scratch_of(const Problem& problem, const Config& config) {
  const std::vector<int> resident(problem.op().kernels(problem, config).size(), 2);
  return problem.op().plan(problem, config, mock_device(), resident).scratch_bytes;
}

Config config_with_scratch(const Problem& problem) {
  for (const Config& config : problem.op().space(problem, mock_device()).enumerate()) {
    if (scratch_of(problem, config) > 0) return config;
  }
  throw std::runtime_error("no config of '" + problem.text() + "' needs scratch memory");
}

class CApiWorkspaceTest : public RuntimeTest, public testing::WithParamInterface<ScratchCase> {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    if (mock_ == nullptr) return;
    promote_with_scratch();
    ASSERT_STATUS(VITUNE_OK, vitune_problem_create(GetParam().text, &asked_));
    context_.emplace(options());
    ASSERT_STATUS(VITUNE_OK,
                  vitune_workspace_bytes_text(context_->get(), GetParam().text, &bytes_));
    for (const TensorSpec& tensor : tensors()) {
      addresses_.push_back(tensor.given ? buffer(tensor.bytes()) : nullptr);
    }
    workspace_ = buffer(static_cast<std::int64_t>(bytes_));
  }
  void TearDown() override {
    context_.reset();
    vitune_problem_destroy(asked_);
    RuntimeTest::TearDown();
  }

  vitune_status run(void* workspace, std::size_t bytes) {
    return vitune_run(context_->get(), asked_, addresses_.data(), addresses_.size(), workspace,
                      bytes, kStream);
  }
  std::vector<TensorSpec> tensors() const { return problem_->op().tensors(*problem_); }
  // `by` bytes behind an address, or before it.
  static void* moved(void* address, std::int64_t by) { return static_cast<char*>(address) + by; }

  const ProblemPtr problem_ = parse_problem(GetParam().text);
  const Config config_ = config_with_scratch(*problem_);
  vitune_problem* asked_ = nullptr;
  std::optional<Context> context_;
  std::vector<void*> addresses_;
  std::size_t bytes_ = 0;
  void* workspace_ = nullptr;

 private:
  void promote_with_scratch() {
    const CompileRequest request = problem_->op().request(*problem_, config_, mock_device().arch());
    const Digest key = kernel_key(request, kCompilerVersion);
    const Binary binary{key,           request.arch,       kCompilerVersion,
                        request.entry, {64, 0, 4096, 100}, image_of(1)};
    Winner winner = sample_winner(1);
    winner.config = config_;
    winner.runner_up = config_;
    winner.kernel_key = key;
    winner.compiler_version = kCompilerVersion;
    const std::string op(problem_->op().name());
    Store::open(database(), Access::kReadWrite)
        ->promote(mock_device(), {op, problem_->text()}, winner, &binary);
  }
};

TEST_P(CApiWorkspaceTest, AsManyBytesAsAskedForAreEnough) {
  EXPECT_EQ(static_cast<std::int64_t>(bytes_), scratch_of(*problem_, config_));
  EXPECT_STATUS(VITUNE_OK, run(workspace_, bytes_));
  EXPECT_STATUS(VITUNE_OK, run(workspace_, bytes_)) << "the call after the first";
  EXPECT_EQ(stats(*context_).exact_calls, 2u);
}

// Before the first call and after it: the two take different ways.
TEST_P(CApiWorkspaceTest, AWorkspaceThatIsTooSmallMissingOrMisalignedIsRefused) {
  for (const char* when : {"at first", "later"}) {
    SCOPED_TRACE(when);
    mock_->clear_log();
    EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, run(workspace_, bytes_ - 1),
                   "needs " + std::to_string(bytes_) + " bytes of workspace and was given " +
                       std::to_string(bytes_ - 1));
    EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, run(workspace_, 0), "was given 0");
    EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, run(nullptr, bytes_), "was given 0");
    EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, run(nullptr, 0), "vitune_workspace_bytes");
    for (const std::int64_t by : {1, 16, 128, 255}) {
      EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, run(moved(workspace_, by), bytes_),
                     "multiple of 256");
    }
    EXPECT_EQ(calls_of("cuLaunchKernel"), 0);
    EXPECT_STATUS(VITUNE_OK, run(workspace_, bytes_));
  }
}

TEST_P(CApiWorkspaceTest, AWorkspaceOnATensorIsRefused) {
  ASSERT_STATUS(VITUNE_OK, run(workspace_, bytes_));
  const auto size = static_cast<std::int64_t>((bytes_ + 255) / 256 * 256);
  mock_->clear_log();
  const std::vector<TensorSpec> all = tensors();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].given) continue;
    SCOPED_TRACE(all[i].name);
    const std::string words = "workspace and " + all[i].name + " share memory";
    const std::int64_t last = (all[i].bytes() - 1) / 256 * 256;
    for (const std::int64_t by : {std::int64_t{0}, last, 256 - size}) {
      EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, run(moved(addresses_[i], by), bytes_), words);
    }
  }
  EXPECT_EQ(calls_of("cuLaunchKernel"), 0);
}

TEST_P(CApiWorkspaceTest, AWorkspaceThatOnlyTouchesATensorIsFine) {
  ASSERT_STATUS(VITUNE_OK, run(workspace_, bytes_)) << "only the first call asks the driver";
  const auto size = static_cast<std::int64_t>((bytes_ + 255) / 256 * 256);
  const std::vector<TensorSpec> all = tensors();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].given) continue;
    SCOPED_TRACE(all[i].name);
    const std::int64_t end = (all[i].bytes() + 255) / 256 * 256;
    EXPECT_STATUS(VITUNE_OK, run(moved(addresses_[i], end), bytes_));
    EXPECT_STATUS(VITUNE_OK, run(moved(addresses_[i], -size), bytes_));
  }
}

INSTANTIATE_TEST_SUITE_P(AllWithScratch, CApiWorkspaceTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune::test
