// generator/judging.cpp -- Plans, cases and inputs of operators' judges.
// SPDX-License-Identifier: Apache-2.0
#include "generator/judging.h"

#include <algorithm>
#include <cmath>

namespace vitune {
namespace {

// The variance of a normal number of this deviation once it is rounded to a whole one.
double whole_variance(double deviation) {
  const auto beyond = [&](double x) { return std::erfc(x / deviation / std::sqrt(2.0)); };
  double variance = 0;
  for (int i = 1; i <= 32; ++i) variance += i * i * (beyond(i - 0.5) - beyond(i + 0.5));
  return variance;
}

}  // namespace

std::vector<PointerSlot> answer_pointers(std::span<const PointerSlot> call, std::size_t call_at,
                                         std::initializer_list<PointerSlot> own) {
  std::vector<PointerSlot> pointers(call.begin(), call.end());
  for (PointerSlot& slot : pointers) slot.at += static_cast<std::uint32_t>(call_at);
  pointers.insert(pointers.end(), own);
  return pointers;
}

LaunchPlan answer_plan(Precision precision, std::int64_t ctas, std::int64_t most,
                       std::int64_t threads, std::vector<std::byte> params,
                       std::vector<PointerSlot> pointers) {
  LaunchPlan plan;
  KernelLaunch& launch = plan.kernels.emplace_back();
  launch.kernel = precision == Precision::kExact ? 0 : 1;
  launch.shape.grid[0] = static_cast<std::uint32_t>(std::min(ctas, most));
  launch.shape.block[0] = static_cast<std::uint32_t>(threads);
  launch.params = std::move(params);
  launch.pointers = std::move(pointers);
  return plan;
}

void add_cases(std::vector<JudgeCase>& cases, const ProblemPtr& problem,
               std::initializer_list<const char*> draws) {
  for (const char* const draw : draws) cases.push_back({problem, draw});
}

void DrawnFills::add(int tensor, double mean, double deviation) {
  const TensorSpec& target = tensors_[static_cast<std::size_t>(tensor)];
  if (!target.given) return;
  Fill& whole = fills.emplace_back();
  whole.tensor = tensor;
  whole.extents = target.extents;
  whole.seed = seed_ * 16 + static_cast<std::uint64_t>(tensor);
  whole.mean = mean;
  whole.deviation = deviation;
  whole.unit = unit_;
}

void DrawnFills::add_rows(int tensor, std::int64_t first, std::int64_t end, double deviation) {
  add(tensor, 0, deviation);
  Fill& part = fills.back();
  part.offset = first * tensors_[static_cast<std::size_t>(tensor)].strides[2];
  part.extents[2] = end - first;
}

double whole_deviation(double wanted) {
  double deviation = 2.5;
  while (whole_variance(deviation) > wanted) deviation *= 0.95;
  return deviation;
}

}  // namespace vitune
