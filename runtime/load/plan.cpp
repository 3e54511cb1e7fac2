// runtime/load/plan.cpp -- Putting a plan together.
#include "runtime/load/plan.h"

#include <utility>

#include "generator/attention/tensor_maps.h"

namespace vitune {

double Plan::call_us(Objective objective) const {
  if (choice.predicted_us > 0) return choice.predicted_us;
  return choice.row ? choice.row->winner.measurement.by(objective).median_us : 0;
}

std::unique_ptr<Plan> make_plan(const AttentionProblem& problem, const DeviceInfo& device,
                                Choice choice, std::shared_ptr<const LoadedKernel> kernel) {
  auto plan = std::make_unique<Plan>();
  plan->outcome = choice.outcome;
  plan->shape = attention_launch_shape(problem, choice.config, device, kernel->resident_ctas);
  plan->params = attention_params(problem, choice.config, AttentionPointers{}, plan->shape);
  plan->has_maps = reads_tensor_maps(choice.config);
  plan->has_bias_map = reads_bias_map(problem, choice.config);
  plan->maps = encode_tensor_maps(kernel->kernel.driver(), problem, choice.config, plan->params);
  plan->footprint = footprint_of(problem);
  plan->kernel = std::move(kernel);
  plan->choice = std::move(choice);
  return plan;
}

std::unique_ptr<Plan> make_refusal(const AttentionProblem& problem, vitune_status status,
                                   std::string sentence) {
  auto plan = std::make_unique<Plan>();
  plan->footprint = footprint_of(problem);
  plan->status = status;
  plan->sentence = std::move(sentence);
  return plan;
}

}  // namespace vitune
