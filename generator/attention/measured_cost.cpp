// generator/attention/measured_cost.cpp -- The cost model as any operator's is asked.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/cost_model_fit.h"
#include "generator/attention/operator.h"

namespace vitune {
namespace {

class AttentionCost final : public CostModel {
 public:
  AttentionCost(const DeviceInfo& device, Residency residency)
      : device_(device), residency_(residency), coefficients_(default_cost(device)) {}

  std::vector<double> fit(std::span<const MeasuredCall> calls) override {
    std::vector<CostSample> samples;
    samples.reserve(calls.size());
    for (const MeasuredCall& call : calls) {
      samples.push_back({work(*call.problem, *call.config, call.registers), call.us});
    }
    coefficients_ = fit_cost(samples, device_, residency_, coefficients_);
    std::vector<double> predicted;
    for (const CostSample& sample : samples) {
      predicted.push_back(predicted_us(sample.work, device_, coefficients_, residency_));
    }
    return predicted;
  }
  double us(const Problem& problem, const Config& config, int registers) const override {
    return predicted_us(work(problem, config, registers), device_, coefficients_, residency_);
  }

 private:
  KernelWork work(const Problem& problem, const Config& config, int registers) const {
    return work_of(attention_of(problem), config, device_, registers);
  }

  DeviceInfo device_;
  Residency residency_;
  CostCoefficients coefficients_;
};

}  // namespace

std::unique_ptr<CostModel> attention_cost_model(const DeviceInfo& device, Residency residency) {
  return std::make_unique<AttentionCost>(device, residency);
}

}  // namespace vitune
