// model/norm_forms.cpp -- Holds the problems of a chain with its norm apart beside those with it
// folded.
// SPDX-License-Identifier: Apache-2.0
#include "model/norm_forms.h"

#include <map>
#include <string>

#include "core/error.h"
#include "core/printable.h"
#include "generator/operator.h"
#include "model/node_problems.h"

namespace vitune {
namespace {

bool is_dense(const BatchView& view) {
  std::int64_t stride = 1;
  for (std::size_t i = view.extents.size(); i-- > 0;) {
    if (view.extents[i] != 1 && view.strides[i] != stride) return false;
    stride *= view.extents[i];
  }
  return view.offset == 0;
}

class FormChooser {
 public:
  FormChooser(const BatchTensors& tensors, const ModelGraph& graph, const FormFacts& facts)
      : tensors_(tensors), graph_(graph), facts_(facts), forms_(graph.nodes.size()) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const ModelNode& node = graph.nodes[i];
      for (const auto& [key, operand] : node.writes) ++writers_[operand.of];
      if (node.kind == NodeKind::kLinear && !node.words.norm.empty()) {
        layers_behind_[node.reads.at("x").of].push_back(i);
      }
    }
  }

  std::vector<LayerForm> choose() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].kind != NodeKind::kLinear) continue;
      take_statistics(i);
      take_moments(i);
    }
    return std::move(forms_);
  }

 private:
  using Forms = std::map<std::size_t, LayerForm>;  // by nodes

  BatchView view(const ModelOperand& operand) const { return tensors_.view(operand, operand.of); }

  bool can_fold(const ModelNode& node) const {
    const auto fold = norm_fold(tensors_, node);
    if (!fold || !is_modest(tensors_, fold->w)) return false;
    if (fold->w.type != "bf16" && fold->w.type != "fp16") return false;
    return !facts_.fits || facts_.fits(*fold);
  }

  void take_statistics(std::size_t i) {
    const ModelNode& node = graph_.nodes[i];
    if (node.words.norm != "rms" || !can_fold(node)) return;
    take_if_better({{i, {NormForm::kStatistics, false}}}, view(node.reads.at("x")));
  }

  // Takes the moments of a layer's result that is one tensor, for the layers after it that
  // normalise its rows.
  void take_moments(std::size_t i) {
    const ModelOperand& result = graph_.nodes[i].writes.at("out");
    const auto behind = layers_behind_.find(result.of);
    if (behind == layers_behind_.end() || writers_.at(result.of) != 1) return;
    const BatchView out = view(result);
    if (!is_dense(out) || out.columns() % kModelMomentColumns != 0) return;
    Forms folded = {{i, {forms_[i].norm, true}}};
    for (const std::size_t layer : behind->second) {
      const ModelNode& node = graph_.nodes[layer];
      const BatchView x = view(node.reads.at("x"));
      const bool same_rows = x.type == out.type && x.elements() == out.elements() &&
                             x.columns() == out.columns() && is_dense(x);
      if (node.words.norm == "layer" && same_rows && can_fold(node)) {
        folded[layer] = {NormForm::kMoments, false};
      }
    }
    if (folded.size() > 1) take_if_better(folded, out);
  }

  void take_if_better(const Forms& folded, const BatchView& rows) {
    Forms apart;
    for (const auto& [node, form] : folded) apart[node] = forms_[node];
    if (!is_better(folded, apart, rows.elements() / rows.columns())) return;
    for (const auto& [node, form] : folded) forms_[node] = form;
  }

  bool is_better(const Forms& folded, const Forms& apart, std::int64_t rows) const {
    const auto mine = problems(folded), other = problems(apart);
    if (!mine || !other) return false;
    for (const ProblemPtr& problem : *mine) {
      if (!outlook(problem).has_kernel) return false;
    }
    const auto us = time_of(*mine), other_us = time_of(*other);
    if (us && other_us) return *us < *other_us;
    if (us || other_us) return us.has_value();
    return rows <= kMostFoldedRows;
  }

  // Nothing where the kernels have no such problem.
  std::optional<std::vector<ProblemPtr>> problems(const Forms& forms) const {
    std::vector<ProblemPtr> found;
    try {
      for (const auto& [node, form] : forms) {
        for (ProblemPtr& each : node_problems(tensors_, graph_.nodes[node], form)) {
          found.push_back(std::move(each));
        }
      }
    } catch (const Error&) {
      return std::nullopt;
    }
    return found;
  }

  ProblemOutlook outlook(const ProblemPtr& problem) const {
    return facts_.outlook ? facts_.outlook(problem) : ProblemOutlook{};
  }

  std::optional<double> time_of(const std::vector<ProblemPtr>& problems) const {
    double sum = 0;
    for (const ProblemPtr& problem : problems) {
      const ProblemOutlook found = outlook(problem);
      if (!found.winner_us && problem->op().name() == "linear") return std::nullopt;
      sum += found.winner_us.value_or(found.least_us);
    }
    return sum;
  }

  const BatchTensors& tensors_;
  const ModelGraph& graph_;
  const FormFacts& facts_;
  std::vector<LayerForm> forms_;
  std::map<std::string, int> writers_;                             // how many nodes write a value
  std::map<std::string, std::vector<std::size_t>> layers_behind_;  // that normalise a value's rows
};

}  // namespace

std::optional<LayerFold> norm_fold(const BatchTensors& tensors, const ModelNode& node) {
  const auto find = [&](const char* key) -> std::optional<BatchView> {
    const auto found = node.reads.find(key);
    if (found == node.reads.end()) return std::nullopt;
    return tensors.view(found->second, shown_name(node.at));
  };
  // The layer's scale is widened where the folded bias is wider.
  for (const char* key : {"w", "bias", "scale", "norm.weight", "norm.bias"}) {
    const auto found = node.reads.find(key);
    if (found != node.reads.end() && !tensors.is_stored(found->second.of)) return std::nullopt;
  }
  return LayerFold{*find("w"), find("bias"), find("norm.weight"), find("norm.bias")};
}

std::vector<LayerForm> choose_norm_forms(const BatchTensors& tensors, const ModelGraph& graph,
                                         const FormFacts& facts) {
  return FormChooser(tensors, graph, facts).choose();
}

}  // namespace vitune
