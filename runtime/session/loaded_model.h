// runtime/session/loaded_model.h -- LoadedModel: a sound model file, weights on one device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

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
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  RuntimeContext& context() const { return context_; }
  const ModelContainer& file() const { return file_; }
  const ModelGraph& graph() const { return graph_; }

  // An operand in a pass of that many images. Throws Error(kUsage) for a batch that the graph does
  // not take.
  BatchView view(const ModelOperand& operand, std::int64_t batch) const;
  // The steps of a pass of that many images; checks the graph for it.
  BoundModel bind(std::int64_t batch) const;

  // The address of a buffer of the file's numbers, which is loaded once for all sessions. The
  // context must be current. Any number of threads.
  CuPointer weights_of(const ModelBuffer& buffer);
  // Bytes of all that is loaded.
  std::int64_t weight_bytes_loaded() const;

 private:
  RuntimeContext& context_;
  const ModelContainer file_;
  const ModelGraph graph_;
  mutable std::mutex mutex_;
  std::map<std::string, DeviceBuffer> loaded_;  // by what they hold
};

}  // namespace vitune
