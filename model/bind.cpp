// model/bind.cpp -- Holds each tensor of a node's problems against the view that the node has.
// SPDX-License-Identifier: Apache-2.0
#include "model/bind.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "core/printable.h"
#include "generator/operator.h"
#include "model/node_problems.h"

namespace vitune {
namespace {

using Numbers = std::vector<std::int64_t>;
using Given = std::map<std::string, StepTensor>;  // by the names of a problem's tensors

struct Dimension {
  std::int64_t extent, stride;
  bool operator==(const Dimension&) const = default;
};

// Dimensions of one entry left out, and neighbours that lie one behind the other made one.
template <typename Extents, typename Strides>
std::vector<Dimension> merged(const Extents& extents, const Strides& strides) {
  std::vector<Dimension> result;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] == 1) continue;
    const Dimension next = {extents[i], strides[i]};
    if (!result.empty() && result.back().stride == next.extent * next.stride) {
      result.back() = {result.back().extent * next.extent, next.stride};
    } else {
      result.push_back(next);
    }
  }
  return result;
}

// Each dimension as the problem's, where one entry of its own may serve all of the view's.
bool is_broadcast(const BatchView& view, const TensorSpec& spec) {
  if (view.extents.size() != spec.extents.size()) return false;
  for (std::size_t i = 0; i < spec.extents.size(); ++i) {
    const bool one_serves = spec.extents[i] == 1 && view.strides[i] == 0;
    const bool same = spec.extents[i] == view.extents[i] &&
                      (view.extents[i] == 1 || spec.strides[i] == view.strides[i]);
    if (!one_serves && !same) return false;
  }
  return true;
}

// True if a kernel that reads `spec` reads the elements of the view, each at its place.
bool lies_as(const BatchView& view, const TensorSpec& spec) {
  if (view.type != element_name(spec.type)) return false;
  const std::int64_t bytes = element_bytes(spec.type);
  if (view.offset * bytes % spec.alignment != 0) return false;
  const std::vector<Dimension> wanted = merged(spec.extents, spec.strides);
  std::vector<Dimension> found = merged(view.extents, view.strides);
  if (found == wanted) return true;
  // Rows that repeat for each image: the problem has them once.
  if (!found.empty() && found.front().stride == 0 && spec.role == Role::kInput) {
    found.erase(found.begin());
    if (found == wanted) return true;
  }
  return spec.role == Role::kInput && is_broadcast(view, spec);
}

// The view's elements, row after row, of a tensor of their own.
BatchView dense(BatchView view, const std::string& type) {
  view.of.clear();
  view.type = type;
  view.offset = 0;
  view.strides = row_major_strides(view.extents);
  return view;
}

std::string operand_text(const char* letter, const BatchView& view, std::size_t results) {
  std::string text = formatted(" {}={}@", letter, view.type);
  for (std::size_t i = 0; i < view.strides.size(); ++i) {
    if (i != 0) text += i == results ? '+' : 'x';
    text += formatted("{}", view.strides[i]);
  }
  return text;
}

std::string copy_text(const BatchView& from, const BatchView& to) {
  const std::size_t rank = from.extents.size();
  return aligned_text(formatted("map n={}{} x=a{}", joined(from.extents, "x"),
                                operand_text("a", from, rank), operand_text("out", to, rank)),
                      {&from, &to});
}

void put_in_front(BatchView& view) {
  view.extents.insert(view.extents.begin(), 1);
  view.strides.insert(view.strides.begin(), 0);
}

// As a view of one dimension more: kernels have one at least.
BatchView with_dimension(BatchView view) {
  if (view.extents.empty()) {
    view.extents = {1};
    view.strides = {1};
  }
  return view;
}

// Names are at most 200 bytes and have no control characters.
std::string text_of(const BatchView& view) {
  return formatted("{} {}+{} {}\n{}", view.type, joined(view.extents, "x"), view.offset,
                   joined(view.strides, "x"), view.of);
}

class Binder {
 public:
  Binder(const BatchTensors& tensors, const ModelGraph& graph, const ModelContainer& file,
         const FormFacts& facts)
      : tensors_(tensors),
        graph_(graph),
        file_(file),
        forms_(choose_norm_forms(tensors, graph, facts)) {}

  BoundModel bind() {
    for (const GraphTensor& input : graph_.inputs) {
      bound_.inputs.push_back(buffer_of(input.name));
      bound_.buffers.back().kind = BufferKind::kInput;
    }
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      node_ = &graph_.nodes[i];
      bind_node(forms_[i]);
    }
    for (const GraphOutput& output : graph_.outputs) bound_.outputs.push_back(result_of(output));
    return std::move(bound_);
  }

 private:
  std::string where() const {
    if (node_ == nullptr) return formatted("{}: a result", tensors_.place());
    return formatted("{}: {} at '{}'", tensors_.place(), node_kind_name(node_->kind),
                     shown_name(node_->at));
  }

  std::size_t add_buffer(ModelBuffer buffer) {
    bound_.buffers.push_back(std::move(buffer));
    return bound_.buffers.size() - 1;
  }
  // The buffer of a tensor of the file, an input or a value.
  std::size_t buffer_of(const std::string& name) {
    const auto [at, is_new] = buffers_.emplace(name, bound_.buffers.size());
    if (is_new) {
      const BatchView all = tensors_.view({name, true, {}, {}, {}}, "a tensor");
      add_buffer({tensors_.is_stored(name) ? BufferKind::kWeights : BufferKind::kValue, name,
                  all.type, all.elements()});
    }
    return at->second;
  }
  std::size_t new_value(const BatchView& view) {
    return add_buffer({BufferKind::kValue, "", view.type, view.elements()});
  }
  StepTensor tensor_of(const BatchView& view) {
    return {buffer_of(view.of), view.offset * model_type_bytes(view.type)};
  }

  // A view that repeats a tensor could be of any size.
  void require_modest(const BatchView& view, const std::string& type) const {
    if (!is_modest(tensors_, view)) {
      throw Error(
          ErrorCode::kUnsupported,
          formatted("{}: a copy of '{}' of {} MB would be needed", where(), shown_name(view.of),
                    view.elements() * model_type_bytes(type) / 1'000'000));
    }
  }
  std::size_t constant_of(const BatchView& view, const std::string& type) {
    require_modest(view, type);
    return constant({BufferKind::kConstant, view.of, type, view.elements(), view});
  }
  // One constant for all steps that want the same.
  std::size_t constant(ModelBuffer buffer) {
    const auto [at, is_new] = constants_.emplace(buffer.contents(), bound_.buffers.size());
    if (is_new) add_buffer(std::move(buffer));
    return at->second;
  }

  void copy(const BatchView& from, StepTensor source, const BatchView& to, StepTensor target) {
    ModelStep step{node_ == nullptr ? "" : node_->at, parse_map(copy_text(from, to)), true, {}};
    place(step, [&](const TensorSpec& spec) { return spec.name == "out" ? target : source; });
    bound_.steps.push_back(std::move(step));
  }

  template <typename Tensor>
  static void place(ModelStep& step, const Tensor& tensor) {
    for (const TensorSpec& spec : step.problem->op().tensors(*step.problem)) {
      step.tensors.emplace_back(spec.given ? std::optional<StepTensor>(tensor(spec))
                                           : std::nullopt);
    }
  }

  // The operand as the problem's tensor wants it.
  StepTensor input(const BatchView& given, const TensorSpec& spec, bool is_transposed) {
    BatchView view = given;
    if (is_transposed) {
      std::reverse(view.extents.begin(), view.extents.end());
      std::reverse(view.strides.begin(), view.strides.end());
    }
    if (lies_as(view, spec)) return tensor_of(view);
    BatchView own = dense(with_dimension(view), element_name(spec.type));
    const bool repeats = view.extents.size() > 1 && view.strides.front() == 0;
    if (repeats && !lies_as(own, spec)) {  // rows that the problem has once
      view.extents.erase(view.extents.begin());
      view.strides.erase(view.strides.begin());
      own = dense(view, element_name(spec.type));
    }
    if (!lies_as(own, spec)) {
      throw Error(ErrorCode::kUnsupported,
                  formatted("{}: no kernel reads '{}' as the file has it; export the model again, "
                            "or tell us of it",
                            where(), spec.name));
    }
    const bool is_stored = tensors_.is_stored(view.of);
    const bool can_widen = is_stored && own.type == "fp32" && model_type_bytes(view.type) == 2;
    if (view.type != own.type && !can_widen) {
      throw Error(ErrorCode::kUnsupported, formatted("{}: '{}' is {} where kernels read {}",
                                                     where(), spec.name, view.type, own.type));
    }
    if (is_stored) return {constant_of(view, own.type), 0};
    const StepTensor source = tensor_of(view), target = {new_value(own), 0};
    copy(with_dimension(view), source, own, target);
    return target;
  }

  static bool lies_transposed(const std::string& key, const BatchView& view) {
    return key == "w" && view.extents.size() == 2 && view.strides[0] == 1 && view.strides[1] != 1;
  }

  // Windows read q, k and v of one projection, [B, H, W, 3, h, d], or [B, H, W, h, 3, d].
  bool is_projected(const std::string& name) const {
    return node_->kind == NodeKind::kWindowAttention && (name == "q" || name == "k" || name == "v");
  }
  BatchView plane_of(BatchView x, const std::string& name) const {
    const std::ptrdiff_t three = node_->words.interleaved ? 4 : 3;
    x.offset += (name == "q"   ? 0
                 : name == "k" ? 1
                               : 2) *
                x.strides[static_cast<std::size_t>(three)];
    x.extents.erase(x.extents.begin() + three);
    x.strides.erase(x.strides.begin() + three);
    return x;
  }

  // Files count the channels of a group norm second, [B, C, ...].
  static bool counts_channels_last(const TensorSpec& spec) {
    return spec.axes.size() > 2 && spec.axes[2] == "position";
  }
  static void move_channels(BatchView& view) {
    std::rotate(view.extents.begin() + 1, view.extents.begin() + 2, view.extents.end());
    std::rotate(view.strides.begin() + 1, view.strides.begin() + 2, view.strides.end());
  }

  struct Written {
    BatchView from, to;
    StepTensor source, target;
  };

  // A step of a problem whose tensors have the node's words as names, `prefix` in front. What is
  // not among them is in `given`.
  void add(const ProblemPtr& problem, const std::string& prefix, const Given& given) {
    ModelStep step{node_->at, problem, false, {}};
    std::vector<Written> behind;
    place(step, [&](const TensorSpec& spec) {
      if (const auto found = given.find(spec.name); found != given.end()) return found->second;
      const bool is_input = spec.role == Role::kInput;
      const auto& operands = is_input ? node_->reads : node_->writes;
      auto operand = operands.find(prefix + spec.name);
      if (operand == operands.end()) operand = operands.find(spec.name);
      if (is_input && is_projected(spec.name)) operand = operands.find("x");
      if (operand == operands.end()) {
        throw Error(ErrorCode::kUnsupported,
                    formatted("{}: its kernel has a tensor '{}' that the node has not", where(),
                              spec.name));
      }
      BatchView view = tensors_.view(operand->second, shown_name(node_->at));
      if (node_->kind == NodeKind::kGroupNorm && counts_channels_last(spec)) move_channels(view);
      if (is_input && is_projected(spec.name)) return input(plane_of(view, spec.name), spec, false);
      if (is_input) return input(view, spec, lies_transposed(spec.name, view));
      if (lies_as(view, spec)) return tensor_of(view);
      const BatchView own = dense(with_dimension(view), view.type);
      if (!lies_as(own, spec)) {
        throw Error(ErrorCode::kUnsupported,
                    formatted("{}: no kernel writes '{}' as the file has it", where(), spec.name));
      }
      const StepTensor target = {new_value(own), 0};
      behind.push_back({own, with_dimension(view), target, tensor_of(view)});
      return target;
    });
    bound_.steps.push_back(std::move(step));
    for (const Written& w : behind) copy(w.from, w.source, w.to, w.target);
  }

  void bind_node(const LayerForm& form) {
    if (node_->kind == NodeKind::kMap) return add_map();
    if (node_->kind == NodeKind::kMatmul) return add_matmul();
    const std::vector<ProblemPtr> problems = node_problems(tensors_, *node_, form);
    Given given;
    if (form.norm != NormForm::kApart) add_folded_weights(form, given);
    if (form.norm == NormForm::kMoments) given["moments"] = moments_of_.at(operand("x").of);
    if (form.norm == NormForm::kStatistics) given["rstd"] = add_statistics(problems[0]);
    if (form.norm == NormForm::kApart && problems.size() > 1) {
      // A norm before a layer: its result is a value of its own.
      given["x"] = {new_value(operand("x")), 0};
      add(problems[0], "norm.", {{"out", given["x"]}});
    }
    if (form.writes_moments) given["out_moments"] = new_moments(operand("out"));
    add(problems.back(), "", given);
  }

  BatchView operand(const std::string& key) const {
    const auto& operands = node_->reads.contains(key) ? node_->reads : node_->writes;
    return tensors_.view(operands.at(key), shown_name(node_->at));
  }

  StepTensor new_moments(const BatchView& out) {
    const std::int64_t moments = out.elements() / kModelMomentColumns * 2;
    const StepTensor made = {add_buffer({BufferKind::kValue, "", "fp32", moments}), 0};
    return moments_of_[out.of] = made;
  }

  // The map of a norm's statistics in front of its layer.
  StepTensor add_statistics(const ProblemPtr& problem) {
    const BatchView rows = *as_rows(operand("x"));
    const StepTensor x = tensor_of(rows);
    const StepTensor made = {add_buffer({BufferKind::kValue, "", "fp32", rows.extents[0]}), 0};
    ModelStep step{node_->at, problem, false, {}};
    place(step, [&](const TensorSpec& spec) { return spec.name == "out" ? made : x; });
    bound_.steps.push_back(std::move(step));
    return made;
  }

  void add_folded_weights(const LayerForm& form, Given& given) {
    const LayerFold fold = *norm_fold(tensors_, *node_);
    for (const auto* each : {&fold.bias, &fold.norm_weight, &fold.norm_bias}) {
      if (*each) require_modest(**each, (*each)->type);
    }
    require_modest(fold.w, fold.w.type);
    given["w"] = folded(fold, FoldedPart::kWeight);
    given["bias"] = folded(fold, FoldedPart::kBias);
    if (form.norm == NormForm::kMoments) given["weight_sums"] = folded(fold, FoldedPart::kSums);
  }
  StepTensor folded(const LayerFold& fold, FoldedPart part) {
    const bool is_matrix = part == FoldedPart::kWeight;
    ModelBuffer buffer{BufferKind::kConstant, fold.w.of, is_matrix ? fold.w.type : "fp32",
                       is_matrix ? fold.w.elements() : fold.w.extents[0]};
    buffer.part = part;
    buffer.fold = fold;
    return {constant(std::move(buffer)), 0};
  }

  // A product of all rows with one matrix is a layer; of several matrices it is a map.
  void add_matmul() {
    const BatchView a = operand("a"), b = operand("b"), out = operand("out");
    const std::size_t matrices = a.extents.size() - 2;
    bool is_layer = node_->words.scale.value_or(1) == 1;
    for (std::size_t i = 0; i < matrices; ++i) is_layer &= b.extents[i] == 1 || b.strides[i] == 0;
    if (!is_layer) return add_products(a, b, out, matrices);
    const auto number = [](std::int64_t n) { return BatchNumber{n, 0}; };
    ModelNode layer{NodeKind::kLinear, node_->at, {}, {}, node_->writes};
    layer.reads["x"] = node_->reads.at("a");
    layer.reads["w"] = {b.of,
                        false,
                        number(b.offset),
                        {number(b.extents[matrices + 1]), number(b.extents[matrices])},
                        {number(b.strides[matrices + 1]), number(b.strides[matrices])}};
    const ModelNode* const product = std::exchange(node_, &layer);
    bind_node({});
    node_ = product;
  }
  // Operands of [..., m, n, k], of which k is summed over.
  void add_products(BatchView a, BatchView b, const BatchView& out, std::size_t matrices) {
    const std::int64_t k = a.extents.back();
    a.strides.insert(a.strides.end() - 1, 0);
    b.strides.insert(b.strides.begin() + static_cast<std::ptrdiff_t>(matrices), 0);
    std::swap(b.strides[matrices + 1], b.strides[matrices + 2]);
    const std::size_t results = out.extents.size();
    std::string text = formatted("map n={} over={}", joined(out.extents, "x"), k);
    text += operand_text("a", a, results) + operand_text("b", b, results) + " x=mul(a,b) sum";
    if (node_->words.scale) text += formatted(" y=mul(r,{})", *node_->words.scale);
    text += operand_text("out", out, results);
    ModelStep step{node_->at, parse_map(aligned_text(text, {&a, &b, &out})), false, {}};
    place(step, [&](const TensorSpec& spec) {
      return tensor_of(spec.name == "out" ? out : spec.name == "a" ? a : b);
    });
    bound_.steps.push_back(std::move(step));
  }

  // A view of those extents, all of whose elements are the first one of some tensor of the file.
  BatchView any_number(const Numbers& extents) const {
    if (file_.tensors.empty()) {
      throw Error(ErrorCode::kUnsupported, formatted("{}: the file has no tensors", where()));
    }
    BatchView view = tensors_.view({file_.tensors.front().name, true, {}, {}, {}}, "a tensor");
    view.extents = extents;
    view.strides.assign(extents.size(), 0);
    return view;
  }

  void add_map() {
    const NodeWords& words = node_->words;
    std::map<std::string, BatchView> views;
    for (const auto& [key, operand] : node_->reads) {
      views[key] = with_dimension(tensors_.view(operand, shown_name(node_->at)));
    }
    BatchView out = with_dimension(tensors_.view(node_->writes.at("out"), shown_name(node_->at)));
    // A kernel reads something: for an expression of constants a number that does not count.
    std::string x = words.x;
    if (views.empty()) {
      views["a"] = any_number(out.extents);
      x = "where(lt(a,a),a," + x + ")";
    }
    const std::size_t over = words.by.empty() ? 0 : static_cast<std::size_t>(words.over);
    // A reduction of all dimensions gets one of one entry in front: kernels have one at least.
    if (views.begin()->second.extents.size() <= over) {
      for (auto& [key, view] : views) put_in_front(view);
      if (words.by == "softmax") put_in_front(out);
    }
    const BatchView& first = views.begin()->second;
    const std::size_t results = first.extents.size() - std::min(over, first.extents.size());
    const auto split = first.extents.begin() + static_cast<std::ptrdiff_t>(results);
    std::string text = "map n=" + joined(Numbers(first.extents.begin(), split), "x");
    if (over != 0) text += " over=" + joined(Numbers(split, first.extents.end()), "x");
    std::vector<const BatchView*> all = {&out};
    for (const auto& [key, view] : views) {
      text += operand_text(key.c_str(), view, results);
      all.push_back(&view);
    }
    text += " x=" + x + (words.by.empty() ? "" : " " + words.by);
    if (!words.y.empty()) text += " y=" + words.y;
    text += operand_text("out", out, results);
    ModelStep step{node_->at, parse_map(aligned_text(text, all)), false, {}};
    place(step, [&](const TensorSpec& spec) {
      return tensor_of(spec.name == "out" ? out : views.at(spec.name));
    });
    bound_.steps.push_back(std::move(step));
  }

  ProblemPtr parse_map(const std::string& text) const {
    try {
      return parse_problem(text);
    } catch (const Error& error) {
      throw Error(error.code(), formatted("{}: {}", where(), error.what()));
    }
  }

  // A result lies row after row in a buffer of its own, which no step reads or writes otherwise.
  std::size_t result_of(const GraphOutput& output) {
    const BatchView view = with_dimension(tensors_.view(output.of, output.name));
    const BatchView own = dense(view, view.type);
    const std::size_t buffer = buffer_of(view.of);
    const bool is_whole = bound_.buffers[buffer].elements == view.elements() && view.offset == 0 &&
                          merged(view.extents, view.strides) == merged(own.extents, own.strides);
    const bool is_taken =
        std::find(bound_.outputs.begin(), bound_.outputs.end(), buffer) != bound_.outputs.end();
    if (is_whole && !is_taken && bound_.buffers[buffer].kind == BufferKind::kValue) return buffer;
    node_ = nullptr;
    const std::size_t target = new_value(own);
    copy(view, tensor_of(view), own, {target, 0});
    return target;
  }

  const BatchTensors& tensors_;
  const ModelGraph& graph_;
  const ModelContainer& file_;
  const std::vector<LayerForm> forms_;
  const ModelNode* node_ = nullptr;
  std::map<std::string, std::size_t> buffers_;    // by name
  std::map<std::string, std::size_t> constants_;  // by what they hold
  std::map<std::string, StepTensor> moments_of_;  // by the names of values
  BoundModel bound_;
};

}  // namespace

std::int64_t ModelBuffer::bytes() const { return elements * model_type_bytes(type); }

std::string ModelBuffer::contents() const {
  if (kind != BufferKind::kConstant) return name;
  if (part == FoldedPart::kNone) return type + " " + text_of(from);
  const auto given = [](const std::optional<BatchView>& view) {
    return view ? text_of(*view) : std::string("none");
  };
  return formatted("folded {}: {}, {}, {}, {}", static_cast<int>(part), text_of(fold.w),
                   given(fold.bias), given(fold.norm_weight), given(fold.norm_bias));
}

BoundModel bind_model(const BatchTensors& tensors, const ModelGraph& graph,
                      const ModelContainer& file, const FormFacts& facts) {
  return Binder(tensors, graph, file, facts).bind();
}

}  // namespace vitune
