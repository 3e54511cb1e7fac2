// runtime/session/loaded_model.h -- LoadedModel: a sound model file, weights on one device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/cuda_driver.h"
#include "model/bind.h"
#include "model/check.h"
#include "model/graph.h"
#include "model/model_file.h"
#include "runtime/context/context.h"

namespace vitune {

class LoadedModel {
 public:
  // Reads and checks the file; nothing is loaded onto the device. Throws as load_model_file() and
  // require_sound() do. The context must outlive the model.
  LoadedModel(RuntimeContext& context, const std::filesystem::path& path);
  ~LoadedModel();
  // Leaves device memory behind, for a context that has gone; then nothing but the end may follow.
  void abandon() noexcept;
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  RuntimeContext& context() const { return context_; }
  const ModelContainer& file() const { return file_; }
  const ModelGraph& graph() const { return graph_; }
  // As model/image_mixing.h says it.
  const std::string& why_images_mix() const { return why_images_mix_; }
  // True if the input or result at that place grows with the batch.
  bool input_grows(std::size_t place) const;
  bool output_grows(std::size_t place) const;

  // An operand in a pass of that many images. Throws Error(kUsage) for a batch that the graph does
  // not take.
  BatchView view(const ModelOperand& operand, std::int64_t batch) const;
  // The steps of a pass of that many images, by the winners that the context has now; checks the
  // graph for it. Any number of threads.
  BoundModel bind(std::int64_t batch);

  // The address of a buffer of the file's numbers, which is loaded once for all sessions. The
  // context must be current. Any number of threads.
  // Throws Error as weight_bytes() does.
  CuPointer weights_of(const ModelBuffer& buffer);
  // Bytes of all that is loaded.
  std::int64_t weight_bytes_loaded() const;

 private:
  RuntimeContext& context_;
  const ModelContainer file_;
  const ModelGraph graph_;
  const std::string why_images_mix_;
  CuPointer load(const std::string& contents, const std::vector<std::byte>& bytes);
  void load_folded(ModelBuffer buffer);
  ProblemOutlook outlook(const ProblemPtr& problem) const;
  bool fits(const LayerFold& fold);

  mutable std::mutex mutex_;
  using Loaded = std::map<std::string, DeviceBuffer>;            // by what they hold
  std::unique_ptr<Loaded> loaded_ = std::make_unique<Loaded>();  // null: abandoned
  std::map<std::string, bool> fits_;                             // folded weights that were tried
};

}  // namespace vitune
