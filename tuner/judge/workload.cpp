// tuner/judge/workload.cpp -- Laying out, filling and guarding the tensors of one problem.
#include "tuner/judge/workload.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/checked.h"
#include "core/error.h"

namespace vitune {
namespace {

constexpr std::uint8_t kPoisonByte = 0xff;
constexpr int kOutOfMemory = 2;                                // CUDA_ERROR_OUT_OF_MEMORY
constexpr std::int64_t kSpareBytes = std::int64_t{256} << 20;  // for the driver's own needs

std::int64_t require(std::optional<std::int64_t> value) {
  if (value) return *value;
  throw Error(ErrorCode::kUsage, "the tensors of this problem do not fit 64-bit addresses");
}

// The bytes of an allocation whose payload of `bytes` starts at `start`.
std::int64_t allocation_bytes(std::int64_t start, std::int64_t bytes) {
  const std::int64_t end = require(checked_add(start, bytes));
  return round_up(require(checked_add(end, kGuardBytes + 256)) - 256, 256);
}

// Collects allocations and where operands go.
class Planner {
 public:
  // `elements` from the operand's base on, the base misaligned by `shift` bytes.
  void add(Operand operand, std::int64_t elements, std::int64_t element_size, std::int64_t shift) {
    const std::int64_t bytes = require(checked_mul(elements, element_size));
    place(operand, kGuardBytes + shift);
    plan_.allocations.push_back(allocation_bytes(kGuardBytes + shift, bytes));
  }
  // Several views of one allocation: each starts `offset` elements after the first.
  struct View {
    Operand operand;
    std::int64_t offset, elements;
  };
  void add_shared(const std::vector<View>& views, std::int64_t element_size, std::int64_t shift) {
    std::int64_t end = 0;
    for (const View& view : views) {
      place(view.operand, kGuardBytes + shift + view.offset * element_size);
      end = std::max(end, require(checked_add(view.offset, view.elements)));
    }
    const std::int64_t bytes = require(checked_mul(end, element_size));
    plan_.allocations.push_back(allocation_bytes(kGuardBytes + shift, bytes));
  }
  WorkloadPlan take() { return std::move(plan_); }

 private:
  void place(Operand operand, std::int64_t offset) {
    plan_.operands[static_cast<std::size_t>(operand)] = Placement{plan_.allocations.size(), offset};
  }
  WorkloadPlan plan_;
};

// Whether a token's row of `strides` has room for `planes` heads side by side, apart from those of
// other batch entries (which lie side by side in the rows of [N, B, H, D]).
bool is_token_row(const TensorStrides& strides, std::int64_t heads, std::int64_t planes,
                  const AttentionProblem& p) {
  const auto width = checked_mul(planes, p.d);
  return width && strides.row >= *width && (heads == 1 || strides.head == p.d) &&
         (p.batch == 1 || strides.batch >= *width);
}

void plan_inputs(const AttentionProblem& p, std::int64_t shift, Planner& planner) {
  const std::int64_t size = element_bytes(p.dtype);
  const bool kv_shared = p.k == p.v && is_token_row(p.k, p.kv_heads, 2 * p.kv_heads, p);
  const bool all_shared = kv_shared && p.q == p.k && p.nq == p.nk &&
                          is_token_row(p.q, p.heads, p.heads + 2 * p.kv_heads, p);
  const std::int64_t k_start = all_shared ? p.heads * p.d : 0;
  const Planner::View k = {Operand::kK, k_start, p.k_extent()};
  const Planner::View v = {Operand::kV, k_start + p.kv_heads * p.d, p.v_extent()};
  if (all_shared) {
    planner.add_shared({{Operand::kQ, 0, p.q_extent()}, k, v}, size, shift);
    return;
  }
  planner.add(Operand::kQ, p.q_extent(), size, shift);
  if (kv_shared) {
    planner.add_shared({k, v}, size, shift);
  } else {
    planner.add(Operand::kK, p.k_extent(), size, shift);
    planner.add(Operand::kV, p.v_extent(), size, shift);
  }
}

void* device_pointer(CuPointer address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

int support_type(ElementType type) {
  if (type == ElementType::kFp16) return kSupportFp16;
  return type == ElementType::kBf16 ? kSupportBf16 : kSupportFp32;
}

std::int64_t extent_or_one(std::int64_t stride, std::int64_t extent) {
  return stride == 0 ? 1 : extent;
}

}  // namespace

std::int64_t WorkloadPlan::bytes() const {
  std::optional<std::int64_t> total = 0;
  for (const std::int64_t allocation : allocations) total = checked_add(require(total), allocation);
  return require(total);
}

WorkloadPlan plan_workload(const AttentionProblem& p) {
  const std::int64_t shift = p.alignment < 16 ? p.alignment : 0;
  Planner planner;
  plan_inputs(p, shift, planner);
  if (p.bias) planner.add(Operand::kBias, p.bias_extent(), element_bytes(p.bias->type), 0);
  if (p.mask) planner.add(Operand::kMask, p.mask_extent(), 1, 0);
  planner.add(Operand::kO, p.o_extent(), element_bytes(p.dtype), shift);
  if (p.lse) {
    const auto rows = checked_mul(require(checked_mul(p.batch, p.heads)), p.nq);
    planner.add(Operand::kLse, require(rows), 4, 0);
  }
  return planner.take();
}

DrawSpec draw_spec(const AttentionProblem& p, Draw draw) {
  DrawSpec spec;
  spec.seed = 0x76697431u + static_cast<unsigned>(draw);
  if (draw == Draw::kNormal) return spec;
  if (draw == Draw::kMasked) {
    spec.q_deviation = 0;
    spec.bias_deviation = 3;
    spec.bias_masked_share = 0.5;
    return spec;
  }
  // Logits are scale * sum of d products; with unit k, the spread of one row's logits is that of
  // scale * |q|, and their mean is scale * d * q_mean * k_mean = -40.
  const double root = std::sqrt(static_cast<double>(p.d));
  const double unit = 1.0 / (p.scale * root);
  // 16-bit inputs must not overflow where the scale is tiny: the logits are then smaller.
  const double bounded = std::min(unit, 1000.0);
  if (draw == Draw::kOutlier) {
    spec.q_deviation = bounded;
    spec.outlier_deviation = 200;
    return spec;
  }
  spec.k_mean = 8.0 / root;
  spec.q_mean = -5.0 * bounded;
  spec.q_deviation = std::sqrt(64.0 - 25.0) * bounded;
  spec.bias_deviation = 3;
  spec.bias_infinite_share = 0.05;
  spec.mask_share = 0.5;
  return spec;
}

void require_memory(const CudaContext& context, std::int64_t bytes) {
  const auto [free_bytes, total_bytes] = context.free_and_total_memory();
  const auto needed = require(checked_add(bytes, kSpareBytes));
  if (needed <= static_cast<std::int64_t>(free_bytes)) return;
  throw CudaError(kOutOfMemory, "the problem needs " + std::to_string(needed >> 20) +
                                    " MiB of device memory, of which " +
                                    std::to_string(free_bytes >> 20) + " of " +
                                    std::to_string(total_bytes >> 20) + " MiB are free");
}

Workload::Workload(const GpuTools& tools, const AttentionProblem& problem)
    : tools_(tools), problem_(problem), plan_(plan_workload(problem)) {
  require_memory(tools.context, plan_.bytes());
  buffers_.reserve(plan_.allocations.size());
  for (const std::int64_t bytes : plan_.allocations) {
    buffers_.emplace_back(tools.context.driver(), static_cast<std::size_t>(bytes));
  }
}

CuPointer Workload::address(Operand operand) const {
  const auto& placement = plan_.at(operand);
  if (!placement) return 0;
  return buffers_[placement->allocation].address() + static_cast<CuPointer>(placement->offset);
}

AttentionPointers Workload::pointers() const {
  return {.q = address(Operand::kQ),
          .k = address(Operand::kK),
          .v = address(Operand::kV),
          .o = address(Operand::kO),
          .lse = address(Operand::kLse),
          .bias = address(Operand::kBias),
          .mask = address(Operand::kMask)};
}

bool Workload::is_output(std::size_t allocation) const {
  const auto& lse = plan_.at(Operand::kLse);
  return allocation == plan_.at(Operand::kO)->allocation || (lse && allocation == lse->allocation);
}

void Workload::fill_tensor(Operand operand, const DrawSpec& spec) {
  const bool of_queries = operand == Operand::kQ;
  const TensorStrides& strides =
      of_queries ? problem_.q : (operand == Operand::kK ? problem_.k : problem_.v);
  FillNormalParams params = {};
  params.target.data = device_pointer(address(operand));
  params.target.view = {strides.batch, strides.head, strides.row, 1, 1};
  params.target.extents[0] = extent_or_one(strides.batch, problem_.batch);
  params.target.extents[1] =
      extent_or_one(strides.head, of_queries ? problem_.heads : problem_.kv_heads);
  params.target.extents[2] = extent_or_one(strides.row, of_queries ? problem_.nq : problem_.nk);
  params.target.extents[3] = problem_.d;
  params.seed = spec.seed * 16 + static_cast<std::uint64_t>(operand);
  params.deviation = of_queries ? static_cast<float>(spec.q_deviation) : 1.f;
  if (of_queries) params.mean = static_cast<float>(spec.q_mean);
  if (operand == Operand::kK) params.mean = static_cast<float>(spec.k_mean);
  params.type = support_type(problem_.dtype);
  tools_.support.fill(tools_.stream, params);
  // Keys that are all the same one have no outlier.
  if (operand != Operand::kK || spec.outlier_deviation == 0 || strides.row == 0) return;
  const std::int64_t middle = problem_.nk / 2 * strides.row;
  params.target.data = device_pointer(address(operand) + static_cast<CuPointer>(2 * middle));
  params.target.extents[2] = 1;
  params.deviation = static_cast<float>(spec.outlier_deviation);
  tools_.support.fill(tools_.stream, params);
}

void Workload::fill_scores(Operand operand, const ScoreOperand& score, const DrawSpec& spec) {
  const auto& s = score.strides;
  FillView target = {};
  target.data = device_pointer(address(operand));
  target.view = {s[0], s[1], s[2], s[3], static_cast<int>(score.batches)};
  target.extents[0] = extent_or_one(s[0], score.batches);
  target.extents[1] = extent_or_one(s[1], problem_.heads);
  target.extents[2] = extent_or_one(s[2], problem_.nq);
  target.extents[3] = extent_or_one(s[3], problem_.nk);
  const std::uint64_t seed = spec.seed * 16 + static_cast<std::uint64_t>(operand);
  if (operand == Operand::kMask) {
    tools_.support.fill(tools_.stream,
                        FillMaskParams{target, seed, static_cast<float>(spec.mask_share)});
    return;
  }
  tools_.support.fill(
      tools_.stream,
      FillNormalParams{target, seed, 0.f, static_cast<float>(spec.bias_deviation),
                       static_cast<float>(spec.bias_infinite_share),
                       static_cast<float>(spec.bias_masked_share), support_type(score.type)});
}

void Workload::fill_inputs(Draw draw) {
  if (filled_ == draw) return;
  filled_.reset();
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (!is_output(i)) tools_.stream.fill8(buffers_[i].address(), kPoisonByte, buffers_[i].size());
  }
  const DrawSpec spec = draw_spec(problem_, draw);
  for (const Operand operand : {Operand::kQ, Operand::kK, Operand::kV}) fill_tensor(operand, spec);
  if (problem_.bias) fill_scores(Operand::kBias, *problem_.bias, spec);
  if (problem_.mask) fill_scores(Operand::kMask, *problem_.mask, spec);
  filled_ = draw;
}

void Workload::poison_outputs() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (is_output(i)) tools_.stream.fill8(buffers_[i].address(), kPoisonByte, buffers_[i].size());
  }
}

std::size_t Workload::digest_inputs(CuPointer sums) const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (is_output(i)) continue;
    tools_.support.digest(tools_.stream, buffers_[i].address(), plan_.allocations[i],
                          sums + 8 * count);
    ++count;
  }
  return count;
}

std::vector<std::byte> Workload::download(Operand operand) const {
  const auto& placement = plan_.at(operand);
  if (!placement) return {};
  const auto offset = static_cast<std::size_t>(placement->offset);
  tools_.stream.synchronize();
  std::vector<std::byte> bytes(buffers_[placement->allocation].size() - offset);
  buffers_[placement->allocation].download(bytes, offset);
  return bytes;
}

void Workload::digest_outputs(CuPointer sum) const {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (!is_output(i)) continue;
    tools_.support.digest(tools_.stream, buffers_[i].address(), plan_.allocations[i], sum);
  }
}

void Workload::count_output_damage(CuPointer count) const {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (!is_output(i)) continue;
    tools_.support.damage(tools_.stream, buffers_[i].address(), plan_.allocations[i], count);
  }
}

}  // namespace vitune
