// examples/operator_vector_add/vector_add.cpp -- An operator in one file: out = a + b in fp32.
//
// Linked with cli/main.cpp in the place of generator/operators.cpp it makes a command that tunes,
// verifies, stores, shows and measures this operator. vitune's own keep their kernels in
// templates/; this one is so small that its text stands here.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/checked.h"
#include "core/format.h"
#include "generator/operator.h"
#include "generator/problem_words.h"

namespace vitune {
namespace {

// The kernels' parameters: here, and as text for NVRTC.
struct AddParams {
  const float *a, *b;
  float* out;
  long long n;
};
constexpr char kParams[] = R"(
namespace vitune {
struct AddParams {
  const float *a, *b;
  float* out;
  long long n;
};
}  // namespace vitune
)";

// Each thread adds kVector neighbours by one access per tensor; the last thread with elements may
// have fewer, which it takes one by one.
constexpr char kKernel[] = R"(
extern "C" __global__ void __launch_bounds__(kThreads)
    vitune_vector_add(const __grid_constant__ vitune::AddParams p) {
  using namespace vitune;
  const i64 first = (i64(blockIdx.x) * kThreads + threadIdx.x) * kVector;
  if (first + kVector <= p.n) {
    Piece<4 * kVector> a = load_piece<4 * kVector>(p.a + first);
    const Piece<4 * kVector> b = load_piece<4 * kVector>(p.b + first);
    for (int i = 0; i < kVector; ++i) {
      a.words[i] = __float_as_uint(__uint_as_float(a.words[i]) + __uint_as_float(b.words[i]));
    }
    store_piece(p.out + first, a);
  } else {
    for (i64 i = first; i < p.n; ++i) p.out[i] = p.a[i] + p.b[i];
  }
}
)";

// The right answer, in fp64, as dense fp32; and what a plain kernel writes.
constexpr char kJudge[] = R"(
extern "C" __global__ void __launch_bounds__(256)
    vitune_vector_add_reference(const __grid_constant__ vitune::AddParams p) {
  const long long step = (long long)(gridDim.x) * 256;
  for (long long i = (long long)(blockIdx.x) * 256 + threadIdx.x; i < p.n; i += step) {
    p.out[i] = float(double(p.a[i]) + double(p.b[i]));
  }
}
extern "C" __global__ void __launch_bounds__(256)
    vitune_vector_add_plain(const __grid_constant__ vitune::AddParams p) {
  const long long step = (long long)(gridDim.x) * 256;
  for (long long i = (long long)(blockIdx.x) * 256 + threadIdx.x; i < p.n; i += step) {
    p.out[i] = p.a[i] + p.b[i];
  }
}
)";

constexpr int kA = 0, kB = 1, kOut = 2, kTensors = 3;
constexpr std::string_view kKeys[] = {"n"};
constexpr ProblemGrammar kGrammar = {"vector_add", {}, kKeys, "fp32", "vector_add n=98432"};

struct Asked final : Problem {
  Asked(const Operator& op, std::int64_t count)
      : Problem(op, formatted("vector_add n={}", count)), n(count) {}
  const std::int64_t n;
};

std::int64_t n_of(const Problem& p) { return static_cast<const Asked&>(p).n; }

LaunchPlan one_launch(const Problem& p, std::size_t kernel, std::int64_t ctas, std::int64_t threads,
                      int out) {
  KernelLaunch launch;
  launch.kernel = kernel;
  launch.shape.grid[0] = static_cast<std::uint32_t>(ctas);
  launch.shape.block[0] = static_cast<std::uint32_t>(threads);
  launch.params = parameter_bytes(AddParams{nullptr, nullptr, nullptr, n_of(p)});
  launch.pointers = {
      {kA, offsetof(AddParams, a)}, {kB, offsetof(AddParams, b)}, {out, offsetof(AddParams, out)}};
  LaunchPlan plan;
  plan.kernels.push_back(std::move(launch));
  return plan;
}

class AddFamily final : public Family {
 public:
  std::string_view name() const override { return kGrammar.name; }
  std::vector<Parameter> parameters(const Problem&) const override {
    return {{"kThreads", {64, 128, 256, 512, 1024}, "threads of a CTA", false, true},
            {"kVector", {1, 2, 4, 8}, "elements of an access", false, true}};
  }
  std::vector<Config> defaults(const Problem&, const DeviceInfo&,
                               const ParameterSpace&) const override {
    return {{{"kThreads", 256}, {"kVector", 4}}};
  }
  std::string templates() const override {
    return std::string("#include \"primitives/piece.cuh\"\n") + kParams + kKernel;
  }
  std::string source(const Problem&, const Config& config) const override {
    return formatted(
               "#include \"primitives/piece.cuh\"\nconstexpr int kThreads = {}, kVector = {};\n",
               config.at("kThreads"), config.at("kVector")) +
           kParams + kKernel;
  }
  int harmless_spill_bytes() const override { return 0; }
  std::vector<KernelNeeds> kernels(const Problem&, const Config& config) const override {
    return {{"vitune_vector_add", static_cast<int>(config.at("kThreads")), 0}};
  }
  LaunchPlan plan(const Problem& p, const Config& config, const DeviceInfo&,
                  std::span<const int>) const override {
    const std::int64_t cta = config.at("kThreads") * config.at("kVector");
    return one_launch(p, 0, ceil_div(n_of(p), cta), config.at("kThreads"), kOut);
  }
};

class VectorAdd final : public Operator {
 public:
  std::string_view name() const override { return kGrammar.name; }
  std::string example() const override { return std::string(kGrammar.example); }
  ProblemPtr parse(std::string_view text) const override {
    const ProblemWords words(text, kGrammar);
    const std::int64_t n = words.required("n", "the number of elements");
    // The grid's first dimension, with the smallest CTAs, must hold them.
    if (n < 1 || n > std::int64_t{1} << 36) malformed(formatted("n={} is not 1 to 2^36", n));
    return std::make_shared<Asked>(*this, n);
  }

  std::vector<TensorSpec> tensors(const Problem& p) const override {
    std::vector<TensorSpec> specs(kTensors);
    for (TensorSpec& each : specs) {
      each.type = ElementType::kFp32;
      each.extents = {1, 1, 1, n_of(p)};
      each.strides = {0, 0, 0, 1};
    }
    specs[kA].name = "a";
    specs[kB].name = "b";
    specs[kOut].name = "out";
    specs[kOut].role = Role::kOutput;
    specs[kOut].may_replace = {kA, kB};
    return specs;
  }
  std::string sizes(const Problem& p) const override { return formatted("n={}", n_of(p)); }
  double flops(const Problem& p) const override { return static_cast<double>(n_of(p)); }
  double min_bytes(const Problem& p) const override { return 12 * flops(p); }
  Demand demand(const Problem& p, const DeviceInfo&) const override {
    return {.instructions = flops(p), .bytes = min_bytes(p)};
  }

  std::string kernel_class(const Problem&) const override { return "fp32"; }
  double distance(const Problem& a, const Problem& b) const override {
    return std::abs(std::log(flops(a) / flops(b)));
  }
  bool is_load_alike(const Problem& a, const Problem& b, const DeviceInfo&) const override {
    return distance(a, b) <= std::log(2.0);
  }
  bool is_before(const Problem& a, const Problem& b) const override { return n_of(a) < n_of(b); }

  std::span<const Family* const> families() const override {
    static const AddFamily add;
    static const Family* const all[] = {&add};
    return all;
  }

  std::string judge_source() const override { return std::string(kParams) + kJudge; }
  std::vector<std::string> judge_entries() const override {
    return {"vitune_vector_add_reference", "vitune_vector_add_plain"};
  }
  LaunchPlan answer(const Problem& p, Precision precision) const override {
    const bool exact = precision == Precision::kExact;
    const std::int64_t ctas = std::min<std::int64_t>(ceil_div(n_of(p), std::int64_t{256}), 8192);
    // Answers come behind the tensors, each at its tensor's place.
    return one_launch(p, exact ? 0 : 1, ctas, 256, exact ? kTensors + kOut : kOut);
  }
  std::vector<JudgeCase> cases(const Problem& p, const Config& config,
                               const DeviceInfo&) const override {
    std::vector<JudgeCase> cases;
    // One element; a whole access; one more than a CTA has.
    const std::int64_t vector = config.at("kVector"), cta = config.at("kThreads") * vector;
    for (const std::int64_t n : {std::int64_t{1}, vector, cta + 1}) {
      if (n < n_of(p)) cases.push_back({std::make_shared<Asked>(*this, n), kNormalDraw});
    }
    cases.push_back({std::make_shared<Asked>(*this, n_of(p)), kNormalDraw});
    return cases;
  }
  std::vector<Fill> inputs(const Problem& p, const std::string&) const override {
    std::vector<Fill> fills(2);
    for (const int tensor : {kA, kB}) {
      Fill& fill = fills[static_cast<std::size_t>(tensor)];
      fill.tensor = tensor;
      fill.extents = {1, 1, 1, n_of(p)};
      fill.seed = 98432 + static_cast<std::uint64_t>(tensor);
    }
    return fills;
  }
};

}  // namespace

std::span<const Operator* const> operators() {
  static const VectorAdd add;
  static const std::array<const Operator*, 1> all = {&add};
  return all;
}

}  // namespace vitune
