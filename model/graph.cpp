// model/graph.cpp -- From the JSON text of a graph to its nodes: known words only.
// SPDX-License-Identifier: Apache-2.0
#include "model/graph.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json_bounds.h"
#include "core/json_fault.h"
#include "core/printable.h"
#include "model/expression.h"

namespace vitune {
namespace {

using nlohmann::json;

// A node has at most some 150 values: ten operands of six extents and strides.
constexpr JsonBounds kGraphBounds{1'000'000, 8, true};
constexpr std::size_t kMaxText = 1000;  // bytes of a name, a path, an expression

struct KindWords {
  NodeKind kind;
  std::string_view name;
  std::string_view needed;  // operands, with blanks between them
  std::string_view maybe;
  std::string_view writes;
  std::string_view words;
};

constexpr std::array<KindWords, 7> kKinds = {{
    {NodeKind::kLinear, "linear", "x w", "bias scale residual", "out", "act norm"},
    {NodeKind::kAttention, "attention", "q k v", "bias mask", "out", "causal scale"},
    {NodeKind::kWindowAttention, "window_attention", "x", "bias padding", "out",
     "window shift interleaved grid pads_first scale"},
    {NodeKind::kNorm, "norm", "x", "weight bias residual", "out sum", "kind eps"},
    {NodeKind::kGroupNorm, "group_norm", "x", "weight bias", "out", "groups eps act"},
    {NodeKind::kMatmul, "matmul", "a b", "", "out", "scale"},
    {NodeKind::kMap, "map", "", "a b c d e f g h", "out", "x y by over"},
}};

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::size_t end = list.find(' ');
    if (list.substr(0, end) == word) return true;
    list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
  }
  return false;
}

class GraphReader {
 public:
  explicit GraphReader(const std::string& place) : place_(place) {}

  ModelGraph read(const json& document) {
    require(document.is_object(), "its graph is no JSON object");
    known(document, "inputs outputs values nodes", "the graph");
    ModelGraph graph;
    for (const json& entry : list(document, "inputs", kMaxModelInputs)) {
      graph.inputs.push_back(tensor(entry));
    }
    for (const json& entry : list(document, "values", 2 * kMaxNodes)) {
      graph.values.push_back(tensor(entry));
    }
    for (const json& entry : list(document, "outputs", kMaxModelInputs)) {
      where_ = "a result";
      known(entry, "name of", where_);
      graph.outputs.push_back({text(entry, "name"), operand(member(entry, "of"))});
    }
    for (const json& entry : list(document, "nodes", kMaxNodes)) {
      where_ = formatted("node {}", graph.nodes.size());
      graph.nodes.push_back(node(entry));
    }
    return graph;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::kUsage, formatted("{}: {}; a newer vitune may read it, or export the "
                                             "model again (docs/model_file.md)",
                                             place_, what));
  }
  void require(bool holds, const std::string& what) const {
    if (!holds) refuse(what);
  }

  void known(const json& entry, std::string_view words, const std::string& what) const {
    require(entry.is_object(), formatted("{} is no object", what));
    for (const auto& item : entry.items()) {
      require(has_word(words, item.key()),
              formatted("{} has '{}', which format 1 does not know", what, shown_name(item.key())));
    }
  }
  const json& member(const json& entry, const char* key) const {
    const auto found = entry.find(key);
    require(found != entry.end(), formatted("{} has no '{}'", where_, key));
    return *found;
  }
  const json& list(const json& entry, const char* key, std::size_t most) {
    where_ = "the graph";
    const json& found = member(entry, key);
    require(found.is_array() && found.size() <= most,
            formatted("'{}' is no list of at most {}", key, most));
    return found;
  }
  std::string text_of(const json& value, const char* key) const {
    require(value.is_string(), formatted("'{}' of {} is no text", key, where_));
    const auto& found = value.get_ref<const std::string&>();
    require(found.size() <= kMaxText && is_printable(found),
            formatted("'{}' of {} is longer than {} bytes or has control characters", key, where_,
                      kMaxText));
    return found;
  }
  std::string text(const json& entry, const char* key) const {
    return text_of(member(entry, key), key);
  }
  std::int64_t integer(const json& value) const {
    require(value.is_number_integer(), formatted("a number of {} is no integer", where_));
    const bool fits = value.is_number_unsigned()
                          ? value.get<std::uint64_t>() <= std::uint64_t{kMaxModelNumber}
                          : value.get<std::int64_t>() >= -kMaxModelNumber;
    require(fits, formatted("a number of {} is beyond 2^44", where_));
    return value.get<std::int64_t>();
  }
  double real(const json& value, const char* key) const {
    require(value.is_number() && std::isfinite(value.get<double>()),
            formatted("'{}' of {} is no finite number", key, where_));
    return value.get<double>();
  }
  bool flag(const json& value, const char* key) const {
    require(value.is_boolean(), formatted("'{}' of {} is neither true nor false", key, where_));
    return value.get<bool>();
  }

  // 3, "B", "3*B", [1, 3].
  BatchNumber number(const json& value) const {
    if (value.is_array()) {
      require(value.size() == 2, formatted("a number of {} is a list of other than two", where_));
      return {integer(value[0]), integer(value[1])};
    }
    if (!value.is_string()) return {integer(value), 0};
    const auto& written = value.get_ref<const std::string&>();
    if (written == "B") return {0, 1};
    const bool is_product = written.size() > 2 && written.size() < 16 && written.ends_with("*B");
    std::int64_t factor = 0;
    for (std::size_t i = 0; is_product && i < written.size() - 2; ++i) {
      require(written[i] >= '0' && written[i] <= '9',
              formatted("a number of {} is neither B nor a multiple of B", where_));
      factor = factor * 10 + (written[i] - '0');
    }
    require(is_product && factor <= kMaxModelNumber,
            formatted("a number of {} is neither B nor a multiple of B up to 2^44", where_));
    return {0, factor};
  }
  std::vector<BatchNumber> numbers(const json& value, const char* key) const {
    require(value.is_array() && value.size() <= kMaxViewDims,
            formatted("'{}' of {} is no list of at most {} numbers", key, where_, kMaxViewDims));
    std::vector<BatchNumber> found;
    for (const json& each : value) found.push_back(number(each));
    return found;
  }

  GraphTensor tensor(const json& entry) {
    where_ = "a tensor of the graph";
    known(entry, "name type shape", where_);
    return {text(entry, "name"), text(entry, "type"), numbers(member(entry, "shape"), "shape")};
  }
  ModelOperand operand(const json& value) const {
    if (value.is_string()) return {text_of(value, "of"), true, {}, {}, {}};
    known(value, "of offset extents strides", "an operand of " + where_);
    ModelOperand found{text(value, "of"), false, {}, {}, {}};
    if (value.contains("offset")) found.offset = number(value["offset"]);
    found.extents = numbers(member(value, "extents"), "extents");
    found.strides = numbers(member(value, "strides"), "strides");
    require(found.extents.size() == found.strides.size(),
            formatted("an operand of {} has other extents than strides", where_));
    return found;
  }

  ModelNode node(const json& entry) {
    require(entry.is_object(), where_ + " is no object");
    const std::string op = text(entry, "op");
    const auto kind = std::find_if(kKinds.begin(), kKinds.end(),
                                   [&](const KindWords& each) { return each.name == op; });
    require(kind != kKinds.end(),
            formatted("{} is of kind '{}', which format 1 does not know", where_, shown_name(op)));
    ModelNode made;
    made.kind = kind->kind;
    made.at = text(entry, "at");
    where_ =
        formatted("{} ({} in {})", where_, op, made.at.empty() ? "the model" : shown_name(made.at));
    for (const auto& item : entry.items()) {
      const std::string& key = item.key();
      if (key == "op" || key == "at") continue;
      if (has_word(kind->needed, key) || has_word(kind->maybe, key)) {
        // A map's x is its expression, the scale of attention a number.
        made.reads[key] = operand(item.value());
      } else if (has_word(kind->writes, key)) {
        made.writes[key] = operand(item.value());
      } else {
        require(has_word(kind->words, key),
                formatted("{} has '{}', which format 1 does not know", where_, shown_name(key)));
        word(made, key, item.value());
      }
    }
    complete(*kind, made);
    return made;
  }

  void complete(const KindWords& kind, const ModelNode& made) const {
    std::string_view needed = kind.needed;
    while (!needed.empty()) {
      const std::size_t end = needed.find(' ');
      require(made.reads.contains(std::string(needed.substr(0, end))),
              formatted("{} has no '{}'", where_, needed.substr(0, end)));
      needed.remove_prefix(end == std::string_view::npos ? needed.size() : end + 1);
    }
    require(made.writes.contains("out"), where_ + " has no 'out'");
    const NodeWords& words = made.words;
    if (made.kind == NodeKind::kNorm) require(!words.norm.empty(), where_ + " has no 'kind'");
    if (made.kind == NodeKind::kNorm || made.kind == NodeKind::kGroupNorm) {
      require(words.eps > 0, where_ + " has no 'eps'");
    }
    if (made.kind == NodeKind::kWindowAttention) {
      require(words.window[0] > 0, where_ + " has no 'window'");
    }
    if (made.kind == NodeKind::kMap) {
      require(!words.x.empty(), where_ + " has no 'x'");
      require(words.by.empty() == (words.over == 0) && (words.y.empty() || !words.by.empty()),
              where_ + " reduces by nothing, or over no dimension");
    }
  }

  void word(ModelNode& made, const std::string& key, const json& value) const {
    NodeWords& words = made.words;
    if (key == "act") {
      words.act = one_of(
          value, "act",
          made.kind == NodeKind::kGroupNorm ? "silu mish" : "relu gelu gelu_tanh quick_gelu silu");
    } else if (key == "norm") {
      known(value, "kind weight bias eps", "the norm of " + where_);
      words.norm = one_of(member(value, "kind"), "kind", "layer rms");
      words.eps = epsilon(member(value, "eps"));
      for (const char* name : {"weight", "bias"}) {
        if (value.contains(name)) made.reads[std::string("norm.") + name] = operand(value[name]);
      }
    } else if (key == "kind") {
      words.norm = one_of(value, "kind", "layer rms");
    } else if (key == "eps") {
      words.eps = epsilon(value);
    } else if (key == "groups") {
      words.groups = integer(value);
      require(words.groups > 0, where_ + " has fewer than one group");
    } else if (key == "scale") {
      words.scale = real(value, "scale");
    } else if (key == "window" || key == "shift") {
      (key == "window" ? words.window : words.shift) = pair(value, key.c_str());
    } else if (key == "causal" || key == "interleaved" || key == "grid" || key == "pads_first") {
      bool& to = key == "causal"        ? words.causal
                 : key == "interleaved" ? words.interleaved
                 : key == "grid"        ? words.grid
                                        : words.pads_first;
      to = flag(value, key.c_str());
    } else {
      map_word(words, key, value);
    }
  }
  void map_word(NodeWords& words, const std::string& key, const json& value) const {
    if (key == "over") {
      words.over = integer(value);
      require(words.over > 0 && words.over <= 3, where_ + " reduces over other than 1 to 3");
    } else if (key == "by") {
      words.by = one_of(value, "by", "sum mean max softmax");
    } else {
      const std::string found = text_of(value, key.c_str());
      const std::string fault = expression_fault(found, key == "y" ? "r" : "abcdefgh");
      require(fault.empty(), formatted("'{}' of {} is no expression: {}", key, where_, fault));
      (key == "x" ? words.x : words.y) = found;
    }
  }
  std::string one_of(const json& value, const char* key, std::string_view list) const {
    const std::string found = text_of(value, key);
    require(!found.empty() && has_word(list, found),
            formatted("'{}' of {} is '{}', and none of: {}", key, where_, shown_name(found), list));
    return found;
  }
  double epsilon(const json& value) const {
    const double found = real(value, "eps");
    require(found >= 1e-30 && found <= 1e30,
            formatted("'eps' of {} is not in 1e-30 to 1e30", where_));
    return found;
  }
  std::array<std::int64_t, 2> pair(const json& value, const char* key) const {
    require(value.is_array() && value.size() == 2,
            formatted("'{}' of {} is not two numbers", key, where_));
    const std::array found = {integer(value[0]), integer(value[1])};
    require(found[0] >= 0 && found[1] >= 0 && found[0] <= 1 << 20 && found[1] <= 1 << 20,
            formatted("'{}' of {} is not in 0 to 2^20", key, where_));
    return found;
  }

  const std::string& place_;
  std::string where_;
};

}  // namespace

std::int64_t BatchNumber::at(std::int64_t batch) const {
  constexpr std::int64_t kFar = std::int64_t{1} << 62;
  const auto grown = checked_mul(each, batch);
  const auto sum = grown ? checked_add(fixed, *grown) : std::nullopt;
  if (sum) return std::clamp(*sum, -kFar, kFar);
  return each < 0 ? -kFar : kFar;
}

std::string node_kind_name(NodeKind kind) {
  for (const KindWords& each : kKinds) {
    if (each.kind == kind) return std::string(each.name);
  }
  return "";
}

ModelGraph read_model_graph(const std::string& text, const std::string& place) {
  require_bounds(text, kGraphBounds, place);
  json document;
  try {
    document = json::parse(text.begin(), text.end());
  } catch (const json::exception& error) {
    throw Error(ErrorCode::kUsage,
                formatted("{}: its graph is no valid JSON ({}); export the model again", place,
                          json_fault(error.what())));
  }
  return GraphReader(place).read(document);
}

}  // namespace vitune
