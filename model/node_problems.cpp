// model/node_problems.cpp -- Writes each problem's text, which its operator's parser judges.
// SPDX-License-Identifier: Apache-2.0
#include "model/node_problems.h"

#include <array>
#include <map>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "core/printable.h"
#include "generator/operator.h"

namespace vitune {
namespace {

// Rows of a view: so many, from each to the next so many elements.
struct RowsOfView {
  std::int64_t count = 0;
  std::int64_t stride = 0;
};

// The leading dimensions of a view as one, where its last one is contiguous and they lie one
// behind the other.
std::optional<RowsOfView> rows_of(const BatchView& view) {
  const std::size_t rank = view.extents.size();
  if (rank == 0 || (view.strides.back() != 1 && view.columns() != 1)) return std::nullopt;
  RowsOfView rows{1, view.columns()};
  bool first = true;
  for (std::size_t i = rank - 1; i-- > 0;) {
    if (view.extents[i] == 1) continue;
    if (!first && view.strides[i] != rows.stride * rows.count) return std::nullopt;
    if (first) rows.stride = view.strides[i];
    rows.count *= view.extents[i];
    first = false;
  }
  return rows;
}

// A view that repeats its rows for every image: how many there are.
std::optional<std::int64_t> period_of(const BatchView& view) {
  if (view.extents.size() < 2 || view.extents[0] == 1 || view.strides[0] != 0) return std::nullopt;
  BatchView one = view;
  one.extents.erase(one.extents.begin());
  one.strides.erase(one.strides.begin());
  const auto rows = rows_of(one);
  if (!rows || (rows->count > 1 && rows->stride != one.columns())) return std::nullopt;
  return rows->count;
}

// Runs of rows with room between them: "rows=196+1".
std::string runs_of(const BatchView& out) {
  if (out.extents.size() < 2 || out.strides.back() != 1) return "";
  const std::int64_t n = out.columns();
  BatchView one = out;
  one.extents.erase(one.extents.begin());
  one.strides.erase(one.strides.begin());
  const auto rows = rows_of(one);
  if (!rows || (rows->count > 1 && rows->stride != n) || out.strides[0] % n != 0) return "";
  const std::int64_t gap = out.strides[0] / n - rows->count;
  return gap > 0 ? formatted(" rows={}+{}", rows->count, gap) : "";
}

const BatchView* find(const std::map<std::string, BatchView>& views, const std::string& key) {
  const auto found = views.find(key);
  return found == views.end() ? nullptr : &found->second;
}

std::string parameters(const std::string& type, const BatchView* a, const BatchView* b) {
  const BatchView* given = a != nullptr ? a : b;
  // The wider one of two types: the other is widened when the weights are loaded.
  const bool mixed = a != nullptr && b != nullptr && a->type != b->type;
  const std::string found = given == nullptr ? type : mixed ? "fp32" : given->type;
  return found == type ? "" : " params=" + found;
}

class Texts {
 public:
  Texts(const BatchTensors& tensors, const ModelNode& node, const LayerForm& form)
      : node_(node), form_(form) {
    for (const auto& [key, operand] : node.reads)
      reads_[key] = tensors.view(operand, shown_name(node.at));
    for (const auto& [key, operand] : node.writes)
      writes_[key] = tensors.view(operand, shown_name(node.at));
  }

  std::vector<std::string> all() const {
    switch (node_.kind) {
      case NodeKind::kLinear:
        return layer();
      case NodeKind::kNorm:
        return {norm()};
      case NodeKind::kAttention:
        return {attention()};
      case NodeKind::kWindowAttention:
        return {window_attention()};
      case NodeKind::kGroupNorm:
        return {group_norm()};
      case NodeKind::kMatmul:
      case NodeKind::kMap:
        break;
    }
    return {};
  }

 private:
  const BatchView& out() const { return writes_.at("out"); }
  // " x=@N" where rows lie N elements apart; nothing where they are dense or are copied first.
  static std::string stride(const char* word, const BatchView& view, std::int64_t columns) {
    const auto rows = view.columns() == columns ? rows_of(view) : std::nullopt;
    if (!rows || rows->count == 1 || rows->stride <= columns) return "";
    return formatted(" {}=@{}", word, rows->stride);
  }

  std::vector<std::string> layer() const {
    if (form_.norm == NormForm::kMoments) return {linear()};
    if (form_.norm == NormForm::kStatistics) return {statistics(), linear()};
    return node_.words.norm.empty() ? std::vector{linear()} : std::vector{norm_before(), linear()};
  }

  std::string linear() const {
    const BatchView &x = reads_.at("x"), &w = reads_.at("w");
    const std::int64_t n = w.extents[0], k = w.elements() / n, m = out().elements() / n;
    std::string text = formatted("linear {} m={} n={} k={}", x.type, m, n, k) + norm_word();
    const BatchView *bias = find(reads_, "bias"), *scale = find(reads_, "scale");
    if (bias != nullptr || is_folded()) text += " bias";
    if (!node_.words.act.empty()) text += " act=" + node_.words.act;
    if (scale != nullptr) text += " scale";
    text += is_folded() ? " params=fp32" : parameters(x.type, bias, scale);
    if (node_.words.norm.empty() || is_folded()) text += stride("x", x, k);
    // Folded weights are contiguous.
    if (!is_folded() && w.extents.size() == 2 && w.strides[0] == 1 && w.strides[1] != 1) {
      text += w.strides[1] == n ? " wt" : formatted(" wt=@{}", w.strides[1]);
    }
    if (const BatchView* residual = find(reads_, "residual")) {
      const auto period = period_of(*residual);
      const std::string step = stride("residual", *residual, n);
      text += period         ? formatted(" residual period={}", *period)
              : step.empty() ? " residual"
                             : step;
    }
    if (out().type != x.type) text += " out=fp32";
    if (form_.writes_moments) text += formatted(" moments={}", kModelMomentColumns);
    return text + (rows_of(out()) ? "" : runs_of(out()));
  }
  bool is_folded() const { return form_.norm != NormForm::kApart; }
  std::string norm_word() const {
    if (form_.norm == NormForm::kStatistics) return " norm=rms";
    if (form_.norm == NormForm::kApart) return "";
    return formatted(" norm=moments:{} eps={}", kModelMomentColumns, node_.words.eps);
  }

  // 1 / sqrt(mean square + eps) of each row.
  std::string statistics() const {
    const auto rows = as_rows(reads_.at("x"));
    if (!rows) throw Error(ErrorCode::kUnsupported, "its rows do not lie at equal distances");
    const std::string text = formatted(
        "map n={} over={} a={}@{}+1 x=mul(a,a) mean y=rsqrt(add(r,{})) out=fp32", rows->extents[0],
        rows->extents[1], rows->type, rows->strides[0], node_.words.eps);
    return aligned_text(text, {&*rows});
  }

  std::string norm_before() const {
    const BatchView& x = reads_.at("x");
    const std::int64_t d = x.columns();
    return norm_text(x, d, "norm.weight", "norm.bias") + stride("x", x, d);
  }
  std::string norm() const {
    const BatchView& x = reads_.at("x");
    const std::int64_t d = x.columns();
    std::string text = norm_text(x, d, "weight", "bias") + stride("x", x, d);
    if (reads_.contains("residual")) text += " residual";
    if (writes_.contains("sum")) text += " sum";
    if (out().type != x.type) text += " out=" + out().type;
    return text;
  }
  std::string norm_text(const BatchView& x, std::int64_t d, const char* weight,
                        const char* bias) const {
    const bool rms = node_.words.norm == "rms";
    const BatchView *w = find(reads_, weight), *b = find(reads_, bias);
    return formatted("norm {} m={} d={}{}{}{}{} eps={}", x.type, x.elements() / d, d,
                     rms ? " rms" : "", w != nullptr ? " weight" : "", b != nullptr ? " bias" : "",
                     parameters(x.type, w, b), node_.words.eps);
  }

  // Channels-last where x and the result lie so; any other order is copied first.
  std::string group_norm() const {
    const BatchView& x = reads_.at("x");
    const std::int64_t c = x.extents[1], l = x.elements() / x.extents[0] / c;
    const BatchView *w = find(reads_, "weight"), *b = find(reads_, "bias");
    const bool is_last = c > 1 && l > 1 && x.strides[1] == 1 && out().strides[1] == 1;
    const std::string act = node_.words.act.empty() ? "" : " " + node_.words.act;
    return formatted("group_norm {} n={} c={} l={} g={}{}{}{}{}{} eps={}", x.type, x.extents[0], c,
                     l, node_.words.groups, is_last ? " nhwc" : "", w != nullptr ? " weight" : "",
                     b != nullptr ? " bias" : "", parameters(x.type, w, b), act, node_.words.eps);
  }

  std::string attention() const {
    const BatchView &q = reads_.at("q"), &k = reads_.at("k");
    std::string text = formatted("attention {} b={} h={}", q.type, q.extents[0], q.extents[1]);
    if (k.extents[1] != q.extents[1]) text += formatted(" hkv={}", k.extents[1]);
    text += formatted(" nq={} nk={} d={}", q.extents[2], k.extents[2], q.extents[3]);
    for (const auto& [word, key] : {std::pair("q", "q"), {"k", "k"}, {"v", "v"}}) {
      text += places(word, reads_.at(key));
    }
    text += places("o", out());
    if (node_.words.causal) text += " causal";
    if (node_.words.scale) text += formatted(" scale={}", *node_.words.scale);
    for (const char* key : {"bias", "mask"}) {
      if (const BatchView* added = find(reads_, key)) text += broadcast(key, *added);
    }
    return text;
  }
  // " q=@113472,64,576": of batch, head and row; of a dimension of 1 any. A tensor whose last
  // dimension is not contiguous is copied first.
  static std::string places(const char* word, const BatchView& view) {
    std::array<std::int64_t, 3> steps = {view.strides[0], view.strides[1], view.strides[2]};
    const auto& e = view.extents;
    if (view.strides[3] != 1 && e[3] != 1) {
      steps = {e[1] * e[2] * e[3], e[2] * e[3], e[3]};
    }
    return formatted(" {}=@{},{},{}", word, steps[0], steps[1], steps[2]);
  }
  static std::string broadcast(const char* key, const BatchView& view) {
    const auto& [e, s] = std::pair(view.extents, view.strides);
    return formatted(" {}={}:{}x{}x{}x{}@{},{},{},{}", key, view.type, e[0], e[1], e[2], e[3], s[0],
                     s[1], s[2], s[3]);
  }

  std::string window_attention() const {
    const BatchView& x = reads_.at("x");
    const NodeWords& words = node_.words;
    const std::size_t heads = words.interleaved ? 3 : 4;
    std::string text =
        formatted("window_attention {} b={} image={}x{} window={}x{}", x.type, x.extents[0],
                  x.extents[1], x.extents[2], words.window[0], words.window[1]);
    if (words.shift[0] != 0 || words.shift[1] != 0) {
      text += formatted(" shift={}x{}", words.shift[0], words.shift[1]);
    }
    text += formatted(" h={} d={}", x.extents[heads], x.extents[5]);
    if (words.interleaved) text += " layout=interleaved";
    if (words.grid) text += " grid";
    if (reads_.contains("padding")) text += " padding";
    if (words.pads_first) text += " pad_first";
    if (words.scale) text += formatted(" scale={}", *words.scale);
    if (const BatchView* bias = find(reads_, "bias")) {
      const auto& e = bias->extents;
      text += formatted(" bias={}:{}x{}x{}x{}", bias->type, e[0], e[1], e[2], e[3]);
    }
    return text;
  }

  const ModelNode& node_;
  const LayerForm& form_;
  std::map<std::string, BatchView> reads_;
  std::map<std::string, BatchView> writes_;
};

// The problem with the alignment of the node's operands, where its operator knows that word; what
// the file holds is copied once if need be.
ProblemPtr aligned_as_given(const ProblemPtr& problem, const BatchTensors& tensors,
                            const ModelNode& node) {
  std::vector<BatchView> views;
  for (const auto* operands : {&node.reads, &node.writes}) {
    for (const auto& [key, operand] : *operands) {
      if (!tensors.is_stored(operand.of)) views.push_back(tensors.view(operand, operand.of));
    }
  }
  std::vector<const BatchView*> all;
  for (const BatchView& view : views) all.push_back(&view);
  const std::string text = aligned_text(problem->text(), all);
  if (text == problem->text() || problem->text().find(" align=") != std::string::npos) {
    return problem;
  }
  try {
    return parse_problem(text);
  } catch (const Error&) {
    return problem;
  }
}

}  // namespace

std::optional<BatchView> as_rows(const BatchView& view) {
  const auto rows = rows_of(view);
  if (!rows) return std::nullopt;
  BatchView made = view;
  made.extents = {rows->count, view.columns()};
  made.strides = {rows->stride, 1};
  return made;
}

std::string aligned_text(std::string text, const std::vector<const BatchView*>& views) {
  std::int64_t alignment = 16;
  for (const BatchView* view : views) {
    while (view->offset * model_type_bytes(view->type) % alignment != 0) alignment /= 2;
  }
  return alignment == 16 ? text : text + formatted(" align={}", alignment);
}

std::vector<ProblemPtr> node_problems(const BatchTensors& tensors, const ModelNode& node,
                                      const LayerForm& form) {
  std::vector<ProblemPtr> problems;
  for (const std::string& text : Texts(tensors, node, form).all()) {
    try {
      problems.push_back(aligned_as_given(parse_problem(text), tensors, node));
    } catch (const Error& error) {
      throw Error(error.code(),
                  formatted("{}: {} in {}: {}", tensors.place(), node_kind_name(node.kind),
                            node.at.empty() ? "the model" : shown_name(node.at), error.what()));
    }
  }
  return problems;
}

}  // namespace vitune
