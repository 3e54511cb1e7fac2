// runtime/load/plan.cpp -- Putting a plan together.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/plan.h"

#include <utility>

namespace vitune {

double Plan::call_us(Objective objective) const {
  if (choice.predicted_us > 0) return choice.predicted_us;
  return choice.row ? choice.row->winner.measurement.by(objective).median_us : 0;
}

std::unique_ptr<Plan> make_plan(const Problem& problem, const DeviceInfo& device, Choice choice,
                                std::shared_ptr<const LoadedKernel> kernel, Libraries& libraries) {
  auto plan = std::make_unique<Plan>();
  plan->outcome = choice.outcome;
  const LoadedKernels& loaded = kernel->kernels;
  plan->launch.emplace(problem.op().plan(problem, choice.config, device, loaded.resident),
                       loaded.kernels, &libraries);
  plan->footprint = footprint_of(problem);
  plan->kernel = std::move(kernel);
  plan->choice = std::move(choice);
  return plan;
}

std::unique_ptr<Plan> make_refusal(const Problem& problem, vitune_status status,
                                   std::string sentence) {
  auto plan = std::make_unique<Plan>();
  plan->footprint = footprint_of(problem);
  plan->status = status;
  plan->sentence = std::move(sentence);
  return plan;
}

}  // namespace vitune
