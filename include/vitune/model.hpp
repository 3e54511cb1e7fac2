// include/vitune/model.hpp -- Whole models for C++17: a model file, and sessions that run it.
//
// Part of vitune.hpp; either may be included. Header only, over vitune.h, whose comments are the
// contract.
//
//   vitune::Context context;
//   vitune::Model model(context, "vit_b.safetensors");
//   vitune::Session session = model.session(32);
//   session.run({images}, {logits}, stream);
//
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_MODEL_HPP_
#define VITUNE_MODEL_HPP_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "vitune/vitune.hpp"

namespace vitune {
inline namespace cpp {

// A model's pass for one batch (Model::session()): kernels, memory, a CUDA graph. Move only. One
// thread and one stream at a time; the model must outlive it.
class Session {
 public:
  // Runs the pass on `stream` (a CUstream or cudaStream_t; null: the default stream) and returns at
  // once. Device addresses, one for each input and result; one that is null, or buffer()'s own, is
  // not copied.
  void run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
           void* stream = nullptr) {
    require_places(inputs.size(), outputs.size());
    Exception::check(vitune_session_run(get(), inputs.data(), outputs.data(), stream));
  }
  // The same for `images` images, 1 to the batch; Unsupported where results may depend on others.
  void run(std::int64_t images, const std::vector<const void*>& inputs,
           const std::vector<void*>& outputs, void* stream = nullptr) {
    require_places(inputs.size(), outputs.size());
    Exception::check(
        vitune_session_run_images(get(), images, inputs.data(), outputs.data(), stream));
  }
  // Made again where the context has other kernels for it since: true, and buffer() gives other
  // addresses. Nothing that it was asked to run may be going on.
  bool refresh() {
    int32_t renewed = 0;
    Exception::check(vitune_session_refresh(get(), &renewed));
    return renewed != 0;
  }
  // Where an input, or behind the inputs a result, lies between passes.
  void* buffer(std::size_t place) const {
    void* address = nullptr;
    Exception::check(vitune_session_buffer(get(), place, &address));
    return address;
  }
  // Device memory of the model's weights, and of this session's values.
  std::pair<std::size_t, std::size_t> bytes() const {
    std::pair<std::size_t, std::size_t> bytes;
    Exception::check(vitune_session_bytes(get(), &bytes.first, &bytes.second));
    return bytes;
  }
  // For the C interface; stays this object's. Null after a move.
  vitune_session* get() const noexcept { return session_.get(); }

 private:
  friend class Model;
  void require_places(std::size_t inputs, std::size_t outputs) const {
    if (inputs == inputs_ && outputs == outputs_) return;
    throw Exception(VITUNE_INVALID_ARGUMENT,
                    std::to_string(inputs) + " inputs and " + std::to_string(outputs) +
                        " results are given: the model has " + std::to_string(inputs_) + " and " +
                        std::to_string(outputs_));
  }
  struct Destroy {
    void operator()(vitune_session* session) const noexcept { vitune_session_destroy(session); }
  };
  Session(vitune_session* session, std::size_t inputs, std::size_t outputs)
      : session_(session), inputs_(inputs), outputs_(outputs) {}

  std::unique_ptr<vitune_session, Destroy> session_;
  std::size_t inputs_, outputs_;
};

// A model file that vitune.export() wrote, open for a context, which must outlive it. Move only.
// Any number of threads may ask it and make sessions.
class Model {
 public:
  // Throws Exception for what is no sound file.
  Model(const Context& context, const std::string& path) {
    vitune_model* model = nullptr;
    Exception::check(vitune_model_open(context.get(), path.c_str(), &model));
    model_.reset(model);
    Exception::check(vitune_model_counts(model, &inputs_, &outputs_));
  }

  // The inputs of a pass of so many images, then its results; each lies row after row.
  std::vector<TensorInfo> tensors(std::int64_t batch) const {
    std::vector<TensorInfo> all;
    for (std::size_t place = 0; place < inputs_ + outputs_; ++place) {
      vitune_tensor tensor = VITUNE_TENSOR_INIT;
      Exception::check(vitune_model_tensor(get(), place, batch, &tensor));
      all.push_back(tensor_info(tensor));
    }
    return all;
  }
  // "source", "license", "vitune.labels" ...; empty where the file has none.
  std::string text(const std::string& key) const {
    std::size_t length = 0;
    Exception::check(vitune_model_text(get(), key.c_str(), nullptr, 0, &length));
    std::string text(length + 1, '\0');
    Exception::check(vitune_model_text(get(), key.c_str(), text.data(), text.size(), nullptr));
    text.resize(length);
    return text;
  }
  // Prepares passes of so many images; `graph`: as one CUDA graph.
  Session session(std::int64_t batch, bool graph = true) {
    vitune_session_options options = VITUNE_SESSION_OPTIONS_INIT;
    options.no_graph = graph ? 0 : 1;
    vitune_session* session = nullptr;
    Exception::check(vitune_session_create(get(), batch, &options, &session));
    return {session, inputs_, outputs_};
  }
  // For the C interface; stays this object's. Null after a move.
  vitune_model* get() const noexcept { return model_.get(); }

 private:
  struct Destroy {
    void operator()(vitune_model* model) const noexcept { vitune_model_destroy(model); }
  };
  std::unique_ptr<vitune_model, Destroy> model_;
  std::size_t inputs_ = 0, outputs_ = 0;
};

}  // namespace cpp
}  // namespace vitune

#endif  // VITUNE_MODEL_HPP_
