// runtime/api/c_api.cpp -- The functions of include/vitune/vitune.h.
//
// Each is a few checks around a member of RuntimeContext; no exception leaves this file.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "runtime/api/attention_call.h"
#include "runtime/api/call_check.h"
#include "runtime/api/descriptor.h"
#include "runtime/api/guarded.h"
#include "runtime/api/last_error.h"
#include "runtime/api/problem_call.h"
#include "runtime/context/handle.h"
#include "runtime/context/settings.h"
#include "runtime/context/texts.h"
#include "vitune/vitune.h"

namespace {

using vitune::guarded;
using vitune::missing;
using vitune::on_context;

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

vitune::ProblemPtr problem_of(const char* text) {
  if (text == nullptr) missing("problem");
  return vitune::parse_problem(text);
}

}  // namespace

extern "C" {

int32_t vitune_version(void) {
  return VITUNE_VERSION_MAJOR * 10000 + VITUNE_VERSION_MINOR * 100 + VITUNE_VERSION_PATCH;
}

const char* vitune_status_name(vitune_status status) { return vitune::status_name(status); }

const char* vitune_last_error(void) { return vitune::last_error(); }

vitune_status vitune_context_create(const vitune_context_options* options,
                                    vitune_context** context) {
  if (context == nullptr) return vitune::fail(VITUNE_INVALID_ARGUMENT, "context is NULL");
  *context = nullptr;
  return guarded([&] {
    const vitune::Settings settings =
        vitune::read_settings(options, vitune::read_environment(), vitune::own_library());
    *context = vitune::publish_handle(std::make_unique<vitune::RuntimeContext>(settings));
    return VITUNE_OK;
  });
}

vitune_status vitune_context_destroy(vitune_context* context) {
  return vitune::retire_handle(context) != nullptr ? VITUNE_OK : VITUNE_INVALID_CONTEXT;
}

vitune_status vitune_prepare(vitune_context* context, const vitune_attention_desc* desc) {
  return on_context(
      context, [&](vitune::RuntimeContext& runtime) { return attention_prepare(runtime, desc); });
}

vitune_status vitune_attention_forward(vitune_context* context, const vitune_attention_desc* desc,
                                       const void* q, const void* k, const void* v,
                                       const void* bias, const void* mask, void* out, float* lse,
                                       void* workspace, size_t workspace_bytes, void* stream) {
  vitune::RuntimeContext* const runtime = vitune::alive_or_fail(context);
  if (runtime == nullptr) return VITUNE_INVALID_CONTEXT;
  const vitune::Tensors tensors{address(q),    address(k),   address(v),  address(bias),
                                address(mask), address(out), address(lse)};
  vitune::Call call;
  call.workspace = address(workspace);
  call.workspace_bytes = workspace_bytes;
  call.stream = static_cast<vitune::CuStreamTag*>(stream);
  return vitune::attention_forward(*runtime, desc, tensors, call);
}

vitune_status vitune_query(vitune_context* context, const vitune_attention_desc* desc,
                           vitune_selection* selection) {
  return on_context(context, [&](vitune::RuntimeContext& runtime) {
    return attention_query(runtime, desc, selection);
  });
}

vitune_status vitune_workspace_bytes(vitune_context* context, const vitune_attention_desc* desc,
                                     size_t* bytes) {
  return on_context(context, [&](vitune::RuntimeContext& runtime) {
    if (bytes == nullptr) missing("bytes");
    return vitune::attention_workspace(runtime, desc, *bytes);
  });
}

vitune_status vitune_prepare_text(vitune_context* context, const char* problem) {
  return on_context(context, [&](vitune::RuntimeContext& runtime) {
    return runtime.prepare(problem_of(problem), nullptr);
  });
}

vitune_status vitune_workspace_bytes_text(vitune_context* context, const char* problem,
                                          size_t* bytes) {
  return on_context(context, [&](vitune::RuntimeContext& runtime) {
    if (bytes == nullptr) missing("bytes");
    return runtime.workspace(problem_of(problem), *bytes);
  });
}

vitune_status vitune_query_text(vitune_context* context, const char* problem,
                                vitune_selection* selection) {
  return on_context(context, [&](vitune::RuntimeContext& runtime) {
    if (selection == nullptr) missing("selection");
    return runtime.query(problem_of(problem), selection);
  });
}

vitune_status vitune_explain_text(vitune_context* context, const char* problem, char* text,
                                  size_t capacity, size_t* length) {
  return on_context(context, [&](vitune::RuntimeContext& runtime) {
    if (text == nullptr && capacity != 0) missing("text");
    const std::string whole = runtime.explain(problem_of(problem));
    if (length != nullptr) *length = whole.size();
    if (capacity != 0) vitune::copy_text(text, capacity, whole);
    return VITUNE_OK;
  });
}

vitune_status vitune_problem_create(const char* text, vitune_problem** problem) {
  if (problem == nullptr) return vitune::fail(VITUNE_INVALID_ARGUMENT, "problem is NULL");
  *problem = nullptr;
  return guarded([&] {
    if (text == nullptr) missing("text");
    *problem = new vitune_problem(vitune::parse_problem(text));
    return VITUNE_OK;
  });
}

void vitune_problem_destroy(vitune_problem* problem) { delete problem; }

vitune_status vitune_problem_tensors(const vitune_problem* problem, size_t* count) {
  return guarded([&] {
    if (problem == nullptr) missing("problem");
    if (count == nullptr) missing("count");
    *count = problem->tensors.size();
    return VITUNE_OK;
  });
}

vitune_status vitune_problem_tensor(const vitune_problem* problem, size_t place,
                                    vitune_tensor* tensor) {
  return guarded([&] {
    if (problem == nullptr) missing("problem");
    if (tensor == nullptr) missing("tensor");
    vitune::describe_tensor(*problem, place, *tensor);
    return VITUNE_OK;
  });
}

vitune_status vitune_run(vitune_context* context, const vitune_problem* problem,
                         void* const* tensors, size_t count, void* workspace,
                         size_t workspace_bytes, void* stream) {
  vitune::RuntimeContext* const runtime = vitune::alive_or_fail(context);
  if (runtime == nullptr) return VITUNE_INVALID_CONTEXT;
  vitune::Call call;
  call.workspace = address(workspace);
  call.workspace_bytes = workspace_bytes;
  call.stream = static_cast<vitune::CuStreamTag*>(stream);
  return vitune::run_problem(*runtime, problem, {tensors, tensors == nullptr ? 0 : count}, call);
}

vitune_status vitune_context_stats(vitune_context* context, vitune_stats* stats) {
  return on_context(context, [&](vitune::RuntimeContext& runtime) { return runtime.stats(stats); });
}

vitune_status vitune_context_refresh(vitune_context* context, int32_t* changed) {
  if (changed != nullptr) *changed = 0;
  return on_context(context, [&](vitune::RuntimeContext& runtime) {
    const int32_t count = runtime.refresh();
    if (changed != nullptr) *changed = count;
    return VITUNE_OK;
  });
}

vitune_status vitune_context_flush(vitune_context* context) {
  return on_context(context, [&](vitune::RuntimeContext& runtime) { return runtime.flush(); });
}

vitune_status vitune_problem_text(const vitune_attention_desc* desc, char* text, size_t capacity,
                                  size_t* length) {
  return guarded([&]() -> vitune_status {
    if (text == nullptr && capacity != 0) missing("text");
    const vitune_attention_desc copy = vitune::read_description(desc);
    const vitune::ProblemPtr problem = vitune::problem_from(copy, vitune::stated_alignments(copy));
    if (const auto status = vitune::check_sizes(copy, vitune::footprint_of(*problem))) {
      return status;
    }
    const std::string& canonical = problem->text();
    if (length != nullptr) *length = canonical.size();
    if (capacity != 0) vitune::copy_text(text, capacity, canonical);
    return VITUNE_OK;
  });
}

vitune_status vitune_problem_parse(const char* text, vitune_attention_desc* desc) {
  return guarded([&] {
    if (text == nullptr) missing("text");
    if (desc == nullptr) missing("desc");
    const std::size_t size = desc->size;
    vitune::check_output_struct("desc", desc, size, vitune::kFirstDescBytes, sizeof(*desc));
    vitune_attention_desc parsed = vitune::description_of(vitune::AttentionProblem::parse(text));
    parsed.size = size;
    std::memcpy(desc, &parsed, std::min(size, sizeof(parsed)));
    return VITUNE_OK;
  });
}

}  // extern "C"
