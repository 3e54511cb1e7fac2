// tests/tuner/cublaslt_gpu_test.cpp -- Linear layers and their weight gradients by cuBLASLt against
// the fp64 judge, and in CUDA graphs: every epilogue of the library, and of ours behind its
// products.
//
// On a GPU with the cuBLASLt that is installed; on the emulated device with the stand-in of
// tests/generator/fake_cublaslt.cpp, one of whose algorithms is wrong on purpose.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "generator/linear/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::cublaslt_gpu_test {
namespace {

struct LibraryCase {
  const char* name;
  const char* problem;
  const char* large;   // the same on a GPU, with sizes that more algorithms are for
  const char* family;  // null: there are proposals of both
};

void PrintTo(const LibraryCase& each, std::ostream* out) { *out << each.problem; }

const LibraryCase kCases[] = {
    {"Plain", "linear bf16 m=24 n=40 k=48", "linear bf16 m=788 n=768 k=768", "cublaslt"},
    {"Bias", "linear bf16 m=24 n=40 k=48 bias", "linear bf16 m=788 n=2304 k=768 bias", "cublaslt"},
    {"Relu", "linear fp16 m=24 n=40 k=48 act=relu", "linear fp16 m=788 n=768 k=768 act=relu",
     "cublaslt"},
    {"BiasRelu", "linear bf16 m=24 n=40 k=48 bias act=relu",
     "linear bf16 m=788 n=768 k=768 bias act=relu", "cublaslt"},
    {"GeluTanh", "linear bf16 m=24 n=40 k=48 act=gelu_tanh",
     "linear bf16 m=788 n=3072 k=768 act=gelu_tanh", "cublaslt"},
    {"BiasGeluTanh", "linear fp16 m=24 n=40 k=48 bias act=gelu_tanh",
     "linear fp16 m=788 n=3072 k=768 bias act=gelu_tanh", "cublaslt"},
    {"Residual", "linear bf16 m=24 n=40 k=48 residual", "linear bf16 m=788 n=768 k=3072 residual",
     "cublaslt"},
    {"BiasResidualOfOtherRows", "linear bf16 m=24 n=40 k=48 bias residual=@56 x=@64 out=@48",
     "linear bf16 m=788 n=768 k=3072 bias residual=@776 x=@3080 out=@784", "cublaslt"},
    {"Transposed", "linear bf16 m=24 n=40 k=48 bias wt", "linear bf16 m=788 n=768 k=768 bias wt",
     "cublaslt"},
    {"WideResult", "linear bf16 m=24 n=40 k=48 out=fp32", "linear bf16 m=788 n=768 k=768 out=fp32",
     "cublaslt"},
    {"OddSizes", "linear bf16 m=19 n=34 k=26 bias", "linear bf16 m=197 n=1001 k=770 bias",
     "cublaslt"},
    {"OneRow", "linear bf16 m=1 n=40 k=48 bias", "linear bf16 m=1 n=1000 k=768 bias", "cublaslt"},
    {"ChainOfGelu", "linear bf16 m=24 n=40 k=48 bias act=gelu",
     "linear bf16 m=788 n=3072 k=768 bias act=gelu", "chain"},
    {"ChainOfScaleAndResidual", "linear bf16 m=24 n=40 k=48 bias scale residual",
     "linear bf16 m=788 n=768 k=3072 bias scale residual", "chain"},
    {"ChainOfEverything", "linear fp16 m=24 n=40 k=48 bias act=gelu scale params=fp32 residual aux",
     "linear fp16 m=788 n=768 k=768 bias act=gelu scale params=fp32 residual aux", "chain"},
    {"ChainOfLayerNorm", "linear bf16 m=24 n=40 k=48 norm=layer bias act=gelu",
     "linear bf16 m=788 n=3072 k=768 norm=layer bias act=gelu", "chain"},
    {"ChainOfPeriods", "linear bf16 m=24 n=40 k=48 bias residual period=12 rows=12+1",
     "linear bf16 m=784 n=768 k=768 bias residual period=196 rows=196+1", "chain"},
    {"WeightGrad", "linear_weight_grad bf16 m=50 n=40 k=48",
     "linear_weight_grad bf16 m=3152 n=768 k=768", "cublaslt"},
    {"WeightGradInFp32", "linear_weight_grad bf16 m=50 n=40 k=48 out=fp32",
     "linear_weight_grad bf16 m=3152 n=768 k=3072 out=fp32", "cublaslt"},
    {"WeightGradAdded", "linear_weight_grad fp16 m=50 n=40 k=48 add dy=@48 x=@56",
     "linear_weight_grad fp16 m=3152 n=768 k=768 add dy=@784 x=@776", "cublaslt"},
    {"WeightGradWithABias", "linear_weight_grad bf16 m=50 n=40 k=48 bias",
     "linear_weight_grad bf16 m=3152 n=2304 k=768 bias", nullptr},
    {"WeightGradWithABiasInFp32", "linear_weight_grad bf16 m=50 n=40 k=48 bias out=fp32",
     "linear_weight_grad bf16 m=12608 n=768 k=768 bias out=fp32", nullptr},
    {"WeightGradWithABiasOfOddRows", "linear_weight_grad bf16 m=351 n=42 k=34 bias dy=@44",
     "linear_weight_grad bf16 m=3151 n=1002 k=770 bias dy=@1004", nullptr},
    {"WeightGradWithABiasAdded", "linear_weight_grad bf16 m=50 n=40 k=48 bias add out=fp32",
     "linear_weight_grad bf16 m=3152 n=768 k=768 bias add out=fp32", "chain"},
    {"WeightGradWithEverything",
     "linear_weight_grad bf16 m=50 n=40 k=48 bias scale params=fp32 add out=fp32",
     "linear_weight_grad bf16 m=3152 n=768 k=768 bias scale params=fp32 add out=fp32", "chain"},
    {"WeightGradOfAScale", "linear_weight_grad fp16 m=50 n=40 k=48 scale",
     "linear_weight_grad fp16 m=3152 n=768 k=768 scale", "chain"},
};

class CublasLtGpuTest : public JudgedKernelsTest {
 protected:
  void SetUp() override {
    JudgedKernelsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    emulated_ = device_.name == "emulated device";
    try {
      libraries_.cublaslt();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  GpuTools tools() { return {*context_, *stream_, *kernels_, device_, &libraries_}; }
  // The kernels of a config; none where its plan only calls the library.
  CudaModule module_of(const Problem& problem, const Config& config) const {
    const CompileRequest request = problem.op().request(problem, config, device_.arch());
    if (!request.library.empty()) return CudaModule(*driver_);
    const CompileResult compiled = compiler_->compile(request);
    EXPECT_EQ(compiled.status, CompileStatus::kOk) << compiled.log;
    return {*driver_, compiled.cubin};
  }

  bool emulated_ = false;
  Libraries libraries_{read_environment()};
};

class CublasLtEpiloguesGpuTest : public CublasLtGpuTest,
                                 public testing::WithParamInterface<LibraryCase> {};

TEST_P(CublasLtEpiloguesGpuTest, EveryProposalIsRight) {
  const ProblemPtr problem = parse_problem(emulated_ ? GetParam().problem : GetParam().large);
  const std::vector<Config> proposed = problem->op().proposals(*problem, device_, libraries_);
  ASSERT_FALSE(proposed.empty()) << problem->text();
  Verifier verifier(tools(), problem);
  for (std::size_t i = 0; i < proposed.size(); ++i) {
    if (GetParam().family != nullptr) {
      EXPECT_EQ(problem->op().family(proposed[i]), GetParam().family);
    }
    const Verdict verdict = verifier.verify(module_of(*problem, proposed[i]), proposed[i]);
    const bool is_mistaken = emulated_ && proposed[i].at("kAlgorithm0") == 0x4203;
    EXPECT_EQ(verdict.status, is_mistaken ? TrialStatus::kWrong : TrialStatus::kOk)
        << proposed[i].text() << ": " << verdict.reason;
  }
}

TEST_P(CublasLtEpiloguesGpuTest, AGraphGivesTheBitsOfDirectCalls) {
  const ProblemPtr problem = parse_problem(emulated_ ? GetParam().problem : GetParam().large);
  const std::vector<Config> proposed = problem->op().proposals(*problem, device_, libraries_);
  ASSERT_FALSE(proposed.empty()) << problem->text();
  const Config& config = proposed[proposed.size() > 1 ? 1 : 0];
  Workload workload(tools(), problem);
  workload.fill_inputs(kNormalDraw);
  // The very first call of this plan is captured: nothing may have to be loaded or allocated then.
  const BoundPlan launch = workload.bind(
      prepare_plan(module_of(*problem, config), *problem, config, device_, &libraries_));
  const CudaGraph graph(*driver_, *stream_, [&] { launch(*stream_); });
  std::vector<std::vector<std::byte>> outputs;
  for (int i = 0; i < 3; ++i) {
    workload.poison_outputs();
    if (i == 2) {
      launch(*stream_);
    } else {
      graph.launch(*stream_);
    }
    stream_->synchronize();
    const std::vector<TensorSpec>& tensors = workload.tensors();
    std::vector<std::byte>& all = outputs.emplace_back();
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      if (!tensors[t].given || tensors[t].role != Role::kOutput) continue;
      const std::vector<std::byte> bytes = workload.download(static_cast<int>(t));
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(outputs[0], outputs[2]);
  EXPECT_NE(std::count(outputs[0].begin(), outputs[0].end(), std::byte{0xff}),
            static_cast<std::ptrdiff_t>(outputs[0].size()))
      << "something was written";
}

INSTANTIATE_TEST_SUITE_P(All, CublasLtEpiloguesGpuTest, testing::ValuesIn(kCases),
                         [](const auto& each) { return each.param.name; });

// Another problem of the same class: the algorithm may serve it or not, but never wrongly.
TEST_F(CublasLtGpuTest, AnAlgorithmOnAnotherProblemIsRightOrRefused) {
  const ProblemPtr from = parse_problem(emulated_ ? "linear bf16 m=24 n=40 k=48 bias"
                                                  : "linear bf16 m=788 n=768 k=768 bias");
  for (const char* const text :
       {"linear bf16 m=8 n=16 k=16 bias", "linear bf16 m=40 n=64 k=96 bias"}) {
    const ProblemPtr to = parse_problem(text);
    Verifier verifier(tools(), to);
    for (const Config& config : from->op().proposals(*from, device_, libraries_)) {
      Verdict verdict;
      try {
        verdict = verifier.verify(module_of(*to, config), config);
      } catch (const Error& refused) {
        EXPECT_EQ(refused.code(), ErrorCode::kUnsupported) << refused.what();
        continue;
      }
      const bool is_mistaken = emulated_ && config.at("kAlgorithm0") == 0x4203;
      EXPECT_EQ(verdict.status, is_mistaken ? TrialStatus::kWrong : TrialStatus::kOk)
          << text << ", " << config.text() << ": " << verdict.reason;
    }
  }
}

}  // namespace
}  // namespace vitune::cublaslt_gpu_test
