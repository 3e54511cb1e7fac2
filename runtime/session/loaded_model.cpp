// runtime/session/loaded_model.cpp -- Opens a model file; loads its numbers when first asked.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/loaded_model.h"

#include <utility>
#include <vector>

#include "core/error.h"
#include "core/format.h"
#include "core/primary_context.h"
#include "generator/operator.h"
#include "model/constants.h"
#include "model/image_mixing.h"

namespace vitune {
namespace {

// The time of an empty kernel in a CUDA graph: docs/lab/2026-11-27-prepared-weights.md.
constexpr double kLeastKernelUs = 1.3;

ModelGraph checked_graph(const ModelContainer& file) {
  ModelGraph graph = read_model_graph(file.text("vitune.graph"), file.path.string());
  require_sound(file, graph, 1);
  return graph;
}

}  // namespace

LoadedModel::LoadedModel(RuntimeContext& context, const std::filesystem::path& path)
    : context_(context),
      file_(load_model_file(path)),
      graph_(checked_graph(file_)),
      why_images_mix_(vitune::why_images_mix(graph_)) {}

LoadedModel::~LoadedModel() {
  if (loaded_ == nullptr) return;
  const CurrentContext current(context_.primary());
  const RelaxedCapture relaxed(context_.driver().api());
  loaded_.reset();
}

void LoadedModel::abandon() noexcept { static_cast<void>(loaded_.release()); }

bool LoadedModel::input_grows(std::size_t place) const {
  const auto& shape = graph_.inputs[place].shape;
  return !shape.empty() && shape.front().each != 0;
}

bool LoadedModel::output_grows(std::size_t place) const {
  const ModelOperand& of = graph_.outputs[place].of;
  if (!of.whole) return !of.extents.empty() && of.extents.front().each != 0;
  for (const auto* tensors : {&graph_.inputs, &graph_.values}) {
    for (const GraphTensor& tensor : *tensors) {
      if (tensor.name == of.of) return !tensor.shape.empty() && tensor.shape.front().each != 0;
    }
  }
  return false;
}

BatchView LoadedModel::view(const ModelOperand& operand, std::int64_t batch) const {
  require_sound(file_, graph_, batch);
  return BatchTensors(file_, graph_, batch).view(operand, operand.of);
}

BoundModel LoadedModel::bind(std::int64_t batch) {
  require_sound(file_, graph_, batch);
  std::map<std::string, ProblemOutlook> known;  // blocks of a model ask the same
  FormFacts facts;
  facts.outlook = [&](const ProblemPtr& problem) {
    const auto found = known.find(problem->text());
    if (found != known.end()) return found->second;
    return known.emplace(problem->text(), outlook(problem)).first->second;
  };
  facts.fits = [&](const LayerFold& fold) { return fits(fold); };
  return bind_model(BatchTensors(file_, graph_, batch), graph_, file_, facts);
}

ProblemOutlook LoadedModel::outlook(const ProblemPtr& problem) const {
  vitune_selection selection = VITUNE_SELECTION_INIT;
  ProblemOutlook found;
  found.has_kernel = context_.query(problem, &selection) == VITUNE_OK;
  if (!found.has_kernel) return found;
  // Warm times are those of launches in a graph, as a session's are; cold ones contain an event's.
  if (selection.outcome == VITUNE_EXACT && selection.warm_us > 0) {
    found.winner_us = selection.warm_us;
  }
  const DeviceInfo& device = context_.device();
  const auto floor = floor_of(problem->op().demand(*problem, device), device, Residency::kWarm);
  found.least_us = kLeastKernelUs + (floor ? floor->us : 0);
  return found;
}

bool LoadedModel::fits(const LayerFold& fold) {
  if (fold.w.type == "bf16") return true;  // as far as fp32
  ModelBuffer weight{BufferKind::kConstant, fold.w.of, fold.w.type};
  weight.part = FoldedPart::kWeight;
  weight.fold = fold;
  const std::lock_guard lock(mutex_);
  const std::string contents = weight.contents();
  const auto found = fits_.find(contents);
  if (found != fits_.end()) return found->second;
  return fits_.emplace(contents, fold_weights(file_, fold).fits).first->second;
}

CuPointer LoadedModel::weights_of(const ModelBuffer& buffer) {
  const std::lock_guard lock(mutex_);
  const std::string contents = buffer.contents();
  const auto found = loaded_->find(contents);
  if (found != loaded_->end()) return found->second.address();
  if (buffer.part == FoldedPart::kNone) return load(contents, weight_bytes(file_, buffer));
  load_folded(buffer);
  return loaded_->at(contents).address();
}

CuPointer LoadedModel::load(const std::string& contents, const std::vector<std::byte>& bytes) {
  DeviceBuffer memory(context_.driver(), bytes.size());
  memory.upload(bytes);
  return loaded_->insert_or_assign(contents, std::move(memory)).first->second.address();
}

// All parts at once: they are computed together.
void LoadedModel::load_folded(ModelBuffer buffer) {
  const FoldedWeights made = fold_weights(file_, buffer.fold);
  for (const FoldedPart part : {FoldedPart::kWeight, FoldedPart::kBias, FoldedPart::kSums}) {
    buffer.part = part;
    if (!loaded_->contains(buffer.contents())) load(buffer.contents(), made.part(part));
  }
}

std::int64_t LoadedModel::weight_bytes_loaded() const {
  const std::lock_guard lock(mutex_);
  std::int64_t bytes = 0;
  for (const auto& [name, memory] : *loaded_) bytes += static_cast<std::int64_t>(memory.size());
  return bytes;
}

}  // namespace vitune
