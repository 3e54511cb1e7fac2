// runtime/api/model_api.cpp -- The functions of include/vitune/vitune.h for model files.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <memory>

#include "core/error.h"
#include "core/format.h"
#include "runtime/api/failed.h"
#include "runtime/api/guarded.h"
#include "runtime/api/struct_check.h"
#include "runtime/context/texts.h"
#include "runtime/session/loaded_model.h"
#include "runtime/session/model_session.h"

// A context that is destroyed has taken its device with it: device memory that is left of a model
// then is never freed, so that no call reaches it.
struct vitune_model {
  vitune_context* context;
  std::unique_ptr<vitune::LoadedModel> model;
};

struct vitune_session {
  vitune_model* model;
  std::unique_ptr<vitune::ModelSession> session;
};

namespace vitune {
namespace {

constexpr std::size_t kFirstOptionsBytes = 16;
static_assert(sizeof(vitune_session_options) == kFirstOptionsBytes);

template <typename Body>
vitune_status on_model(const vitune_model* model, Body&& body) noexcept {
  if (model == nullptr) return failed(VITUNE_INVALID_ARGUMENT, "model is NULL");
  return on_context(model->context, [&](RuntimeContext&) { return body(*model->model); });
}

template <typename Body>
vitune_status on_session(const vitune_session* session, Body&& body) noexcept {
  if (session == nullptr) return failed(VITUNE_INVALID_ARGUMENT, "session is NULL");
  return on_context(session->model->context,
                    [&](RuntimeContext&) { return body(*session->session); });
}

std::int32_t type_code(const std::string& type) {
  if (type == "bf16") return VITUNE_BF16;
  if (type == "fp16") return VITUNE_FP16;
  if (type == "fp32") return VITUNE_FP32;
  if (type == "bool") return VITUNE_BOOL;
  if (type == "u8") return VITUNE_U8;
  throw Error(ErrorCode::kUnsupported,
              formatted("the type {} has no number in this version", type));
}

void describe(const LoadedModel& model, std::size_t place, std::int64_t batch,
              vitune_tensor& tensor) {
  const std::size_t size = tensor.size;
  check_output_struct("tensor", &tensor, size, sizeof(vitune_tensor), sizeof(tensor));
  const ModelGraph& graph = model.graph();
  if (place >= graph.inputs.size() + graph.outputs.size()) {
    throw Error(ErrorCode::kUsage, formatted("there is no tensor {}: the model has {} inputs and "
                                             "{} results",
                                             place, graph.inputs.size(), graph.outputs.size()));
  }
  const bool is_input = place < graph.inputs.size();
  const GraphOutput* const output =
      is_input ? nullptr : &graph.outputs[place - graph.inputs.size()];
  const std::string& name = is_input ? graph.inputs[place].name : output->name;
  const BatchView view =
      model.view(is_input ? ModelOperand{name, true, {}, {}, {}} : output->of, batch);
  const std::size_t rank = view.extents.size();
  if (rank > std::size(tensor.extents)) {
    throw Error(ErrorCode::kUnsupported,
                formatted("'{}' has {} dimensions; the C interface has four", name, rank));
  }
  vitune_tensor result = VITUNE_TENSOR_INIT;
  result.size = size;
  copy_text(result.name, sizeof(result.name), name);
  result.given = 1;
  result.output = is_input ? 0 : 1;
  result.type = type_code(view.type);
  result.alignment = 16;
  result.bytes = view.elements() * model_type_bytes(view.type);
  std::int64_t stride = 1;
  for (std::size_t i = std::size(tensor.extents); i-- > 0;) {
    const std::size_t left = std::size(tensor.extents) - i;
    result.extents[i] = left <= rank ? view.extents[rank - left] : 1;
    result.strides[i] = stride;
    stride *= result.extents[i];
  }
  std::memcpy(&tensor, &result, std::min(size, sizeof(result)));
}

void give_text(const std::string& whole, char* text, std::size_t capacity, std::size_t* length) {
  if (text == nullptr && capacity != 0) missing("text");
  if (length != nullptr) *length = whole.size();
  if (capacity != 0) copy_text(text, capacity, whole);
}

bool wants_no_graph(const vitune_session_options* options) {
  if (options == nullptr) return false;
  check_input_struct("options", options, options->size, kFirstOptionsBytes, sizeof(*options));
  return options->no_graph != 0;
}

}  // namespace
}  // namespace vitune

using vitune::guarded;
using vitune::missing;

extern "C" {

vitune_status vitune_model_open(vitune_context* context, const char* path, vitune_model** model) {
  if (model == nullptr) return vitune::fail(VITUNE_INVALID_ARGUMENT, "model is NULL");
  *model = nullptr;
  return vitune::on_context(context, [&](vitune::RuntimeContext& runtime) {
    if (path == nullptr) missing("path");
    *model = new vitune_model{context, std::make_unique<vitune::LoadedModel>(runtime, path)};
    return VITUNE_OK;
  });
}

void vitune_model_destroy(vitune_model* model) {
  if (model == nullptr) return;
  if (vitune::alive_or_fail(model->context) == nullptr) {
    model->model->abandon();
  }
  delete model;
}

vitune_status vitune_model_counts(const vitune_model* model, size_t* inputs, size_t* outputs) {
  return vitune::on_model(model, [&](const vitune::LoadedModel& loaded) {
    if (inputs == nullptr) missing("inputs");
    if (outputs == nullptr) missing("outputs");
    *inputs = loaded.graph().inputs.size();
    *outputs = loaded.graph().outputs.size();
    return VITUNE_OK;
  });
}

vitune_status vitune_model_tensor(const vitune_model* model, size_t place, int64_t batch,
                                  vitune_tensor* tensor) {
  return vitune::on_model(model, [&](const vitune::LoadedModel& loaded) {
    if (tensor == nullptr) missing("tensor");
    vitune::describe(loaded, place, batch, *tensor);
    return VITUNE_OK;
  });
}

vitune_status vitune_model_text(const vitune_model* model, const char* key, char* text,
                                size_t capacity, size_t* length) {
  return vitune::on_model(model, [&](const vitune::LoadedModel& loaded) {
    if (key == nullptr) missing("key");
    vitune::give_text(loaded.file().text(key), text, capacity, length);
    return VITUNE_OK;
  });
}

vitune_status vitune_session_create(vitune_model* model, int64_t batch,
                                    const vitune_session_options* options,
                                    vitune_session** session) {
  if (session == nullptr) return vitune::fail(VITUNE_INVALID_ARGUMENT, "session is NULL");
  *session = nullptr;
  if (model == nullptr) return vitune::fail(VITUNE_INVALID_ARGUMENT, "model is NULL");
  return vitune::on_context(model->context, [&](vitune::RuntimeContext&) {
    const bool no_graph = vitune::wants_no_graph(options);
    *session = new vitune_session{
        model, std::make_unique<vitune::ModelSession>(*model->model, batch, no_graph)};
    return VITUNE_OK;
  });
}

void vitune_session_destroy(vitune_session* session) {
  if (session == nullptr) return;
  if (vitune::alive_or_fail(session->model->context) == nullptr) {
    session->session->abandon();
  }
  delete session;
}

vitune_status vitune_session_run(vitune_session* session, const void* const* inputs,
                                 void* const* outputs, void* stream) {
  const int64_t batch = session == nullptr ? 0 : session->session->batch();
  return vitune_session_run_images(session, batch, inputs, outputs, stream);
}

vitune_status vitune_session_run_images(vitune_session* session, int64_t images,
                                        const void* const* inputs, void* const* outputs,
                                        void* stream) {
  return vitune::on_session(session, [&](vitune::ModelSession& pass) {
    if (inputs == nullptr) missing("inputs");
    if (outputs == nullptr) missing("outputs");
    return pass.run(images, {inputs, pass.inputs()}, {outputs, pass.places() - pass.inputs()},
                    static_cast<vitune::CuStreamTag*>(stream));
  });
}

vitune_status vitune_session_refresh(vitune_session* session, int32_t* renewed) {
  if (renewed != nullptr) *renewed = 0;
  return vitune::on_session(session, [&](vitune::ModelSession& pass) {
    if (pass.is_current()) return VITUNE_OK;
    // The old one stays where this throws.
    session->session =
        std::make_unique<vitune::ModelSession>(pass.model(), pass.batch(), !pass.has_graph());
    if (renewed != nullptr) *renewed = 1;
    return VITUNE_OK;
  });
}

vitune_status vitune_session_text(const vitune_session* session, char* text, size_t capacity,
                                  size_t* length) {
  return vitune::on_session(session, [&](const vitune::ModelSession& pass) {
    vitune::give_text(pass.steps_text(), text, capacity, length);
    return VITUNE_OK;
  });
}

vitune_status vitune_session_buffer(const vitune_session* session, size_t place, void** address) {
  return vitune::on_session(session, [&](const vitune::ModelSession& pass) {
    if (address == nullptr) missing("address");
    if (place >= pass.places()) {
      throw vitune::Error(
          vitune::ErrorCode::kUsage,
          vitune::formatted("there is no tensor {}: the session has {}", place, pass.places()));
    }
    *address = reinterpret_cast<void*>(pass.address(place));
    return VITUNE_OK;
  });
}

vitune_status vitune_session_bytes(const vitune_session* session, size_t* weights, size_t* arena) {
  return vitune::on_session(session, [&](const vitune::ModelSession& pass) {
    if (weights == nullptr) missing("weights");
    if (arena == nullptr) missing("arena");
    *weights = static_cast<std::size_t>(pass.model().weight_bytes_loaded());
    *arena = static_cast<std::size_t>(pass.arena_bytes());
    return VITUNE_OK;
  });
}

}  // extern "C"
