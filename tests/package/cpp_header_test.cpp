// tests/package/cpp_header_test.cpp -- vitune.hpp beside the project's own headers, on the mock
// driver.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "generator/attention/kernel_spec.h"
#include "generator/operator.h"
#include "runtime/dispatch/dispatcher.h"
#include "tests/db/test_support.h"
#include "tests/generator/elf_image.h"
#include "tests/runtime/mock_libcuda.h"
#include "vitune/vitune.hpp"

namespace vitune {
namespace {

using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// The enumerators that take their values from their order.
static_assert(static_cast<int>(DataType::kFp16) == VITUNE_FP16);
static_assert(static_cast<int>(DataType::kFp32) == VITUNE_FP32);
static_assert(static_cast<int>(DataType::kBool) == VITUNE_BOOL);
static_assert(static_cast<int>(OnMiss::kEnvironment) == VITUNE_ON_MISS_ENVIRONMENT);
static_assert(static_cast<int>(OnMiss::kNearest) == VITUNE_ON_MISS_NEAREST);
static_assert(static_cast<int>(OnMiss::kDefault) == VITUNE_ON_MISS_DEFAULT);
static_assert(static_cast<int>(OnMiss::kCompile) == VITUNE_ON_MISS_COMPILE);
static_assert(static_cast<int>(OnMiss::kError) == VITUNE_ON_MISS_ERROR);
static_assert(static_cast<int>(OnBusy::kDefault) == VITUNE_ON_BUSY_DEFAULT);
static_assert(static_cast<int>(TunedFor::kWarm) == VITUNE_WARM);
static_assert(static_cast<int>(Served::kNearest) == VITUNE_NEAREST);
static_assert(static_cast<int>(Served::kDefault) == VITUNE_DEFAULT);
static_assert(static_cast<int>(LogSeverity::kDebug) == VITUNE_LOG_DEBUG);
static_assert(static_cast<int>(LogSeverity::kError) == VITUNE_LOG_ERROR);

// An output is not made from what must not be written.
static_assert(std::is_convertible_v<const void*, DeviceInput>);
static_assert(std::is_convertible_v<std::span<const float>, DeviceInput>);
static_assert(std::is_convertible_v<std::span<float, 4>, DeviceOutput>);
static_assert(std::is_convertible_v<unsigned long long, DeviceOutput>);
static_assert(!std::is_convertible_v<const void*, DeviceOutput>);
static_assert(!std::is_convertible_v<std::span<const float>, DeviceOutput>);
static_assert(!std::is_convertible_v<int, DeviceInput>);
static_assert(std::is_constructible_v<NamedTensor, const char*, const void*>);
static_assert(std::is_constructible_v<NamedTensor, const char*, unsigned long long>);
static_assert(!std::is_constructible_v<NamedTensor, const char*, int>);
static_assert(!std::is_constructible_v<cpp::Problem, const cpp::Problem&>);
static_assert(std::is_nothrow_move_assignable_v<cpp::Problem>);
static_assert(!std::is_copy_constructible_v<Context> && std::is_nothrow_move_assignable_v<Context>);

bool same(const vitune_strides& a, const vitune_strides& b) {
  return a.batch == b.batch && a.head == b.head && a.row == b.row;
}

// Runs what must fail; the status of its Exception.
template <typename Body>
vitune_status status_of_failure(Body&& body) {
  try {
    body();
  } catch (const Exception& error) {
    EXPECT_THAT(error.what(), StartsWith(std::string(vitune_status_name(error.status())) + ": "));
    EXPECT_THAT(std::strlen(error.what()), Ge(30u)) << "no sentence: " << error.what();
    return error.status();
  }
  return VITUNE_OK;
}

TEST(CppAttentionTest, LayoutsAreThoseOfTheCInterface) {
  Attention attention({.batch = 2, .heads = 12, .nq = 197, .nk = 50, .d = 48});
  EXPECT_TRUE(same(attention.desc().q, vitune_bnhd_strides(12, 197, 48)));
  EXPECT_TRUE(same(attention.desc().k, vitune_bnhd_strides(12, 50, 48)));
  EXPECT_TRUE(same(attention.bhnd().desc().v, vitune_bhnd_strides(12, 50, 48)));
  EXPECT_TRUE(same(attention.desc().o, vitune_bhnd_strides(12, 197, 48)));
  const Attention packed = Attention({.batch = 2, .heads = 12, .nq = 197, .d = 48}).packed();
  EXPECT_TRUE(same(packed.desc().k, vitune_packed_strides(12, 197, 48)));
  EXPECT_TRUE(same(packed.desc().o, vitune_bnhd_strides(12, 197, 48)));
}

TEST(CppAttentionTest, APackedTensorOfFewerKvHeadsHasRoomForThemOnly) {
  const Attention attention = Attention({.heads = 12, .kv_heads = 4, .nq = 197, .d = 64}).packed();
  EXPECT_EQ(attention.desc().q.row, (12 + 2 * 4) * 64);
  EXPECT_EQ(attention.desc().v.batch, 197 * (12 + 2 * 4) * 64);
}

TEST(CppAttentionTest, TheTextOfAProblemGivesTheProblemAgain) {
  const std::vector<Attention> problems = {
      Attention({.batch = 32, .heads = 12, .nq = 197, .d = 64}).packed(),
      Attention({.dtype = DataType::kFp16,
                 .batch = 3,
                 .heads = 8,
                 .kv_heads = 2,
                 .nq = 5,
                 .nk = 77,
                 .d = 80,
                 .scale = 0.25,
                 .causal = true,
                 .lse = true})
          .bhnd(),
      Attention({.batch = 4, .heads = 6, .nq = 49, .d = 32})
          .bias(DataType::kFp32, std::array<std::int64_t, 4>{0, 2401, 49, 1}, 1)
          .mask(std::array<std::int64_t, 4>{2401, 0, 49, 1}, 2)};
  for (const Attention& problem : problems) {
    EXPECT_EQ(Attention::parse(problem.text()).text(), problem.text());
  }
  EXPECT_THAT(problems[1].text(), HasSubstr("fp16"));
  EXPECT_THAT(problems[1].text(), HasSubstr("causal"));
  EXPECT_NE(problems[2].text(), Attention({.batch = 4, .heads = 6, .nq = 49, .d = 32}).text());
}

TEST(CppAttentionTest, StridesOfATensorLibraryAreTakenIfTheLastIsOne) {
  Attention attention({.batch = 2, .heads = 3, .nq = 5, .d = 64});
  const std::vector<std::int64_t> view{1000, 64, 200, 1}, transposed{1000, 64, 1, 200}, two{1, 2};
  attention.q_strides(view).k_strides(std::span(view).first(3));
  EXPECT_TRUE(same(attention.desc().q, {1000, 64, 200}));
  EXPECT_TRUE(same(attention.desc().k, {1000, 64, 200}));
  for (const auto& wrong : {transposed, two}) {
    EXPECT_EQ(status_of_failure([&] { attention.v_strides(wrong); }), VITUNE_INVALID_ARGUMENT);
    EXPECT_EQ(status_of_failure([&] { attention.out_strides(wrong); }), VITUNE_INVALID_ARGUMENT);
  }
}

TEST(CppAttentionTest, StridesOfABiasOrMaskThatAreNotFourAreRefusedAndChangeNothing) {
  Attention attention({.batch = 4, .heads = 6, .nq = 49, .d = 32});
  const std::string before = attention.text();
  const std::vector<std::int64_t> three{2401, 49, 1};
  EXPECT_EQ(status_of_failure([&] { attention.bias(DataType::kFp32, three); }),
            VITUNE_INVALID_ARGUMENT);
  EXPECT_EQ(status_of_failure([&] { attention.mask(three); }), VITUNE_INVALID_ARGUMENT);
  EXPECT_EQ(attention.text(), before);
}

TEST(CppAttentionTest, SizesThatOverflowAreRefusedAndNotUndefined) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const AttentionSizes& sizes :
       {AttentionSizes{.batch = 2, .heads = kMost, .nq = kMost},
        AttentionSizes{.heads = kMost / 2, .kv_heads = kMost / 2, .nq = 2},
        AttentionSizes{.batch = 2, .heads = 2, .nq = kMost / 100, .d = 128}}) {
    for (const Attention& attention : {Attention(sizes).packed(), Attention(sizes).bhnd()}) {
      EXPECT_NE(status_of_failure([&] { attention.text(); }), VITUNE_OK);
    }
  }
}

TEST(CppAttentionTest, WhatIsOutsideTheKernelsReachIsAnException) {
  EXPECT_EQ(status_of_failure([] { Attention::parse("bf16 b=1 h=1 n=197 d=129"); }),
            VITUNE_UNSUPPORTED);
  EXPECT_EQ(status_of_failure([] { Attention::parse("bf16 b=1 h=one n=197 d=64"); }),
            VITUNE_INVALID_ARGUMENT);
}

TEST(CppDeviceViewTest, KeepsAddressAndBytes) {
  std::array<float, 6> values{};
  EXPECT_EQ(DeviceInput(std::span(values)).data(), values.data());
  EXPECT_EQ(DeviceInput(std::span(values)).bytes(), 24);
  EXPECT_EQ(DeviceOutput(values.data()).bytes(), 0);
  EXPECT_EQ(DeviceOutput(0x7f0000000000ull, 5).data(), reinterpret_cast<void*>(0x7f0000000000));
  EXPECT_EQ(DeviceOutput(0x7f0000000000ull, 5).bytes(), 5);
  EXPECT_EQ(DeviceInput(nullptr).data(), nullptr);
}

constexpr char kNorm[] = "norm bf16 m=5 d=64 weight residual sum";

TEST(CppProblemTest, SaysWhichTensorsACallHas) {
  const cpp::Problem problem(kNorm);
  EXPECT_EQ(problem.text(), kNorm);
  std::string given;
  for (const TensorInfo& tensor : problem.tensors()) {
    if (tensor.given) given += tensor.name + (tensor.output ? "! " : " ");
  }
  EXPECT_EQ(given, "x residual weight out! sum! ");
  EXPECT_EQ(problem.tensors().size(), 9u);
  const TensorInfo& x = problem.tensors()[0];
  EXPECT_EQ(x.type, DataType::kBf16);
  EXPECT_EQ(x.alignment, 16);
  EXPECT_EQ(x.extents, (std::array<std::int64_t, 4>{1, 1, 5, 64}));
  EXPECT_EQ(x.strides[2], 64);
  EXPECT_EQ(x.bytes, 640);
}

TEST(CppProblemTest, AddressesAreInTheOrderOfACallAndChecked) {
  const cpp::Problem problem(kNorm);
  std::array<std::uint16_t, 320> memory{};
  const void* const in = memory.data();
  void* const out = memory.data();
  const std::vector<void*> all = problem.addresses({{"sum", std::span(memory)},
                                                    {"weight", 0x700ull},
                                                    {"out", DeviceOutput(0x800ull, 640)},
                                                    {"residual", in},
                                                    {"x", in}});
  void* const weight = reinterpret_cast<void*>(0x700);
  EXPECT_EQ(all, (std::vector<void*>{out, out, weight, nullptr, reinterpret_cast<void*>(0x800), out,
                                     nullptr, nullptr, nullptr}));

  const cpp::Problem plain("norm bf16 m=5 d=64");
  const auto refused = [&](std::initializer_list<NamedTensor> tensors) -> std::string {
    try {
      plain.addresses(tensors);
    } catch (const Exception& error) {
      EXPECT_EQ(error.status(), VITUNE_INVALID_ARGUMENT);
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(refused({{"x", in}, {"out", out}}), "");
  EXPECT_THAT(refused({{"x", in}}), HasSubstr("'out' has no address"));
  EXPECT_THAT(refused({{"x", in}, {"out", out}, {"y", in}}), HasSubstr("which has x, out"));
  EXPECT_THAT(refused({{"x", in}, {"out", out}, {"weight", in}}), HasSubstr("'weight' is not of"));
  EXPECT_THAT(refused({{"x", in}, {"x", in}, {"out", out}}), HasSubstr("'x' is there twice"));
  EXPECT_THAT(refused({{"x", in}, {"out", in}}), HasSubstr("'out' is written"));
  EXPECT_THAT(refused({{"x", DeviceInput(in, 639)}, {"out", out}}), HasSubstr("639 bytes"));
}

TEST(CppProblemTest, ATextThatIsNoneIsAnException) {
  EXPECT_EQ(status_of_failure([] { cpp::Problem("fold bf16 m=1"); }), VITUNE_INVALID_ARGUMENT);
  EXPECT_EQ(status_of_failure([] { cpp::Problem("norm bf16 m=1 d=9000"); }), VITUNE_UNSUPPORTED);
}

// A context on the mock driver with one problem that has a winner.
class CppContextTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kSlice = 12 * 64;

  void SetUp() override {
    mock_ = test::open_mock_cuda(VITUNE_MOCK_LIBCUDA);
    if (mock_ == nullptr) GTEST_SKIP() << "this process has loaded the machine's own driver";
    mock_->add_range(kBase, std::size_t{64} << 20, 0, 2);
    promote();
  }

  ContextOptions options() {
    return {.compile = false,
            .database = (folder_ / "user.db").string(),
            .shipped_database = "",
            .log = [this](LogSeverity severity, std::string_view message) {
              log_.emplace_back(severity, message);
            }};
  }

  void promote() {
    const AttentionProblem problem = AttentionProblem::parse(attention_.text());
    const Config config = default_attention_config(problem, test::mock_device());
    const CompileRequest request =
        attention_compile_request(problem, config, test::mock_device().arch());
    Winner winner = test::sample_winner(1);
    const Binary binary{kernel_key(request, winner.compiler_version),
                        request.arch,
                        winner.compiler_version,
                        request.entry,
                        {128, 0, dynamic_shared_bytes(*ProblemPtr(problem), config), 100},
                        test::elf_image()};
    winner.config = config;
    winner.kernel_key = binary.kernel_key;
    Store::open(folder_ / "user.db", Access::kReadWrite)
        ->promote(test::mock_device(), {"attention", problem.canonical().text()}, winner, &binary);
  }

  AttentionTensors tensors() const {
    return {
        .q = kBase, .k = kBase + 2 * kSlice, .v = kBase + 4 * kSlice, .out = kBase + (32ull << 20)};
  }

  static constexpr unsigned long long kBase = 0x7f0000000000;
  const Attention attention_ = Attention({.batch = 2, .heads = 12, .nq = 197, .d = 64}).packed();
  test::TempDir folder_;
  test::MockCuda* mock_ = nullptr;
  std::vector<std::pair<LogSeverity, std::string>> log_;
};

TEST_F(CppContextTest, AProblemIsPreparedAskedForAndExplainedByItsText) {
  Context context(options());
  const std::string text = attention_.text();
  context.prepare(text);
  EXPECT_TRUE(context.query(text).loaded);
  EXPECT_EQ(context.query(text).config, context.query(attention_).config);
  EXPECT_EQ(context.workspace_bytes(text), context.workspace_bytes(attention_));
  const std::string lines = context.explain(text);
  EXPECT_THAT(lines, AllOf(HasSubstr(text), HasSubstr(context.query(text).config)));
  EXPECT_EQ(lines.back(), '\n');
  EXPECT_EQ(status_of_failure([&] { context.prepare("no problem"); }), VITUNE_INVALID_ARGUMENT);
}

TEST_F(CppContextTest, RunsAProblemByTheKernelThatItsTextAndItsDescriptionHave) {
  Context context(options());
  cpp::Problem first(attention_.text());
  const AttentionTensors t = tensors();
  const std::vector<void*> addresses = first.addresses(
      {{"q", t.q.data()}, {"k", t.k.data()}, {"v", t.v.data()}, {"out", t.out.data()}});
  EXPECT_EQ(context.workspace_bytes(first), 0u);
  EXPECT_TRUE(context.query(first).loaded);
  EXPECT_EQ(context.query(first).config, context.query(attention_).config);
  EXPECT_EQ(context.explain(first), context.explain(first.text()));
  mock_->clear_log();
  context.run(first, addresses, {}, reinterpret_cast<void*>(0x5000));
  context.forward(attention_, t, reinterpret_cast<void*>(0x5000));
  const auto launches = mock_->launches();
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[0].image, launches[1].image);
  EXPECT_EQ(launches[0].stream, reinterpret_cast<CuStreamTag*>(0x5000));
  EXPECT_EQ(context.stats().problems, 1u);

  const cpp::Problem second = std::move(first);
  context.run(second, addresses);
  EXPECT_EQ(context.try_run(first, addresses), VITUNE_INVALID_ARGUMENT);
  EXPECT_EQ(context.try_run(second, std::array<void*, 2>{}), VITUNE_INVALID_ARGUMENT);
  EXPECT_EQ(status_of_failure([&] { context.run(second, std::array<void*, 7>{}); }),
            VITUNE_INVALID_ARGUMENT);
}

TEST_F(CppContextTest, ServesAWinnerAndSaysWhich) {
  Context context(options());
  EXPECT_FALSE(context.query(attention_).loaded);
  context.prepare(attention_);
  mock_->clear_log();
  context.forward(attention_, tensors(), reinterpret_cast<void*>(0x5000));

  const auto launches = mock_->launches();
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].stream, reinterpret_cast<CuStreamTag*>(0x5000));
  EXPECT_EQ(context.stats().exact_calls, 1u);
  const KernelSelection selection = context.query(attention_);
  EXPECT_EQ(selection.served, Served::kExact);
  EXPECT_TRUE(selection.loaded);
  EXPECT_FALSE(selection.compiled);
  EXPECT_EQ(selection.problem, attention_.text());
  EXPECT_EQ(selection.source, "user");
  EXPECT_EQ(selection.kernel_key.size(), 64u);
  EXPECT_GT(selection.cold_us, 0);
  EXPECT_GT(selection.max_error, 0);
  EXPECT_THAT(selection.config, HasSubstr("kBlockN="));
  EXPECT_THAT(selection.reason, Not(HasSubstr("="))) << "fields are mixed up";
}

TEST_F(CppContextTest, ABufferThatIsTooSmallIsRefusedBeforeTheLaunch) {
  Context context(options());
  AttentionTensors t = tensors();
  const std::int64_t needed = 2 * (2 * 197 * kSlice);
  t.out = {t.out.data(), needed - 1};
  EXPECT_EQ(status_of_failure([&] { context.forward(attention_, t); }), VITUNE_INVALID_ARGUMENT);
  EXPECT_TRUE(mock_->launches().empty());
  t.out = {t.out.data(), needed};
  EXPECT_EQ(context.try_forward(attention_, t), VITUNE_OK) << vitune_last_error();
}

TEST_F(CppContextTest, AMovedContextGoesOnAndTheOldOneIsAnError) {
  Context first(options());
  first.forward(attention_, tensors());
  Context second(std::move(first));
  second.forward(attention_, tensors());
  EXPECT_EQ(second.stats().exact_calls, 2u);
  EXPECT_EQ(status_of_failure([&] { first.forward(attention_, tensors()); }),
            VITUNE_INVALID_CONTEXT);
  EXPECT_EQ(status_of_failure([&] { first.flush(); }), VITUNE_INVALID_CONTEXT);
  Context third(options());
  third = std::move(second);
  EXPECT_EQ(third.stats().exact_calls, 2u);
  third.close();
  EXPECT_EQ(third.get(), nullptr);
  EXPECT_EQ(status_of_failure([&] { third.close(); }), VITUNE_INVALID_CONTEXT);
}

TEST_F(CppContextTest, EveryContextLeavesNothingBehind) {
  const int before = mock_->live().total();
  {
    Context context(options());
    context.forward(attention_, tensors());
    EXPECT_GT(mock_->live().total(), before);
    Context other(options());
    other = std::move(context);
  }
  EXPECT_EQ(mock_->live().total(), before);
}

TEST_F(CppContextTest, MessagesReachTheLogAndWhatItThrowsIsDropped) {
  test::write_bytes(folder_ / "damaged.db", "this is not a database");
  ContextOptions damaged = options();
  damaged.database = (folder_ / "damaged.db").string();
  { const Context context(damaged); }
  ASSERT_FALSE(log_.empty());
  EXPECT_EQ(log_[0].first, LogSeverity::kWarning);
  EXPECT_THAT(log_[0].second, HasSubstr("damaged.db"));

  int thrown = 0;
  damaged.log = [&](LogSeverity, std::string_view) {
    ++thrown;
    throw std::runtime_error("from the callback");
  };
  EXPECT_NO_THROW(Context{damaged});
  EXPECT_GT(thrown, 0);
}

TEST_F(CppContextTest, OptionsReachTheLibrary) {
  ContextOptions wrong = options();
  wrong.device = 7;
  EXPECT_EQ(status_of_failure([&] { Context context(wrong); }), VITUNE_NO_DEVICE);

  ContextOptions strict = options();
  strict.on_miss = OnMiss::kError;
  Context context(strict);
  const Attention missing = Attention({.batch = 2, .heads = 12, .nq = 50, .d = 64}).packed();
  EXPECT_EQ(status_of_failure([&] { context.prepare(missing); }), VITUNE_NOT_PREPARED);
  EXPECT_EQ(context.refresh(), 0);
}

}  // namespace
}  // namespace vitune
