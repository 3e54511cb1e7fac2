// runtime/dispatch/same_work.cpp -- Compares forms, sources and launches.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/dispatch/same_work.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "generator/operator.h"

namespace vitune {
namespace {

bool same_shape(const KernelLaunch& a, const KernelLaunch& b) {
  const LaunchShape& one = a.shape;
  const LaunchShape& other = b.shape;
  return a.kernel == b.kernel && one.shared_bytes == other.shared_bytes &&
         one.is_cooperative == other.is_cooperative &&
         std::equal(std::begin(one.grid), std::end(one.grid), std::begin(other.grid)) &&
         std::equal(std::begin(one.block), std::end(one.block), std::begin(other.block));
}

LaunchPlan plan_of(const Problem& problem, const Config& config, const DeviceInfo& device) {
  const std::vector<int> resident(problem.op().kernels(problem, config).size(), 1);
  return problem.op().plan(problem, config, device, resident);
}

}  // namespace

bool is_same_work(const ProblemPtr& a, const ProblemPtr& b, const Config& config,
                  const DeviceInfo& device) {
  const Operator& op = a->op();
  if (&op != &b->op() || op.work_hash(*a) != op.work_hash(*b)) return false;
  if (op.work_form(*a) != op.work_form(*b)) return false;
  if (op.source(*a, config) != op.source(*b, config)) return false;
  const LaunchPlan one = plan_of(*a, config, device), other = plan_of(*b, config, device);
  return std::ranges::equal(one.kernels, other.kernels, same_shape);
}

}  // namespace vitune
