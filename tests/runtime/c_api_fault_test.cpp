// tests/runtime/c_api_fault_test.cpp -- Every driver call fails once, with each kind of error.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

// Out of memory, no context, no binary for this GPU, illegal address, launch failure, unknown.
constexpr std::array kCodes = {2, 201, 209, 700, 719, 999};

class CApiFaultTest : public RuntimeTest {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    if (mock_ == nullptr) return;
    promote(database(), exact_);
    put_binary(database(), standard_);
    tensors_ = tensors_of(kVitB);
  }

  // The status of a call must be one that tells its fault, if there was one.
  void expect_told(vitune_status status, const char* call) {
    if (status == VITUNE_OK) return;
    EXPECT_GT(status, VITUNE_OK) << call;
    EXPECT_LT(status, VITUNE_INTERNAL) << call << ": " << vitune_last_error();
    EXPECT_STRNE(vitune_last_error(), "") << call;
  }

  // Everything a context does, once.
  void use_everything() {
    vitune_context_options chosen = options();
    chosen.read_only = 1;
    vitune_context* context = nullptr;
    const vitune_status made = vitune_context_create(&chosen, &context);
    expect_told(made, "create");
    EXPECT_EQ(context == nullptr, made != VITUNE_OK);
    if (context == nullptr) return;
    const vitune_attention_desc desc = desc_of(kVitB);
    vitune_selection selection = VITUNE_SELECTION_INIT;
    for (int call = 0; call < 2; ++call) {
      expect_told(
          vitune_attention_forward(context, &desc, tensors_.q, tensors_.k, tensors_.v, nullptr,
                                   nullptr, tensors_.out, nullptr, nullptr, 0, kStream),
          "forward");
    }
    expect_told(vitune_query(context, &desc, &selection), "query");
    expect_told(vitune_prepare(context, &desc), "prepare");
    expect_told(vitune_context_refresh(context, nullptr), "refresh");
    expect_told(vitune_context_flush(context), "flush");
    expect_told(vitune_context_destroy(context), "destroy");
  }

  // True if this call is one that gives the thread its capture mode back: the even ones. That it
  // fails is again what nobody can undo.
  static bool last_exchange(const std::vector<std::string>& names, std::size_t call) {
    constexpr const char* kName = "cuThreadExchangeStreamCaptureMode";
    if (names[call - 1] != kName) return false;
    const auto end = names.begin() + static_cast<std::ptrdiff_t>(call);
    return std::count(names.begin(), end, kName) % 2 == 0;
  }
  void restore_capture_mode() {
    using Exchange = CuResult(int*);
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    auto* const exchange =
        reinterpret_cast<Exchange*>(dlsym(driver, "cuThreadExchangeStreamCaptureMode"));
    int mode = 0;
    EXPECT_EQ(exchange(&mode), 0);
    dlclose(driver);
  }

  StoredKernel exact_ = make_kernel(kVitB, 1), standard_ = default_kernel(kVitB, 2);
  Tensors tensors_;
};

TEST_F(CApiFaultTest, EachCallThatFailsIsTalkedAboutAndLeaksNothing) {
  use_everything();
  const std::vector<std::string> names = call_names();
  ASSERT_GT(names.size(), 25u);
  for (const int code : kCodes) {
    for (std::size_t failing = 1; failing <= names.size(); ++failing) {
      SCOPED_TRACE(names[failing - 1] + " (call " + std::to_string(failing) + ") gives " +
                   std::to_string(code));
      mock_->clear_log();
      mock_->fail_any(failing, code);
      use_everything();
      mock_->clear_failures();
      EXPECT_EQ(mock_->live().total(), 0);
      // A pop that fails is the one thing that nobody can undo.
      if (names[failing - 1] != "cuCtxPopCurrent_v2") {
        EXPECT_EQ(mock_->current(), nullptr);
      }
      mock_->set_current(nullptr);
      EXPECT_EQ(mock_->capture_mode() != 0, last_exchange(names, failing))
          << "the thread's capture mode is the caller's";
      restore_capture_mode();
    }
  }
}

TEST_F(CApiFaultTest, ALaunchThatFailsIsADeviceErrorWithItsName) {
  const Context context = make_context();
  ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), tensors_));
  for (const int code : {1, 400, 700, 719, 999}) {
    mock_->fail("cuLaunchKernel", 1, code);
    EXPECT_REFUSED(VITUNE_DEVICE_ERROR, forward(context, desc_of(kVitB), tensors_),
                   "cuLaunchKernel");
    EXPECT_THAT(vitune_last_error(), testing::HasSubstr(std::to_string(code)));
  }
  EXPECT_EQ(stats(context).failed_calls, 5u);
  EXPECT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), tensors_))
      << "what becomes of the device is the driver's to say";
}

TEST_F(CApiFaultTest, AFailureToPushTheContextLaunchesNothing) {
  const Context context = make_context();
  ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), tensors_));
  mock_->clear_log();
  mock_->fail("cuCtxPushCurrent_v2", 1, 201);
  EXPECT_REFUSED(VITUNE_DEVICE_ERROR, forward(context, desc_of(kVitB), tensors_), "cuCtx");
  EXPECT_EQ(calls_of("cuLaunchKernel"), 0);
}

TEST_F(CApiFaultTest, AFailureToAskForTheContextIsReportedUnderItsOwnName) {
  for (const bool first_call : {true, false}) {
    SCOPED_TRACE(first_call);
    const Context context = make_context();
    if (!first_call) {
      ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), tensors_));
    }
    mock_->clear_log();
    mock_->fail("cuCtxGetCurrent", 1, 201);
    EXPECT_REFUSED(VITUNE_DEVICE_ERROR, forward(context, desc_of(kVitB), tensors_),
                   "cuCtxGetCurrent failed");
    mock_->fail("cuCtxPushCurrent_v2", 1, 201);
    EXPECT_REFUSED(VITUNE_DEVICE_ERROR, forward(context, desc_of(kVitB), tensors_),
                   "cuCtxPushCurrent failed");
    EXPECT_EQ(calls_of("cuLaunchKernel"), 0);
  }
}

// Device memory is short now and may not be later: the problem is not lost for good.
TEST_F(CApiFaultTest, AProblemThatFailedIsTriedAgainAfterARefresh) {
  const Context context = make_context();
  mock_->fail("cuModuleLoadData", 1, 2, 1000);
  EXPECT_NE(forward(context, desc_of(kVitB), tensors_), VITUNE_OK);
  EXPECT_STRNE(vitune_last_error(), "");
  mock_->clear_failures();
  ASSERT_STATUS(VITUNE_OK, vitune_context_refresh(context.get(), nullptr));
  EXPECT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), tensors_));
}

TEST_F(CApiFaultTest, ADriverWithoutDevicesIsNoDevice) {
  mock_->fail("cuInit", 1, 100);
  vitune_context* context = nullptr;
  EXPECT_REFUSED(VITUNE_NO_DEVICE, vitune_context_create(nullptr, &context), "cuInit");
  EXPECT_EQ(context, nullptr);
}

// A device on which nothing fits: every kernel is refused, and the error names the problem.
TEST_F(CApiFaultTest, AKernelThatFitsNoMultiprocessorIsNotLaunched) {
  mock_->set_resident_ctas(0);
  const Context context = make_context();
  const vitune_status status = forward(context, desc_of(kVitB), tensors_);
  EXPECT_NE(status, VITUNE_OK);
  EXPECT_STRNE(vitune_last_error(), "");
  EXPECT_EQ(calls_of("cuLaunchKernel"), 0);
  EXPECT_GE(stats(context).rejected, 1u);
}

}  // namespace
}  // namespace vitune::test
