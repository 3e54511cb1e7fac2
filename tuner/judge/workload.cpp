// tuner/judge/workload.cpp -- Laying out, filling and guarding the tensors of one problem.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/judge/workload.h"

#include <algorithm>
#include <map>
#include <span>
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

void* device_pointer(CuPointer address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

}  // namespace

std::int64_t WorkloadPlan::bytes() const {
  std::optional<std::int64_t> total = 0;
  for (const std::int64_t allocation : allocations) total = checked_add(require(total), allocation);
  return require(total);
}

WorkloadPlan plan_workload(const std::vector<TensorSpec>& tensors) {
  WorkloadPlan plan;
  plan.tensors.resize(tensors.size());
  std::vector<std::int64_t> payloads;  // bytes of each allocation, from its first payload on
  std::vector<std::int64_t> starts;    // of the payload in the allocation
  std::map<int, std::size_t> shared;   // allocation of the tensors with this number
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& tensor = tensors[i];
    if (!tensor.given) continue;
    const auto [known, fresh] = tensor.shared < 0
                                    ? std::pair(shared.end(), true)
                                    : shared.try_emplace(tensor.shared, payloads.size());
    const std::size_t allocation = fresh ? payloads.size() : known->second;
    if (fresh) {
      payloads.push_back(0);
      starts.push_back(kGuardBytes + (tensor.alignment < 16 ? tensor.alignment : 0));
    }
    const auto before = checked_mul(tensor.offset, element_bytes(tensor.type));
    plan.tensors[i] = Placement{allocation, starts[allocation] + require(before)};
    const std::int64_t end = require(checked_add(require(before), tensor.bytes()));
    payloads[allocation] = std::max(payloads[allocation], end);
  }
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    plan.allocations.push_back(allocation_bytes(starts[i], payloads[i]));
  }
  return plan;
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

Workload::Workload(const GpuTools& tools, const ProblemPtr& problem)
    : tools_(tools),
      problem_(problem),
      tensors_(problem->op().tensors(*problem)),
      plan_(plan_workload(tensors_)) {
  require_memory(tools.context, plan_.bytes());
  buffers_.reserve(plan_.allocations.size());
  for (const std::int64_t bytes : plan_.allocations) {
    buffers_.emplace_back(tools.context.driver(), static_cast<std::size_t>(bytes));
  }
}

CuPointer Workload::address(int tensor) const {
  const auto& placement = plan_.tensors[static_cast<std::size_t>(tensor)];
  if (!placement) return 0;
  return buffers_[placement->allocation].address() + static_cast<CuPointer>(placement->offset);
}

std::vector<std::uintptr_t> Workload::addresses() const {
  std::vector<std::uintptr_t> all;
  for (std::size_t i = 0; i < tensors_.size(); ++i) all.push_back(address(static_cast<int>(i)));
  return all;
}

bool Workload::is_output(std::size_t allocation) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const bool there = plan_.tensors[i] && plan_.tensors[i]->allocation == allocation;
    if (there && tensors_[i].role == Role::kOutput) return true;
  }
  return false;
}

void Workload::write(const Fill& part) {
  const Placement& placement = plan_.tensors[static_cast<std::size_t>(part.tensor)].value();
  tools_.stream.synchronize();  // the poison is there
  buffers_[placement.allocation].upload(std::as_bytes(std::span(part.numbers)),
                                        static_cast<std::size_t>(placement.offset));
}

void Workload::fill(const Fill& part) {
  const TensorSpec& tensor = tensors_[static_cast<std::size_t>(part.tensor)];
  if (tensor.type == ElementType::kI32) {
    write(part);
    return;
  }
  FillView target = {};
  target.data = device_pointer(address(part.tensor) +
                               static_cast<CuPointer>(part.offset * element_bytes(tensor.type)));
  std::copy(tensor.strides.begin(), tensor.strides.end(), std::begin(target.strides));
  std::copy(part.extents.begin(), part.extents.end(), std::begin(target.extents));
  if (tensor.type == ElementType::kBool) {
    tools_.support.fill(tools_.stream,
                        FillMaskParams{target, part.seed, static_cast<float>(part.share)});
    return;
  }
  tools_.support.fill(
      tools_.stream,
      FillNormalParams{target, part.seed, static_cast<float>(part.mean),
                       static_cast<float>(part.deviation), static_cast<float>(part.unit),
                       static_cast<float>(part.infinite_share),
                       static_cast<float>(part.masked_share), judge_type(tensor.type)});
}

void Workload::fill_inputs(const std::string& draw) {
  if (filled_ == draw) return;
  filled_.clear();
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (!is_output(i)) tools_.stream.fill8(buffers_[i].address(), kPoisonByte, buffers_[i].size());
  }
  const std::vector<Fill> parts = problem_->op().inputs(*problem_, draw);
  for (const Fill& part : parts) fill(part);
  holds_whole_numbers_ = std::ranges::all_of(parts, [](const Fill& part) { return part.unit > 0; });
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

std::vector<std::byte> Workload::download(int tensor) const {
  const auto& placement = plan_.tensors[static_cast<std::size_t>(tensor)];
  if (!placement) return {};
  const auto offset = static_cast<std::size_t>(placement->offset);
  tools_.stream.synchronize();
  std::vector<std::byte> bytes(buffers_[placement->allocation].size() - offset);
  buffers_[placement->allocation].download(bytes, offset);
  return bytes;
}

BoundPlan Workload::bind(PreparedPlan plan) {
  const auto needed = static_cast<std::size_t>(plan.scratch_bytes());
  if (needed == 0) return BoundPlan(std::move(plan), addresses(), 0);
  if (scratch_.empty() || needed > scratch_.back().size()) {
    require_memory(tools_.context, plan.scratch_bytes());
    scratch_.emplace_back(tools_.context.driver(), needed);
  }
  const DeviceBuffer& memory = scratch_.back();
  tools_.stream.fill8(memory.address(), kPoisonByte, memory.size());
  return BoundPlan(std::move(plan), addresses(), memory.address());
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
