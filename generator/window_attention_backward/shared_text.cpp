// generator/window_attention_backward/shared_text.cpp -- What the sources of window attention's
// gradients have in common: facts of the problem, and the kernels that add sums.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "core/format.h"
#include "generator/config_text.h"
#include "generator/window_attention_backward/kernel_spec.h"

namespace vitune {
namespace {

using Shape = WindowBackwardGeometry;

constexpr char kFinishEntry[] = "vitune_window_attention_backward_finish";
constexpr char kTableEntry[] = "vitune_window_attention_backward_table";
constexpr char kParams[] = "WindowAttentionBackwardParams";

int bias_vector(const WindowAttentionProblem& p) {
  if (!p.bias) return 0;
  return p.keys() % 4 == 0 ? 4 : p.keys() % 2 == 0 ? 2 : 1;
}

}  // namespace

int window_attention_backward_bias(const WindowAttentionProblem& p) {
  if (!p.bias) return 0;
  if (p.bias->type == ElementType::kFp32) return 1;
  return p.bias->type == ElementType::kFp16 ? 2 : 3;
}

std::string window_attention_backward_facts_text(const WindowAttentionProblem& p) {
  return config_number("kElement", p.type == ElementType::kBf16 ? 1 : 0) +
         config_number("kBiasVector", bias_vector(p)) +
         config_number("kWindowRows", p.window_rows) +
         config_number("kWindowColumns", p.window_columns) +
         config_flag("kShifted", p.is_shifted()) + config_flag("kPadded", p.is_padded()) +
         config_flag("kPadsFirst", p.pads_first) + config_flag("kGrid", p.grid);
}

std::string window_attention_backward_sums_text(const WindowAttentionBackwardProblem& p,
                                                const std::string& functions) {
  const std::string text = entry_text(formatted("{}", Shape::kFinishThreads), kFinishEntry, kParams,
                                      functions + "_finish");
  if (p.table_rows == 0) return text;
  return text + entry_text(formatted("{}", Shape::kTableThreads), kTableEntry, kParams,
                           functions + "_table");
}

std::vector<KernelNeeds> window_attention_backward_kernels(const WindowAttentionBackwardProblem& p,
                                                           KernelNeeds main) {
  std::vector<KernelNeeds> kernels = {std::move(main), {kFinishEntry, Shape::kFinishThreads, 0}};
  if (p.table_rows != 0) kernels.push_back({kTableEntry, Shape::kTableThreads, 0});
  return kernels;
}

}  // namespace vitune
