// tests/generator/twice_operator.h -- An operator of two steps, each the plan of a problem of
// attention: the second one's queries are what the first one gave, in the scratch memory.
//
// Of the problem "twice <attention ...>", whose queries lie as its output does. It counts how often
// its space is built.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/checked.h"
#include "generator/attention/operator.h"

namespace vitune::testing_support {

// The problem, and what attention is asked for each step.
struct AskedTwice final : Problem {
  AskedTwice(const Operator& op, ProblemPtr of)
      : Problem(op, "twice " + of->text()), step(std::move(of)) {}
  const ProblemPtr step;
};
inline const Problem& step_of(const Problem& problem) {
  return *static_cast<const AskedTwice&>(problem).step;
}

// One of attention's.
class TwiceFamily final : public Family {
 public:
  TwiceFamily(const Family& of, int& spaces) : of_(of), spaces_(spaces) {}
  std::string_view name() const override { return of_.name(); }
  bool owns(const Config& config) const override { return of_.owns(config); }
  std::optional<std::string> refusal(const Problem& p, const DeviceInfo& device) const override {
    return of_.refusal(step_of(p), device);
  }
  std::vector<Parameter> parameters(const Problem& p) const override {
    ++spaces_;
    return of_.parameters(step_of(p));
  }
  std::vector<Constraint> rules(const Problem& p, const DeviceInfo& device) const override {
    return of_.rules(step_of(p), device);
  }
  std::vector<Config> defaults(const Problem& p, const DeviceInfo& device,
                               const ParameterSpace& space) const override {
    return of_.defaults(step_of(p), device, space);
  }
  std::string templates() const override { return of_.templates(); }
  std::string source(const Problem& p, const Config& config) const override {
    return of_.source(step_of(p), config);
  }
  bool is_of_one_architecture() const override { return of_.is_of_one_architecture(); }
  std::vector<KernelNeeds> kernels(const Problem& p, const Config& config) const override {
    return of_.kernels(step_of(p), config);
  }
  std::optional<std::string> prune(const Problem& p, const Config& config,
                                   const CompileFacts& facts,
                                   const DeviceInfo& device) const override {
    return of_.prune(step_of(p), config, facts, device);
  }
  LaunchPlan plan(const Problem& p, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override {
    const std::int64_t between = round_up(p.op().tensors(p)[kTensorOut].bytes(), 256);
    SubPlan step{of_.plan(step_of(p), config, device, resident), 0, {}};
    for (int i = 0; i < kAttentionTensors; ++i) step.tensors.push_back({i});
    SubPlan second = step;
    step.tensors[kTensorOut] = {PointerSlot::kScratch};
    second.tensors[kTensorQ] = {PointerSlot::kScratch};
    LaunchPlan whole;
    append(whole, step, between);
    append(whole, second, between);
    whole.scratch_bytes = std::max(whole.scratch_bytes, between);
    return whole;
  }

 private:
  const Family& of_;
  int& spaces_;
};

class TwiceOperator final : public Operator {
 public:
  mutable int spaces = 0;  // counted by the first family

  TwiceOperator() {
    static int others = 0;
    for (const Family* of : attention().families()) {
      families_.push_back(std::make_unique<TwiceFamily>(*of, families_.empty() ? spaces : others));
    }
    for (const auto& family : families_) pointers_.push_back(family.get());
  }
  std::span<const Family* const> families() const override { return pointers_; }

  std::string_view name() const override { return "twice"; }
  ProblemPtr parse(std::string_view text) const override {
    return std::make_shared<AskedTwice>(*this, parse_problem(text.substr(name().size() + 1)));
  }
  std::string example() const override { return "twice " + attention().example(); }
  std::vector<TensorSpec> tensors(const Problem& p) const override {
    return attention().tensors(step_of(p));
  }
  std::string sizes(const Problem& p) const override { return attention().sizes(step_of(p)); }
  double flops(const Problem& p) const override { return 2 * attention().flops(step_of(p)); }
  double min_bytes(const Problem& p) const override { return attention().min_bytes(step_of(p)); }
  Demand demand(const Problem& p, const DeviceInfo& device) const override {
    return attention().demand(step_of(p), device);
  }
  std::string kernel_class(const Problem& p) const override {
    return attention().kernel_class(step_of(p));
  }
  double distance(const Problem& a, const Problem& b) const override {
    return attention().distance(step_of(a), step_of(b));
  }
  bool is_load_alike(const Problem& a, const Problem& b, const DeviceInfo& device) const override {
    return attention().is_load_alike(step_of(a), step_of(b), device);
  }
  bool is_before(const Problem& a, const Problem& b) const override {
    return attention().is_before(step_of(a), step_of(b));
  }
  std::vector<Config> defaults(const Problem& p, const DeviceInfo& device,
                               const ParameterSpace& space) const override {
    return attention().defaults(step_of(p), device, space);
  }
  std::string judge_source() const override { return attention().judge_source(); }
  std::vector<std::string> judge_entries() const override { return attention().judge_entries(); }
  LaunchPlan answer(const Problem& p, Precision precision) const override {
    return attention().answer(step_of(p), precision);
  }
  std::vector<JudgeCase> cases(const Problem& p, const Config&, const DeviceInfo&) const override {
    return {{parse(p.text()), kNormalDraw}};
  }
  std::vector<Fill> inputs(const Problem& p, const std::string& draw) const override {
    return attention().inputs(step_of(p), draw);
  }

 private:
  std::vector<std::unique_ptr<Family>> families_;
  std::vector<const Family*> pointers_;
};

}  // namespace vitune::testing_support
