// tests/runtime/cublaslt_gpu_test.cpp -- libvitune serves winners that call cuBLASLt: their
// answers, in a graph, and what serves where the library is another one, absent or refuses.
//
// On a GPU with the cuBLASLt that is installed; on the emulated device with the stand-ins of
// tests/generator/fake_cublaslt.cpp.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "generator/operator.h"
#include "generator/prepared_plan.h"
#include "tests/runtime/library_gpu_fixture.h"

namespace vitune::test {
namespace {

using ::testing::HasSubstr;

constexpr char kOneCall[] = "linear bf16 m=24 n=40 k=48 bias residual";
constexpr char kChain[] = "linear bf16 m=24 n=40 k=48 bias act=gelu";
constexpr std::int64_t kM = 24, kN = 40, kK = 48;

std::uint16_t bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

// A linear layer of these sizes on the device, with inputs that are quarters of small integers.
class LinearCall {
 public:
  LinearCall(const CudaDriver& driver, const char* text) : driver_(driver), text_(text) {
    EXPECT_STATUS(VITUNE_OK, vitune_problem_create(text, &problem_));
    std::size_t count = 0;
    EXPECT_STATUS(VITUNE_OK, vitune_problem_tensors(problem_, &count));
    for (std::size_t place = 0; place < count; ++place) {
      vitune_tensor tensor = VITUNE_TENSOR_INIT;
      EXPECT_STATUS(VITUNE_OK, vitune_problem_tensor(problem_, place, &tensor));
      auto& values = values_.emplace_back();
      addresses_.push_back(nullptr);
      if (tensor.given == 0) continue;
      for (std::int64_t i = 0; i < tensor.bytes / 2; ++i) {
        values.push_back(
            bf16(static_cast<float>((i * 5 + static_cast<std::int64_t>(place)) % 9 - 4) / 4));
      }
      buffers_.emplace_back(driver, values.size() * 2);
      buffers_.back().upload(std::as_bytes(std::span(values)));
      addresses_.back() = reinterpret_cast<void*>(buffers_.back().address());
    }
  }
  ~LinearCall() { vitune_problem_destroy(problem_); }
  LinearCall(const LinearCall&) = delete;
  LinearCall& operator=(const LinearCall&) = delete;

  vitune_status prepare(const Context& context) const {
    return vitune_prepare_text(context.get(), text_.c_str());
  }
  vitune_status run(const Context& context, const CudaStream& stream) {
    std::size_t bytes = 0;
    if (const auto status = vitune_workspace_bytes_text(context.get(), text_.c_str(), &bytes)) {
      return status;
    }
    if (bytes > 0 && (!workspace_ || workspace_->size() < bytes)) {
      workspace_.emplace(driver_, bytes);
    }
    return vitune_run(context.get(), problem_, addresses_.data(), addresses_.size(),
                      workspace_ ? reinterpret_cast<void*>(workspace_->address()) : nullptr,
                      workspace_ ? workspace_->size() : 0, stream.get());
  }
  void clear() { buffers_.back().upload(std::vector<std::byte>(kM * kN * 2, std::byte{0xff})); }
  // The largest error against a plain sum in fp64.
  double error(const CudaStream& stream, bool with_gelu) {
    stream.synchronize();
    std::vector<std::uint16_t> out(kM * kN);
    buffers_.back().download(std::as_writable_bytes(std::span(out)));
    double largest = 0;
    for (std::int64_t row = 0; row < kM; ++row) {
      for (std::int64_t column = 0; column < kN; ++column) {
        double sum = from_bf16(values_[2][static_cast<std::size_t>(column)]);
        for (std::int64_t k = 0; k < kK; ++k) {
          sum += double{from_bf16(values_[0][static_cast<std::size_t>(row * kK + k)])} *
                 from_bf16(values_[1][static_cast<std::size_t>(column * kK + k)]);
        }
        if (with_gelu) sum *= 0.5 * std::erfc(-sum / std::sqrt(2.0));
        const auto at = static_cast<std::size_t>(row * kN + column);
        if (!values_[4].empty()) sum += from_bf16(values_[4][at]);
        const double error = std::fabs(from_bf16(out[at]) - sum) / std::max(1.0, std::fabs(sum));
        largest = std::max(largest, std::isnan(error) ? 1e9 : error);
      }
    }
    return largest;
  }

 private:
  const CudaDriver& driver_;
  const std::string text_;
  vitune_problem* problem_ = nullptr;
  std::vector<std::vector<std::uint16_t>> values_;
  std::vector<DeviceBuffer> buffers_;  // of the given ones; the result's is the last
  std::vector<void*> addresses_;
  std::optional<DeviceBuffer> workspace_;
};

class CublasLtLibraryGpuTest : public LibraryGpuTest {
 protected:
  void SetUp() override {
    LibraryGpuTest::SetUp();
    if (IsSkipped()) return;
    const char* const named = std::getenv("VITUNE_CUBLASLT");
    named_ = named != nullptr ? named : "";
    try {
      libraries_.cublaslt();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  void TearDown() override { name(named_); }
  static void name(const std::string& path) {
    path.empty() ? unsetenv("VITUNE_CUBLASLT") : setenv("VITUNE_CUBLASLT", path.c_str(), 1);
  }

  // As the tuner stores it: the library's proposal number `rank` has won.
  Config promote(const char* text, std::size_t rank) {
    const ProblemPtr problem = parse_problem(text);
    const auto proposed = problem->op().proposals(*problem, device_, libraries_);
    const Config config = proposed.at(std::min(rank, proposed.size() - 1));
    const CompileRequest request = problem->op().request(*problem, config, device_.arch());
    Binary binary{kernel_key(request, compiler_->version()),
                  request.arch,
                  made_by(request, compiler_->version()),
                  request.entry,
                  {},
                  {}};
    if (request.library.empty()) binary.image = compiler_->compile(request).cubin;
    Winner winner;
    winner.config = config;
    winner.kernel_key = binary.kernel_key;
    winner.compiler_version = binary.compiler_version;
    winner.verified = true;
    winner.origin = Origin::kMeasured;
    winner.measurement.cold = winner.measurement.warm = {2, 2, 2, 10};
    winner.tuned_at = "2026-11-24T00:00:00Z";
    const auto store = Store::open(database_text_, Access::kReadWrite);
    store->promote(device_, {problem->operator_name(), problem->text()}, winner, &binary);
    return config;
  }
  // A kernel that was tried behind the winner, with its binary, as the tuner leaves it.
  Config store_own_kernel(const char* text) {
    const ProblemPtr problem = parse_problem(text);
    const Config config = default_config(*problem, device_);
    const CompileRequest request = problem->op().request(*problem, config, device_.arch());
    const auto store = Store::open(database_text_, Access::kReadWrite);
    store->put_binary({kernel_key(request, compiler_->version()),
                       request.arch,
                       compiler_->version(),
                       request.entry,
                       {},
                       compiler_->compile(request).cubin});
    return config;
  }
  static std::string selection(const Context& context, const char* text) {
    vitune_selection selection = VITUNE_SELECTION_INIT;
    EXPECT_STATUS(VITUNE_OK, vitune_query_text(context.get(), text, &selection));
    return selection.reason;
  }

  std::string named_;
  Libraries libraries_{read_environment()};
};

TEST_F(CublasLtLibraryGpuTest, AWinnerThatCallsTheLibraryServesDirectlyAndInGraphs) {
  for (const char* const text : {kOneCall, kChain}) {
    SCOPED_TRACE(text);
    promote(text, 1);
    vitune_context_options only_stored = options();
    only_stored.on_miss = VITUNE_ON_MISS_ERROR;
    const Context context(only_stored);
    LinearCall call(*driver_, text);
    ASSERT_STATUS(VITUNE_OK, call.prepare(context));
    ASSERT_STATUS(VITUNE_OK, call.run(context, *stream_));
    EXPECT_LT(call.error(*stream_, text == kChain), 0.01);
    call.clear();
    const CudaGraph graph(*driver_, *stream_,
                          [&] { EXPECT_STATUS(VITUNE_OK, call.run(context, *stream_)); });
    graph.launch(*stream_);
    EXPECT_LT(call.error(*stream_, text == kChain), 0.01);
    EXPECT_EQ(stats(context).exact_calls, 2u);
  }
}

TEST_F(CublasLtLibraryGpuTest, WithoutThatLibraryTheKernelBehindTheWinnerServes) {
  promote(kOneCall, 1);
  store_own_kernel(kOneCall);
  const std::string absent = (directory_ / "libcublasLt.so.13").string();
  std::vector<std::pair<std::string, std::string>> libraries = {{absent, absent}};
  if (emulated_) {
    const auto beside = [&](const char* kind) {
      const std::filesystem::path same(named_);
      return (same.parent_path().parent_path() / kind / same.filename()).string();
    };
    libraries.emplace_back(beside("other"), "is cuBLASLt 13.2.0");
    libraries.emplace_back(beside("refusing"), "does not take this algorithm");
  }
  for (const auto& [path, why] : libraries) {
    SCOPED_TRACE(path);
    name(path);
    vitune_context_options no_compiler = options();
    no_compiler.no_compile = 1;
    const Context context(no_compiler);
    LinearCall call(*driver_, kOneCall);
    ASSERT_STATUS(VITUNE_OK, call.run(context, *stream_));
    EXPECT_LT(call.error(*stream_, false), 0.01);
    EXPECT_EQ(stats(context).exact_calls, 0u);
    EXPECT_THAT(selection(context, kOneCall), HasSubstr(why));
  }
}

}  // namespace
}  // namespace vitune::test
