// model/check.cpp -- Walks a graph in its order, with every extent a number.
// SPDX-License-Identifier: Apache-2.0
#include "model/check.h"

#include <algorithm>
#include <optional>
#include <set>

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"
#include "core/printable.h"
#include "model/expression.h"
#include "model/write_cover.h"

namespace vitune {
namespace {

constexpr std::int64_t kMaxTensorBytes = std::int64_t{1} << 47;

[[noreturn]] void refuse(const std::string& place, const std::string& what) {
  throw Error(ErrorCode::kUsage,
              formatted("{}: {}; export the model again (docs/model_file.md)", place, what));
}

std::optional<std::int64_t> product(const std::vector<std::int64_t>& extents) {
  std::optional<std::int64_t> found = 1;
  for (const std::int64_t extent : extents) {
    if (found) found = checked_mul(*found, extent);
  }
  return found;
}

bool is_16_bit(const BatchView& view) { return view.type == "bf16" || view.type == "fp16"; }
bool is_real(const BatchView& view) { return is_16_bit(view) || view.type == "fp32"; }

// The rules of one node.
class NodeCheck {
 public:
  NodeCheck(const BatchTensors& tensors, const ModelNode& node, std::size_t number)
      : node_(node),
        place_(tensors.place()),
        where_(formatted("node {} ({} in {})", number, node_kind_name(node.kind),
                         node.at.empty() ? "the model" : shown_name(node.at))) {
    for (const auto& [key, operand] : node.reads) reads_[key] = tensors.view(operand, where_);
    for (const auto& [key, operand] : node.writes) writes_[key] = tensors.view(operand, where_);
  }

  void run() const {
    switch (node_.kind) {
      case NodeKind::kLinear:
        return linear();
      case NodeKind::kAttention:
        return attention();
      case NodeKind::kWindowAttention:
        return window_attention();
      case NodeKind::kNorm:
        return norm();
      case NodeKind::kGroupNorm:
        return group_norm();
      case NodeKind::kMatmul:
        return matmul();
      case NodeKind::kMap:
        return map();
    }
  }

  const std::map<std::string, BatchView>& reads() const { return reads_; }
  const std::map<std::string, BatchView>& writes() const { return writes_; }
  const std::string& where() const { return where_; }

 private:
  void require(bool holds, const std::string& what) const {
    if (!holds) refuse(place_, formatted("{}: {}", where_, what));
  }
  const BatchView* maybe(const std::string& key) const {
    const auto found = reads_.find(key);
    return found == reads_.end() ? nullptr : &found->second;
  }
  const BatchView& out() const { return writes_.at("out"); }
  void vector(const std::string& key, std::int64_t columns) const {
    const BatchView* found = maybe(key);
    if (found == nullptr) return;
    require(is_real(*found) && found->extents == std::vector{columns},
            formatted("'{}' is not {} numbers", key, columns));
  }
  // True if some of the last extents are `columns` together.
  bool ends_with(const BatchView& view, std::int64_t columns) const {
    std::int64_t have = 1;
    for (std::size_t i = view.extents.size(); have < columns && i-- > 0;) have *= view.extents[i];
    return have == columns;
  }

  void linear() const {
    const BatchView &x = reads_.at("x"), &w = reads_.at("w");
    require(is_16_bit(x) && w.type == x.type, "x and w are not of one type of 16 bits");
    require(w.extents.size() >= 2 && !x.extents.empty() && !out().extents.empty(),
            "w has no columns, or x or the result no rows");
    const std::int64_t n = w.extents[0], k = w.elements() / n;
    require(ends_with(x, k), formatted("the rows of x are not those of w, {} numbers", k));
    require(out().columns() == n && out().elements() / n == x.elements() / k,
            "the result is not as many rows as x has, of w's outputs");
    require(out().type == x.type || out().type == "fp32", "the result is of another type than x");
    vector("bias", n);
    vector("scale", n);
    vector("norm.weight", k);
    vector("norm.bias", k);
    if (!node_.words.norm.empty()) {
      require(x.columns() == k, "x has not the rows that its norm is taken of");
    }
    if (const BatchView* residual = maybe("residual")) {
      require(residual->type == out().type && residual->elements() == out().elements() &&
                  residual->columns() == n && !residual->extents.empty(),
              "the residual is not of the result's shape and type");
    }
  }

  void norm() const {
    const BatchView& x = reads_.at("x");
    require(is_real(x) && !x.extents.empty(), "x has no rows");
    vector("weight", x.columns());
    vector("bias", x.columns());
    for (const auto& [key, view] : writes_) {
      require(view.extents == x.extents && is_real(view),
              formatted("'{}' has another shape than x", key));
    }
    const BatchView* residual = maybe("residual");
    require(residual == nullptr || (residual->extents == x.extents && residual->type == x.type),
            "the residual is not of x's shape and type");
    require(residual != nullptr || !writes_.contains("sum"), "'sum' without a residual");
  }

  void group_norm() const {
    const BatchView& x = reads_.at("x");
    require(is_real(x) && x.extents.size() >= 2, "x has no channels");
    require(x.extents[1] % node_.words.groups == 0, "the groups do not divide the channels");
    vector("weight", x.extents[1]);
    vector("bias", x.extents[1]);
    require(out().extents == x.extents && out().type == x.type,
            "the result is not of x's shape and type");
  }

  void matmul() const {
    const BatchView &a = reads_.at("a"), &b = reads_.at("b");
    require(is_16_bit(a) && b.type == a.type, "a and b are not of one type of 16 bits");
    require(out().type == a.type || out().type == "fp32", "the result is of another type than a");
    const std::size_t rank = a.extents.size();
    require(rank >= 2 && b.extents.size() == rank && out().extents.size() == rank,
            "a, b and the result are not matrices of as many dimensions");
    for (std::size_t i = 0; i + 2 < rank; ++i) {
      require(a.extents[i] == b.extents[i] && a.extents[i] == out().extents[i],
              "a, b and the result are not as many matrices");
    }
    require(a.extents[rank - 1] == b.extents[rank - 2] &&
                a.extents[rank - 2] == out().extents[rank - 2] &&
                b.extents[rank - 1] == out().extents[rank - 1],
            "the rows and columns of a, b and the result do not fit");
  }

  void attention() const {
    const BatchView &q = reads_.at("q"), &k = reads_.at("k"), &v = reads_.at("v");
    require(q.extents.size() == 4 && k.extents.size() == 4, "q and k have not four dimensions");
    require(is_16_bit(q) && k.type == q.type && v.type == q.type && out().type == q.type,
            "q, k, v and the result are not of one type of 16 bits");
    require(k.extents == v.extents && k.extents[0] == q.extents[0] && k.extents[3] == q.extents[3],
            "k and v are not of one shape that belongs to q's");
    require(q.extents[1] % k.extents[1] == 0, "k's heads do not divide q's");
    require(out().extents == q.extents, "the result is not of q's shape");
    for (const char* key : {"bias", "mask"}) {
      const BatchView* added = maybe(key);
      if (added == nullptr) continue;
      const auto& e = added->extents;
      require(e.size() == 4 && q.extents[0] % e[0] == 0 && (e[1] == 1 || e[1] == q.extents[1]) &&
                  (e[2] == 1 || e[2] == q.extents[2]) && (e[3] == 1 || e[3] == k.extents[2]),
              formatted("'{}' does not broadcast to the scores", key));
      require(std::string(key) == "mask" ? added->type == "bool" : is_real(*added),
              formatted("'{}' is of another type than it may be", key));
    }
    require(maybe("bias") == nullptr || maybe("mask") == nullptr, "has both a bias and a mask");
  }

  void window_attention() const {
    const BatchView& x = reads_.at("x");
    const std::size_t three = node_.words.interleaved ? 4 : 3;
    require(x.extents.size() == 6 && x.extents[three] == 3 && is_16_bit(x),
            "x is not a projection of images to q, k and v");
    const std::int64_t heads = x.extents[7 - three];
    const std::int64_t b = x.extents[0], height = x.extents[1], width = x.extents[2];
    const std::int64_t d = x.extents[5];
    require(out().type == x.type && out().extents == std::vector{b, height, width, heads, d},
            "the result is not an image of x's");
    const auto [rows, columns] = node_.words.window;
    require(columns > 0, "a window has no columns");
    const std::int64_t windows = ceil_div(height, rows) * ceil_div(width, columns);
    if (const BatchView* bias = maybe("bias")) {
      const auto& e = bias->extents;
      const std::int64_t n = rows * columns;
      require(is_real(*bias) && e.size() == 4 && (e[0] == 1 || e[0] == windows) &&
                  (e[1] == 1 || e[1] == heads) && e[2] == n && e[3] == n,
              "the bias is not one for windows, heads and pixels");
    }
    const BatchView* padding = maybe("padding");
    require(padding == nullptr ||
                (is_real(*padding) && padding->extents == std::vector<std::int64_t>{3, heads, d}),
            "the padding is not q, k and v of a pixel");
  }

  void map() const {
    const NodeWords& words = node_.words;
    std::vector<std::int64_t> extents = out().extents;
    const auto over = static_cast<std::size_t>(words.over);
    const bool drops = over > 0 && words.by != "softmax";
    std::string letters;
    for (const auto& [key, view] : reads_) {
      letters += key;
      if (letters.size() == 1 && drops) {
        extents = view.extents;
        require(extents.size() > over || (extents.size() == over && out().extents.empty()),
                "reduces over more dimensions than there are");
        require(std::equal(out().extents.begin(), out().extents.end(), extents.begin(),
                           extents.end() - static_cast<std::ptrdiff_t>(over)),
                "the result is not what the reduction leaves");
      }
      require(view.extents == extents, formatted("operand '{}' has another shape", key));
    }
    require(extents.size() >= over, "reduces over more dimensions than there are");
    require(letters == expression_letters(words.x, "abcdefgh"),
            "its operands are not the letters of its expression");
    require(over == 0 || !letters.empty(), "reduces constants");
  }

  const ModelNode& node_;
  const std::string& place_;
  std::string where_;
  std::map<std::string, BatchView> reads_;
  std::map<std::string, BatchView> writes_;
};

// Keeps how much of every value is written.
class Written {
 public:
  Written(const BatchTensors& tensors, const ModelGraph& graph) : place_(tensors.place()) {
    for (const GraphTensor& value : graph.values) {
      const BatchView whole = tensors.view({value.name, true, {}, {}, {}}, value.name);
      covers_.emplace(value.name, WriteCover(whole.extents));
    }
  }

  void read(const std::string& name, const std::string& where) const {
    const auto found = covers_.find(name);
    if (found != covers_.end() && !found->second.is_whole()) {
      refuse(place_, formatted("{}: tensor '{}' is read before all of it is written", where,
                               shown_name(name)));
    }
  }
  void write(const BatchView& view, const std::string& where) {
    const auto found = covers_.find(view.of);
    if (found == covers_.end()) {
      refuse(place_, formatted("{}: it writes to '{}', which is no value of the graph", where,
                               shown_name(view.of)));
    }
    const std::string fault =
        found->second.add(view.offset, view.extents, view.strides, comparisons_);
    if (!fault.empty()) {
      refuse(place_, formatted("{}: it writes to '{}' {}", where, shown_name(view.of), fault));
    }
  }
  void require_all() const {
    for (const auto& [name, cover] : covers_) {
      if (!cover.is_whole()) {
        refuse(place_, formatted("value '{}' is not wholly written", shown_name(name)));
      }
    }
  }

 private:
  const std::string& place_;
  std::map<std::string, WriteCover> covers_;
  std::int64_t comparisons_ = kMaxPieceComparisons;
};

}  // namespace

std::vector<std::int64_t> row_major_strides(const std::vector<std::int64_t>& extents) {
  std::vector<std::int64_t> strides(extents.size(), 1);
  for (std::size_t i = extents.size(); i-- > 1;) strides[i - 1] = strides[i] * extents[i];
  return strides;
}

std::int64_t BatchView::elements() const { return rows(0); }

std::int64_t BatchView::rows(std::size_t behind) const {
  std::int64_t count = 1;
  for (std::size_t i = 0; i + behind < extents.size(); ++i) count *= extents[i];
  return count;
}

BatchTensors::BatchTensors(const ModelContainer& file, const ModelGraph& graph, std::int64_t batch)
    : place_(file.path.string()), batch_(batch) {
  for (const StoredTensor& tensor : file.tensors) {
    add(tensor.name, {tensor.type, tensor.shape, true});
  }
  const auto resolved = [&](const GraphTensor& tensor) {
    Tensor made{tensor.type, {}, false};
    for (const BatchNumber& extent : tensor.shape) made.shape.push_back(extent.at(batch));
    return made;
  };
  for (const GraphTensor& input : graph.inputs) add(input.name, resolved(input));
  for (const GraphTensor& value : graph.values) {
    add(value.name, resolved(value));
    const Tensor& tensor = tensors_[value.name];
    value_bytes_ += *product(tensor.shape) * model_type_bytes(tensor.type);
    if (value_bytes_ > kMaxTensorBytes) refuse(place_, "its values have more than 2^47 bytes");
  }
}

void BatchTensors::add(const std::string& name, Tensor tensor) {
  const std::int64_t each = model_type_bytes(tensor.type);
  if (each == 0) {
    refuse(place_, formatted("tensor '{}' is of a type that no graph has", shown_name(name)));
  }
  for (const std::int64_t extent : tensor.shape) {
    if (extent < 1) {
      refuse(place_, formatted("tensor '{}' has the extent {} for batch {}", shown_name(name),
                               extent, batch_));
    }
  }
  const auto count = product(tensor.shape);
  const auto bytes = count ? checked_mul(*count, each) : std::nullopt;
  if (!bytes || *bytes > kMaxTensorBytes) {
    refuse(place_, formatted("tensor '{}' has more than 2^47 bytes for batch {}", shown_name(name),
                             batch_));
  }
  if (!tensors_.emplace(name, std::move(tensor)).second) {
    refuse(place_, formatted("two tensors have the name '{}'", shown_name(name)));
  }
}

bool BatchTensors::is_stored(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found != tensors_.end() && found->second.is_stored;
}

BatchView BatchTensors::view(const ModelOperand& operand, const std::string& where) const {
  const auto found = tensors_.find(operand.of);
  if (found == tensors_.end()) {
    refuse(place_, formatted("{}: there is no tensor '{}'", where, shown_name(operand.of)));
  }
  const Tensor& tensor = found->second;
  BatchView view{operand.of, tensor.type, 0, tensor.shape, row_major_strides(tensor.shape)};
  if (operand.whole) return view;
  view.offset = operand.offset.at(batch_);
  view.extents.clear();
  view.strides.clear();
  // With every factor below 2^44 and every sum checked, the last element's place is exact.
  std::optional<std::int64_t> last = view.offset;
  for (std::size_t i = 0; i < operand.extents.size(); ++i) {
    view.extents.push_back(operand.extents[i].at(batch_));
    view.strides.push_back(operand.strides[i].at(batch_));
    const auto reach = checked_mul(view.extents.back() - 1, view.strides.back());
    last = last && reach ? checked_add(*last, *reach) : std::nullopt;
    if (view.extents.back() < 1 || view.strides.back() < 0) last.reset();
  }
  const auto elements = product(view.extents);
  if (!last || view.offset < 0 || *last >= *product(tensor.shape) || !elements ||
      *elements > kMaxTensorBytes) {
    refuse(place_, formatted("{}: a view of '{}' reaches beyond it for batch {}", where,
                             shown_name(operand.of), batch_));
  }
  return view;
}

void require_sound(const ModelContainer& file, const ModelGraph& graph, std::int64_t batch) {
  if (batch < 1 || batch > kMaxModelBatch) {
    throw Error(ErrorCode::kUsage, formatted("batch {} is not in 1 to {}", batch, kMaxModelBatch));
  }
  const BatchTensors tensors(file, graph, batch);
  if (graph.inputs.empty() || graph.outputs.empty()) {
    refuse(tensors.place(), "its graph has no input or no result");
  }
  Written written(tensors, graph);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const NodeCheck node(tensors, graph.nodes[i], i);
    node.run();
    for (const auto& [key, view] : node.reads()) written.read(view.of, node.where());
    for (const auto& [key, view] : node.writes()) written.write(view, node.where());
  }
  written.require_all();
  std::set<std::string> names;
  for (const GraphOutput& output : graph.outputs) {
    const std::string where = formatted("result '{}'", shown_name(output.name));
    written.read(tensors.view(output.of, where).of, where);
    if (!names.insert(output.name).second) {
      refuse(tensors.place(), formatted("two results have the name '{}'", shown_name(output.name)));
    }
  }
}

bool is_modest(const BatchTensors& tensors, const BatchView& view) {
  const BatchView all = tensors.view({view.of, true, {}, {}, {}}, "a tensor");
  return view.elements() <= 4 * all.elements() + kMostRepeatedBytes / model_type_bytes(view.type);
}

}  // namespace vitune
