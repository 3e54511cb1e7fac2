// runtime/context/explanation.cpp -- Problems, tensors and choices in words.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/context/explanation.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/format.h"
#include "generator/operator.h"

namespace vitune {
namespace {

std::string line(const char* head, const std::string& text) {
  return formatted("{:<9} {}\n", head, text);
}

std::string tensor_line(const TensorSpec& tensor, std::size_t width) {
  return formatted("  {:<{}} {:<6} {} [{}], strides [{}], {} bytes, aligned to {}\n", tensor.name,
                   width, tensor.role == Role::kInput ? "input" : "output",
                   element_name(tensor.type), joined(tensor.extents, ", "),
                   joined(tensor.strides, ", "), tensor.bytes(), tensor.alignment);
}

std::string served_text(const vitune_selection& selection) {
  if (selection.outcome == VITUNE_EXACT) return "by its winner";
  if (selection.outcome == VITUNE_NEAREST) return "by a winner of another problem";
  return selection.outcome == VITUNE_TRANSFERRED ? "by the config of a winner on another GPU"
                                                 : "by a default";
}

std::string kernel_text(const vitune_selection& selection) {
  if (selection.kernel_key[0] == 0) return "none is stored: a call would compile it";
  const char* state = selection.compiled != 0 ? "compiled by this process"
                      : selection.loaded != 0 ? "loaded"
                                              : "stored";
  return formatted("{} ({})", selection.kernel_key, state);
}

}  // namespace

std::string describe_problem(const Problem& problem, const DeviceInfo& device,
                             Objective objective) {
  const Operator& op = problem.op();
  std::string text = line("problem", problem.text());
  const auto residency = objective == Objective::kCold ? Residency::kCold : Residency::kWarm;
  if (const auto floor = floor_of(op.demand(problem, device), device, residency)) {
    text += line("floor", formatted("{:.2f} us ({})", floor->us, hardware_unit_name(floor->unit)));
  }
  text += "tensors\n";
  const std::vector<TensorSpec> tensors = op.tensors(problem);
  std::size_t width = 6;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.given) width = std::max(width, std::string_view(tensor.name).size());
  }
  for (const TensorSpec& tensor : tensors) {
    if (tensor.given) text += tensor_line(tensor, width);
  }
  return text;
}

std::string describe_served(const vitune_selection& selection) {
  return line("served", served_text(selection)) + line("why", selection.reason) +
         line("config", selection.config) + line("kernel", kernel_text(selection));
}

std::string describe_refusal(const std::string& sentence) { return line("refused", sentence); }

std::string describe_passed_over(const PassedOver& passed_over) {
  return passed_over.empty() ? "" : line("passed", passed_over.details());
}

}  // namespace vitune
