// tests/generator/cublaslt_test.cpp -- cuBLASLt as it is declared, found, asked and called.
//
// Products run on host memory by tests/generator/fake_cublaslt.cpp; declarations are held against
// the toolkit's header, and structures against a real library, where these are installed.
// SPDX-License-Identifier: Apache-2.0
#include "generator/cublaslt.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "generator/prepared_matmul.h"
#include "generator/prepared_plan.h"

#if __has_include("cublasLt.h")
#include "cublasLt.h"
#define VITUNE_HAS_CUBLASLT_HEADER 1
#endif

namespace vitune {
namespace {

using ::testing::HasSubstr;
using Api = CublasLtApi;

#ifdef VITUNE_HAS_CUBLASLT_HEADER

// A type of the header's as ours: enumerations are int, structures those of the same size.
template <class T>
struct Ours {
  using type = std::conditional_t<std::is_enum_v<T>, int, T>;
};
template <>
struct Ours<cublasLtMatrixLayoutOpaque_t> {
  using type = Api::Layout;
};
template <>
struct Ours<cublasLtMatmulDescOpaque_t> {
  using type = Api::Operation;
};
template <>
struct Ours<cublasLtMatmulHeuristicResult_t> {
  using type = Api::Proposal;
};
template <>
struct Ours<cublasLtContext> {
  using type = CublasLtHandleTag;
};
template <>
struct Ours<CUstream_st> {
  using type = CuStreamTag;
};
template <class T>
struct Ours<T*> {
  using type = typename Ours<T>::type*;
};
template <class T>
struct Ours<const T> {
  using type = const typename Ours<T>::type;
};
template <class R, class... Args>
struct Ours<R(Args...)> {
  using type = typename Ours<R>::type(typename Ours<Args>::type...);
};
// In the header the preference and the algorithm are of the layout's type in all but name, so
// their functions are told apart by hand.
template <>
struct Ours<cublasLtMatmulPreferenceOpaque_t> {
  using type = Api::Preference;
};
template <>
struct Ours<cublasLtMatmulAlgo_t> {
  using type = Api::Algorithm;
};

#define EXPECT_SAME_SIGNATURE(member, function)                                      \
  static_assert(std::is_same_v<std::remove_pointer_t<decltype(CublasLtApi::member)>, \
                               Ours<decltype(function)>::type>)

EXPECT_SAME_SIGNATURE(version, cublasLtGetVersion);
EXPECT_SAME_SIGNATURE(status_name, cublasLtGetStatusName);
EXPECT_SAME_SIGNATURE(create, cublasLtCreate);
EXPECT_SAME_SIGNATURE(destroy, cublasLtDestroy);
EXPECT_SAME_SIGNATURE(layout_init, cublasLtMatrixLayoutInit_internal);
EXPECT_SAME_SIGNATURE(operation_init, cublasLtMatmulDescInit_internal);
EXPECT_SAME_SIGNATURE(operation_set, cublasLtMatmulDescSetAttribute);
EXPECT_SAME_SIGNATURE(preference_init, cublasLtMatmulPreferenceInit_internal);
EXPECT_SAME_SIGNATURE(preference_set, cublasLtMatmulPreferenceSetAttribute);
EXPECT_SAME_SIGNATURE(propose, cublasLtMatmulAlgoGetHeuristic);
EXPECT_SAME_SIGNATURE(check, cublasLtMatmulAlgoCheck);
EXPECT_SAME_SIGNATURE(matmul, cublasLtMatmul);

static_assert(sizeof(Api::Layout) == sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Api::Operation) == sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Api::Preference) == sizeof(cublasLtMatmulPreferenceOpaque_t));
static_assert(sizeof(Api::Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(Api::Proposal) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(Api::Proposal, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(Api::Proposal, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(int{Api::kSuccess} == CUBLAS_STATUS_SUCCESS);
static_assert(int{Api::kNotSupported} == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(int{Api::kCompute32F} == CUBLAS_COMPUTE_32F);
static_assert(int{Api::kFp32} == CUDA_R_32F && int{Api::kFp16} == CUDA_R_16F);
static_assert(int{Api::kBf16} == CUDA_R_16BF && int{Api::kTransposed} == CUBLAS_OP_T);
static_assert(int{Api::kTransposeA} == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(int{Api::kTransposeB} == CUBLASLT_MATMUL_DESC_TRANSB);
static_assert(int{Api::kEpilogue} == CUBLASLT_MATMUL_DESC_EPILOGUE);
static_assert(int{Api::kBiasPointer} == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
static_assert(int{Api::kBiasType} == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
static_assert(Api::kPlain == CUBLASLT_EPILOGUE_DEFAULT && Api::kRelu == CUBLASLT_EPILOGUE_RELU);
static_assert(Api::kBias == CUBLASLT_EPILOGUE_BIAS && Api::kGelu == CUBLASLT_EPILOGUE_GELU);
static_assert(Api::kSumsOfB == CUBLASLT_EPILOGUE_BGRADB);
static_assert(Api::kRelu + Api::kBias == CUBLASLT_EPILOGUE_RELU_BIAS);
static_assert(Api::kGelu + Api::kBias == CUBLASLT_EPILOGUE_GELU_BIAS);
static_assert(int{Api::kMostWorkspace} == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(int{Api::kReductionMask} == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(int{Api::kAlignmentA} == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(int{Api::kAlignmentB} == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(int{Api::kAlignmentC} == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(int{Api::kAlignmentD} == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(Api::kReduceInComputeType == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);

#endif

std::string fake_library(const std::string& kind) {
  return std::string(VITUNE_FAKE_CUBLASLT) + "/" + kind + "/libcublasLt.so.13";
}

Environment named(std::string path) {
  Environment environment;
  environment.cublaslt = std::move(path);
  return environment;
}

// A real library: the toolkit's, or PyPI's beside the tests with PyTorch.
std::optional<std::string> real_library() {
  for (const char* const path :
       {"/usr/local/cuda/lib64/libcublasLt.so.13", "/usr/local/cuda/lib/libcublasLt.so.13",
        "/usr/local/cuda/lib64/libcublasLt.so.12"}) {
    if (std::filesystem::exists(path)) return path;
  }
  return std::nullopt;
}

TEST(CublasLt, TheRealLibraryTakesOurStructuresAndAttributes) {
  const auto path = real_library();
  if (!path) GTEST_SKIP() << "no cuBLASLt is installed";
  const CublasLt library = CublasLt::open(named(*path));
  const Api& api = library.api;
  EXPECT_GE(library.version, 120000);
  Api::Layout layout;
  EXPECT_EQ(api.layout_init(&layout, sizeof(layout), Api::kBf16, 64, 32, 72), Api::kSuccess);
  EXPECT_NE(api.layout_init(&layout, sizeof(layout) / 2, Api::kBf16, 64, 32, 72), Api::kSuccess);
  Api::Operation operation;
  ASSERT_EQ(api.operation_init(&operation, sizeof(operation), Api::kCompute32F, Api::kFp32),
            Api::kSuccess);
  const auto set = [&](int attribute, auto value) {
    return api.operation_set(&operation, attribute, &value, sizeof(value));
  };
  EXPECT_EQ(set(Api::kTransposeA, Api::kTransposed), Api::kSuccess);
  EXPECT_EQ(set(Api::kEpilogue, Api::kGelu + Api::kBias), Api::kSuccess);
  EXPECT_EQ(set(Api::kBiasPointer, static_cast<const void*>(&layout)), Api::kSuccess);
  EXPECT_EQ(set(Api::kBiasType, std::int32_t{Api::kBf16}), Api::kSuccess);
  EXPECT_NE(set(Api::kEpilogue, std::uint64_t{1}), Api::kSuccess) << "it looks at sizes";
  Api::Preference preference;
  ASSERT_EQ(api.preference_init(&preference, sizeof(preference)), Api::kSuccess);
  const auto wish = [&](int attribute, auto value) {
    return api.preference_set(&preference, attribute, &value, sizeof(value));
  };
  EXPECT_EQ(wish(Api::kMostWorkspace, std::uint64_t{1 << 20}), Api::kSuccess);
  EXPECT_EQ(wish(Api::kReductionMask, Api::kReduceInComputeType), Api::kSuccess);
  for (const int side : {Api::kAlignmentA, Api::kAlignmentB, Api::kAlignmentC, Api::kAlignmentD}) {
    EXPECT_EQ(wish(side, std::uint32_t{16}), Api::kSuccess);
  }
  EXPECT_STREQ(api.status_name(Api::kNotSupported), "CUBLAS_STATUS_NOT_SUPPORTED");
}

TEST(CublasLt, TheNamedFileIsOpenedAndNoOther) {
  const CublasLt same = CublasLt::open(named(fake_library("same")));
  EXPECT_EQ(same.version, 130101);
  EXPECT_EQ(same.path, fake_library("same"));
  EXPECT_EQ(cublaslt_name(same.version), "cuBLASLt 13.1.1");
  try {
    CublasLt::open(named(fake_library("absent")));
    ADD_FAILURE() << "a file that is not there was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("VITUNE_CUBLASLT"));
    EXPECT_THAT(error.what(), HasSubstr(fake_library("absent")));
  }
}

TEST(CublasLt, ARelativeNameIsRefusedInsteadOfAnother) {
  for (const char* const relative : {"libcublasLt.so.13", "./libcublasLt.so.13"}) {
    try {
      CublasLt::open(named(relative));
      ADD_FAILURE() << "opened for " << relative;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_THAT(error.what(), HasSubstr(std::string("VITUNE_CUBLASLT is '") + relative +
                                          "', which is no absolute path"));
    }
  }
}

TEST(CublasLt, WithoutANameTheOneThatTheProcessHasIsTaken) {
  ASSERT_NE(dlopen(fake_library("other").c_str(), RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
  // Other tests of this process may have loaded another one before.
  EXPECT_THAT(CublasLt::open(Environment()).path, HasSubstr("libcublasLt.so.13"));
  EXPECT_THAT(CublasLt::open(Environment()).version,
              ::testing::AnyOf(130101, 130200, ::testing::Ge(120000)));
}

TEST(CublasLt, WhatAPlanLacksIsSaidWithWhatToDo) {
  Libraries absent(named(fake_library("absent")));
  EXPECT_THAT(
      absent.lacks_cublaslt(130101).value_or(""),
      ::testing::AllOf(HasSubstr("it calls cuBLASLt 13.1.1"), HasSubstr(fake_library("absent"))));
  EXPECT_THROW(absent.cublaslt(), Error);
  Libraries other(named(fake_library("other")));
  EXPECT_THAT(other.lacks_cublaslt(130101).value_or(""),
              ::testing::AllOf(HasSubstr("it calls cuBLASLt 13.1.1"),
                               HasSubstr("is cuBLASLt 13.2.0"), HasSubstr("VITUNE_CUBLASLT")));
  EXPECT_FALSE(other.lacks_cublaslt(130200));
}

// y = x W^T in fp32 on host memory, with gaps in every matrix.
struct HostProduct {
  static constexpr std::int64_t kM = 3, kN = 5, kK = 7;
  std::vector<float> x, w, residual, bias, y;
  std::vector<std::byte> scratch = std::vector<std::byte>(4096, std::byte{0x11});
  bool transposed;

  explicit HostProduct(bool is_transposed) : transposed(is_transposed) {
    const auto fill = [](std::vector<float>& values, std::size_t count, float step) {
      for (std::size_t i = 0; i < count; ++i) {
        values.push_back(static_cast<float>(static_cast<int>(i * 7 % 11) - 5) * step);
      }
    };
    fill(x, 100, 0.25F);
    fill(w, 100, 0.5F);
    fill(residual, 100, 1);
    fill(bias, 10, 0.5F);
    y.assign(100, -99);
  }
  static MatrixSlot slot(int tensor, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    MatrixSlot slot;
    slot.tensor = tensor;
    slot.type = ElementType::kFp32;
    slot.rows = rows;
    slot.columns = columns;
    slot.stride = stride;
    return slot;
  }
  MatmulCall call() const {
    MatmulCall call;
    call.a = transposed ? slot(1, kN, kK, 6) : slot(1, kK, kN, 9);
    call.transpose_a = !transposed;
    call.b = slot(0, kK, kM, 8);
    call.d = slot(4, kN, kM, 10);
    call.workspace_at = 256;
    return call;
  }
  std::array<std::uintptr_t, 5> addresses() const {
    const auto at = [](const std::vector<float>& v) {
      return reinterpret_cast<std::uintptr_t>(v.data());
    };
    return {at(x), at(w), at(residual), at(bias), at(y)};
  }
  double product(std::int64_t row, std::int64_t column) const {
    double sum = 0;
    for (std::int64_t k = 0; k < kK; ++k) {
      const std::int64_t w_at = transposed ? k * 6 + column : column * 9 + k;
      sum += double{x[static_cast<std::size_t>(row * 8 + k)]} * w[static_cast<std::size_t>(w_at)];
    }
    return sum;
  }
  float& result(std::int64_t row, std::int64_t column) {
    return y[static_cast<std::size_t>(row * 10 + column)];
  }
};

class PreparedMatmulTest : public testing::Test {
 protected:
  void SetUp() override { library_ = libraries_.cublaslt(); }
  // The product by proposal number `rank`, or the library's status.
  int run(HostProduct& host, MatmulCall call, std::size_t rank) {
    const auto proposed = proposed_algorithms(call, *library_, 8);
    EXPECT_EQ(proposed.size(), 3u) << "the fourth says itself that it is impossible";
    call.algorithm = proposed.at(rank);
    const PreparedMatmul prepared(call, library_);
    return prepared.launch(host.addresses(), reinterpret_cast<std::uintptr_t>(host.scratch.data()),
                           nullptr);
  }
  Libraries libraries_{named(fake_library("same"))};
  std::shared_ptr<const CublasLtHandle> library_;
};

TEST_F(PreparedMatmulTest, RowsTimesRowsAndRowsTimesColumnsAreTheProductInItsGaps) {
  for (const bool transposed : {false, true}) {
    HostProduct host(transposed);
    ASSERT_EQ(run(host, host.call(), 0), Api::kSuccess);
    for (std::int64_t row = 0; row < HostProduct::kM; ++row) {
      for (std::int64_t column = 0; column < HostProduct::kN; ++column) {
        EXPECT_EQ(host.result(row, column), static_cast<float>(host.product(row, column)));
      }
      EXPECT_EQ(host.result(row, HostProduct::kN), -99) << "what lies between rows is left alone";
    }
  }
}

TEST_F(PreparedMatmulTest, EpiloguesAddTheResidualAndTheBiasAndThenActivate) {
  for (const auto activation : {MatmulCall::Activation::kNone, MatmulCall::Activation::kRelu,
                                MatmulCall::Activation::kGeluTanh}) {
    HostProduct host(false);
    MatmulCall call = host.call();
    call.activation = activation;
    call.bias = HostProduct::slot(3, HostProduct::kN, 1, HostProduct::kN);
    if (activation == MatmulCall::Activation::kNone) {
      call.c = HostProduct::slot(2, HostProduct::kN, HostProduct::kM, 12);
    }
    ASSERT_EQ(run(host, call, 0), Api::kSuccess);
    double sum = host.product(1, 2) + host.bias[2];
    if (call.c) sum += host.residual[12 + 2];
    if (activation == MatmulCall::Activation::kRelu) sum = std::max(sum, 0.0);
    if (activation == MatmulCall::Activation::kGeluTanh) {
      sum *= 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (sum + 0.044715 * sum * sum * sum)));
    }
    EXPECT_NEAR(host.result(1, 2), sum, 1e-6 * std::max(1.0, std::fabs(sum)));
  }
}

TEST_F(PreparedMatmulTest, TheWorkspaceIsThePlansPlaceInTheScratchMemory) {
  HostProduct host(false);
  ASSERT_EQ(run(host, host.call(), 1), Api::kSuccess);
  EXPECT_EQ(host.scratch[255], std::byte{0x11});
  EXPECT_EQ(host.scratch[256], std::byte{0xa5});
  EXPECT_EQ(host.scratch[256 + 999], std::byte{0xa5});
  EXPECT_EQ(host.scratch[256 + 1000], std::byte{0x11});
}

TEST_F(PreparedMatmulTest, AnotherVersionARefusalAndTooSmallAWorkspaceAreUnsupported) {
  const HostProduct host(false);
  MatmulCall call = host.call();
  call.algorithm = proposed_algorithms(call, *library_, 8).at(1);
  const auto refusal = [&](const MatmulCall& asked, const std::string& kind) -> std::string {
    Libraries libraries(named(fake_library(kind)));
    try {
      PreparedMatmul(asked, libraries.cublaslt());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(refusal(call, "same"), "");
  EXPECT_THAT(refusal(call, "other"), HasSubstr("the plan calls cuBLASLt 13.1.1"));
  EXPECT_THAT(refusal(call, "refusing"), HasSubstr("does not take this algorithm"));
  MatmulCall small = call;
  small.algorithm.workspace_bytes = 10;
  EXPECT_THAT(refusal(small, "same"), HasSubstr("needs 1000 bytes of workspace"));
  MatmulCall unknown = call;
  unknown.algorithm.words[0] += 77;
  EXPECT_THAT(refusal(unknown, "same"), HasSubstr("CUBLAS_STATUS_NOT_SUPPORTED"));
}

TEST_F(PreparedMatmulTest, APlanOfProductsAloneNeedsNoKernelAndRunsThemInOrder) {
  HostProduct host(false);
  LaunchPlan plan;
  plan.matmuls.assign(2, host.call());
  for (MatmulCall& call : plan.matmuls) {
    call.algorithm = proposed_algorithms(call, *library_, 8).at(0);
  }
  // The second adds the first one's result to its own.
  plan.matmuls[1].c = plan.matmuls[1].d;
  PreparedPlan prepared(plan, {}, &libraries_);
  prepared.check(prepared.launch(host.addresses(), 0, nullptr));
  EXPECT_EQ(host.result(2, 3), static_cast<float>(2 * host.product(2, 3)));
  const BoundPlan bound(std::move(prepared), host.addresses(), 0);
  ASSERT_EQ(bound.launch(nullptr).result, 0);
  EXPECT_EQ(host.result(2, 3), static_cast<float>(2 * host.product(2, 3)));
  EXPECT_THROW(PreparedPlan(plan, {}), Error) << "there is no library to ask";
  plan.matmuls[1].before = 1;
  EXPECT_THROW(PreparedPlan(plan, {}, &libraries_), Error) << "there is no kernel to run ahead of";
}

TEST(LaunchPlanOfProducts, APartsProductsMoveWithItsKernelsTensorsAndScratch) {
  LaunchPlan whole;
  whole.kernels.resize(2);
  SubPlan part;
  part.plan.kernels.resize(1);
  MatmulCall& call = part.plan.matmuls.emplace_back(HostProduct(false).call());
  call.before = 1;
  call.bias = HostProduct::slot(0, HostProduct::kN, 1, HostProduct::kN);
  call.d.tensor = PointerSlot::kScratch;
  part.plan.scratch_bytes = 512;
  part.tensors = {{7, 16}, {8, 0}};
  append(whole, part, 1024);
  ASSERT_EQ(whole.matmuls.size(), 1u);
  const MatmulCall& moved = whole.matmuls.front();
  EXPECT_EQ(moved.before, 3u);
  EXPECT_EQ(moved.workspace_at, 1024 + 256);
  EXPECT_EQ(moved.b.tensor, 7);
  EXPECT_EQ(moved.b.offset, 16);
  EXPECT_EQ(moved.a.tensor, 8);
  EXPECT_EQ(moved.bias->tensor, 7);
  EXPECT_EQ(moved.d.tensor, PointerSlot::kScratch);
  EXPECT_EQ(moved.d.offset, 1024);
  EXPECT_EQ(whole.scratch_bytes, 1536);
}

}  // namespace
}  // namespace vitune
