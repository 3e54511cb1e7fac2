// runtime/session/loaded_model.cpp -- Opens a model file; loads its numbers when first asked.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/loaded_model.h"

#include <utility>
#include <vector>

#include "core/error.h"
#include "core/format.h"
#include "core/primary_context.h"
#include "model/constants.h"

namespace vitune {
namespace {

ModelGraph checked_graph(const ModelContainer& file) {
  ModelGraph graph = read_model_graph(file.text("vitune.graph"), file.path.string());
  require_sound(file, graph, 1);
  return graph;
}

std::string name_of(const ModelBuffer& buffer) {
  if (buffer.kind == BufferKind::kWeights) return buffer.name;
  return formatted("{} {}+{} {} {}", buffer.name, buffer.type, buffer.from.offset,
                   joined(buffer.from.extents, "x"), joined(buffer.from.strides, "x"));
}

}  // namespace

LoadedModel::LoadedModel(RuntimeContext& context, const std::filesystem::path& path)
    : context_(context), file_(load_model_file(path)), graph_(checked_graph(file_)) {}

LoadedModel::~LoadedModel() {
  const CurrentContext current(context_.primary());
  const RelaxedCapture relaxed(context_.driver().api());
  loaded_.clear();
}

BatchView LoadedModel::view(const ModelOperand& operand, std::int64_t batch) const {
  require_sound(file_, graph_, batch);
  return BatchTensors(file_, graph_, batch).view(operand, operand.of);
}

BoundModel LoadedModel::bind(std::int64_t batch) const {
  require_sound(file_, graph_, batch);
  return bind_model(BatchTensors(file_, graph_, batch), graph_, file_);
}

CuPointer LoadedModel::weights_of(const ModelBuffer& buffer) {
  const std::lock_guard lock(mutex_);
  const std::string name = name_of(buffer);
  const auto found = loaded_.find(name);
  if (found != loaded_.end()) return found->second.address();
  const std::vector<std::byte> bytes = weight_bytes(file_, buffer);
  DeviceBuffer memory(context_.driver(), bytes.size());
  memory.upload(bytes);
  return loaded_.emplace(name, std::move(memory)).first->second.address();
}

std::int64_t LoadedModel::weight_bytes_loaded() const {
  const std::lock_guard lock(mutex_);
  std::int64_t bytes = 0;
  for (const auto& [name, memory] : loaded_) bytes += static_cast<std::int64_t>(memory.size());
  return bytes;
}

}  // namespace vitune
