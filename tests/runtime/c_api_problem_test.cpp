// tests/runtime/c_api_problem_test.cpp -- Problems of any operator as handles: what they say, and
// calls of them.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>

#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

constexpr char kViT[] = "attention bf16 b=2 h=12 n=197 d=64";
constexpr char kNorm[] = "norm bf16 m=5 d=64 weight residual sum";

// Destroys the problem with its scope.
class Asked {
 public:
  explicit Asked(const char* text) {
    EXPECT_STATUS(VITUNE_OK, vitune_problem_create(text, &problem_));
  }
  ~Asked() { vitune_problem_destroy(problem_); }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
  const vitune_problem* get() const { return problem_; }

 private:
  vitune_problem* problem_ = nullptr;
};

class CApiProblemTest : public RuntimeTest {
 protected:
  // In the order of attention's tensors.
  std::array<void*, 7> addresses_of(const char* text) {
    const Tensors t = tensors_of(text);
    const auto plain = [](const void* at) { return const_cast<void*>(at); };
    return {plain(t.q), plain(t.k), plain(t.v), plain(t.bias), plain(t.mask), t.out, t.lse};
  }
  template <std::size_t kCount>
  static vitune_status run(const Context& context, const Asked& asked,
                           const std::array<void*, kCount>& tensors) {
    return vitune_run(context.get(), asked.get(), tensors.data(), tensors.size(), nullptr, 0,
                      kStream);
  }
};

TEST_F(CApiProblemTest, TensorsAreListedInTheOrderOfACall) {
  const Asked asked(kNorm);
  std::size_t count = 0;
  ASSERT_STATUS(VITUNE_OK, vitune_problem_tensors(asked.get(), &count));
  ASSERT_EQ(count, 9u);
  std::string given;
  for (std::size_t place = 0; place < count; ++place) {
    vitune_tensor tensor = VITUNE_TENSOR_INIT;
    ASSERT_STATUS(VITUNE_OK, vitune_problem_tensor(asked.get(), place, &tensor));
    if (tensor.given != 0) given += std::string(tensor.name) + (tensor.output ? "! " : " ");
  }
  EXPECT_EQ(given, "x residual weight out! sum! ");
  vitune_tensor x = VITUNE_TENSOR_INIT;
  ASSERT_STATUS(VITUNE_OK, vitune_problem_tensor(asked.get(), 0, &x));
  EXPECT_EQ(x.type, VITUNE_BF16);
  EXPECT_EQ(x.alignment, 16);
  EXPECT_EQ(x.extents[2], 5);
  EXPECT_EQ(x.strides[2], 64);
  EXPECT_EQ(x.bytes, 640);
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, vitune_problem_tensor(asked.get(), 9, &x), "no tensor 9");
  x.size = 3;
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, vitune_problem_tensor(asked.get(), 0, &x), "size");
}

TEST_F(CApiProblemTest, ACallRunsTheKernelThatADescriptionWould) {
  const StoredKernel kernel = make_kernel(kViT, 1);
  promote(database(), kernel);
  const Context context = make_context();
  const Asked asked(kViT);
  const auto tensors = addresses_of(kViT);
  ASSERT_STATUS(VITUNE_OK, run(context, asked, tensors));
  ASSERT_STATUS(VITUNE_OK, run(context, asked, tensors));
  ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kViT), tensors_of(kViT)));
  ASSERT_EQ(mock_->launches().size(), 3u);
  for (const auto& launch : mock_->launches()) EXPECT_EQ(launch.image, kernel.image_id());
  EXPECT_EQ(stats(context).exact_calls, 3u);
  EXPECT_EQ(stats(context).problems, 1u);
  EXPECT_EQ(stats(context).kernels_loaded, 1u);
}

TEST_F(CApiProblemTest, ALaterCallAsksTheDriverForItsLaunchOnlyAndAllocatesNothing) {
  if (!counting_works()) GTEST_SKIP() << "a sanitizer has taken the place of malloc";
  promote(database(), make_kernel(kViT, 1));
  const Context context = make_context();
  const Asked asked(kViT);
  const auto tensors = addresses_of(kViT);
  ASSERT_STATUS(VITUNE_OK, run(context, asked, tensors));
  mock_->set_recording(false);
  mock_->set_current(mock_->primary(0));
  start_counting();
  for (int i = 0; i < 100; ++i) run(context, asked, tensors);
  const CallCounts counts = stop_counting();
  EXPECT_EQ(counts.allocations, 0u);
  EXPECT_EQ(counts.locks, 0u);
  EXPECT_EQ(counts.system_calls, 0u);
  EXPECT_EQ(stats(context).exact_calls, 101u);
}

TEST_F(CApiProblemTest, TextsThatAreNoProblemsAreRefused) {
  vitune_problem* problem = nullptr;
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, vitune_problem_create(kViT, nullptr), "problem");
  for (const char* const text :
       {"", " ", "norm", "norm bf16", "attention", "fold bf16 m=1", "norm bf16 m=1 d=1 \x01",
        "norm bf16 m=-1 d=4", "norm bf16 m=1 d=99999999999999999999999"}) {
    EXPECT_EQ(vitune_problem_create(text, &problem), VITUNE_INVALID_ARGUMENT) << text;
    EXPECT_EQ(problem, nullptr);
    EXPECT_STRNE(vitune_last_error(), "");
  }
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, vitune_problem_create(nullptr, &problem), "text");
  EXPECT_REFUSED(VITUNE_UNSUPPORTED, vitune_problem_create("norm bf16 m=1 d=9000", &problem),
                 "8192");
  vitune_problem_destroy(nullptr);
}

TEST_F(CApiProblemTest, TensorsThatDoNotFitAreRefused) {
  promote(database(), make_kernel(kViT, 1));
  const Context context = make_context();
  const Asked asked(kViT);
  const auto right = addresses_of(kViT);
  const auto with = [&](std::size_t place, void* address) {
    auto changed = right;
    changed[place] = address;
    return changed;
  };
  const auto bytes = [](void* at, std::ptrdiff_t by) { return static_cast<char*>(at) + by; };
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, run(context, asked, with(1, nullptr)), "k is NULL or");
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, run(context, asked, with(3, right[0])),
                 "bias is not NULL");
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, run(context, asked, with(0, bytes(right[0], 8))),
                 "no multiple of the 16 bytes");
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, run(context, asked, with(5, right[0])), "share memory");
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, run(context, asked, std::array<void*, 8>{}), "8 tensors");
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT,
                 vitune_run(context.get(), asked.get(), right.data(), 5, nullptr, 0, kStream),
                 "out is NULL or left out");
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT,
                 vitune_run(context.get(), asked.get(), nullptr, 7, nullptr, 0, kStream),
                 "0 tensors");
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT,
                 vitune_run(context.get(), nullptr, right.data(), 7, nullptr, 0, kStream),
                 "problem is NULL");
  EXPECT_REFUSED(VITUNE_INVALID_CONTEXT,
                 vitune_run(nullptr, asked.get(), right.data(), 7, nullptr, 0, kStream), "context");
  EXPECT_EQ(mock_->launches().size(), 0u);
  EXPECT_EQ(stats(context).failed_calls, 8u);
  EXPECT_STATUS(VITUNE_OK, run(context, asked, right));
}

// As a program does that was built when its problems had no tensor more.
TEST_F(CApiProblemTest, LastTensorsThatAreNotGivenMayBeLeftOut) {
  promote(database(), make_kernel(kViT, 1));
  const Context context = make_context();
  const Asked asked(kViT);
  const auto tensors = addresses_of(kViT);
  ASSERT_EQ(tensors.back(), nullptr);
  const std::size_t fewer = tensors.size() - 1;
  EXPECT_STATUS(VITUNE_OK,
                vitune_run(context.get(), asked.get(), tensors.data(), fewer, nullptr, 0, kStream));
  EXPECT_EQ(mock_->launches().size(), 1u);
}

// A sum may lie on the residual: then the refusal is not the overlap's but that of the missing
// kernel.
TEST_F(CApiProblemTest, AnOutputMayTakeTheVeryPlaceOfAnInputThatAllowsIt) {
  vitune_context_options options = this->options();
  options.on_miss = VITUNE_ON_MISS_ERROR;
  const Context context(options);
  const Asked asked(kNorm);
  std::array<void*, 9> tensors{};
  for (const std::size_t place : {0, 1, 2, 4, 5}) tensors[place] = buffer(640);
  const auto with_sum = [&](void* address) {
    auto changed = tensors;
    changed[5] = address;
    return changed;
  };
  EXPECT_EQ(run(context, asked, with_sum(tensors[1])), VITUNE_NOT_PREPARED) << vitune_last_error();
  EXPECT_EQ(run(context, asked, with_sum(tensors[0])), VITUNE_NOT_PREPARED) << vitune_last_error();
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT,
                 run(context, asked, with_sum(static_cast<char*>(tensors[1]) + 16)),
                 "share memory");
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, run(context, asked, with_sum(tensors[4])),
                 "share memory");
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, run(context, asked, with_sum(tensors[2])),
                 "share memory");
}

}  // namespace
}  // namespace vitune::test
