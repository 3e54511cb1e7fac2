// model/memory_plan.cpp -- First fit by size over live ranges.
// SPDX-License-Identifier: Apache-2.0
#include "model/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "generator/operator.h"

namespace vitune {
namespace {

// Something that needs room from the first of some steps to the last.
struct Tenant {
  std::int64_t bytes = 0;
  std::size_t first = std::numeric_limits<std::size_t>::max();
  std::size_t last = 0;
  std::int64_t offset = 0;

  void use(std::size_t step) {
    first = std::min(first, step);
    last = std::max(last, step);
  }
  bool meets(const Tenant& other) const { return first <= other.last && other.first <= last; }
};

std::int64_t rounded(std::int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

bool is_in_arena(const ModelBuffer& buffer) {
  return buffer.kind == BufferKind::kInput || buffer.kind == BufferKind::kValue;
}

class Planner {
 public:
  explicit Planner(const BoundModel& model)
      : model_(model), tenants_(model.buffers.size()), owner_(model.buffers.size()) {
    std::iota(owner_.begin(), owner_.end(), std::size_t{0});
    for (std::size_t i = 0; i < tenants_.size(); ++i) tenants_[i].bytes = model.buffers[i].bytes();
    for (std::size_t step = 0; step < model.steps.size(); ++step) {
      for (const auto& tensor : model.steps[step].tensors) {
        if (tensor) tenants_[tensor->buffer].use(step);
      }
    }
    for (const auto* ends : {&model.inputs, &model.outputs}) {
      for (const std::size_t buffer : *ends) {
        tenants_[buffer].use(0);
        tenants_[buffer].use(model.steps.size());
      }
    }
  }

  // Gives an output the memory of an input that ends at its step.
  void replace() {
    for (std::size_t i = 0; i < model_.steps.size(); ++i) {
      const ModelStep& step = model_.steps[i];
      const std::vector<TensorSpec> specs = step.problem->op().tensors(*step.problem);
      for (std::size_t t = 0; t < specs.size(); ++t) {
        if (!step.tensors[t]) continue;
        for (const int input : specs[t].may_replace) {
          if (try_replace(i, step, t, static_cast<std::size_t>(input))) break;
        }
      }
    }
  }

  MemoryPlan plan(const std::vector<std::int64_t>& scratch_bytes) {
    std::vector<Tenant*> wanted;
    for (std::size_t i = 0; i < tenants_.size(); ++i) {
      if (is_in_arena(model_.buffers[i]) && owner_[i] == i) wanted.push_back(&tenants_[i]);
    }
    std::vector<Tenant> scratch(scratch_bytes.size());
    for (std::size_t i = 0; i < scratch.size(); ++i) {
      scratch[i].bytes = scratch_bytes[i];
      scratch[i].use(i);
      if (scratch_bytes[i] > 0) wanted.push_back(&scratch[i]);
    }
    MemoryPlan plan;
    plan.bytes = place(wanted);
    for (std::size_t i = 0; i < tenants_.size(); ++i) {
      plan.buffers.push_back(
          is_in_arena(model_.buffers[i]) ? std::optional(tenants_[owner(i)].offset) : std::nullopt);
    }
    for (const Tenant& each : scratch) plan.scratch.push_back(each.offset);
    return plan;
  }

 private:
  std::size_t owner(std::size_t buffer) const {
    while (owner_[buffer] != buffer) buffer = owner_[buffer];
    return buffer;
  }

  bool try_replace(std::size_t at, const ModelStep& step, std::size_t output, std::size_t input) {
    if (!step.tensors[input]) return false;
    const StepTensor &from = *step.tensors[input], &to = *step.tensors[output];
    const std::size_t old = owner(from.buffer), fresh = to.buffer;
    const ModelBuffer &before = model_.buffers[from.buffer], &after = model_.buffers[fresh];
    const auto uses = std::count_if(step.tensors.begin(), step.tensors.end(),
                                    [&](const auto& t) { return t && owner(t->buffer) == old; });
    const bool fits = from.offset == 0 && to.offset == 0 && before.bytes() == after.bytes() &&
                      before.kind == BufferKind::kValue && after.kind == BufferKind::kValue;
    if (!fits || owner_[fresh] != fresh || uses != 1) return false;
    if (tenants_[old].last != at || tenants_[fresh].first != at) return false;
    owner_[fresh] = old;
    tenants_[old].use(tenants_[fresh].last);
    return true;
  }

  static std::int64_t place(std::vector<Tenant*>& wanted) {
    std::stable_sort(wanted.begin(), wanted.end(),
                     [](const Tenant* a, const Tenant* b) { return a->bytes > b->bytes; });
    std::int64_t end = 0;
    std::vector<const Tenant*> placed;  // by their offsets
    const auto is_before = [](const Tenant* a, const Tenant* b) { return a->offset < b->offset; };
    for (Tenant* each : wanted) {
      for (const Tenant* other : placed) {
        if (!other->meets(*each)) continue;
        if (each->offset + each->bytes <= other->offset) break;
        each->offset = std::max(each->offset, rounded(other->offset + other->bytes));
      }
      placed.insert(std::upper_bound(placed.begin(), placed.end(), each, is_before), each);
      end = std::max(end, rounded(each->offset + each->bytes));
    }
    return end;
  }

  const BoundModel& model_;
  std::vector<Tenant> tenants_;     // of each buffer
  std::vector<std::size_t> owner_;  // the buffer on whose memory it lies, by chains
};

}  // namespace

MemoryPlan plan_memory(const BoundModel& model, const std::vector<std::int64_t>& scratch_bytes) {
  Planner planner(model);
  planner.replace();
  return planner.plan(scratch_bytes);
}

}  // namespace vitune
