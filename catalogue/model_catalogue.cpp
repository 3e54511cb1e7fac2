// catalogue/model_catalogue.cpp -- Reads the catalogue and scales its calls to a batch.
// SPDX-License-Identifier: Apache-2.0
#include "catalogue/model_catalogue.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json_fault.h"
#include "core/nearest_name.h"
#include "generator/problem_words.h"

namespace vitune {
namespace {

using nlohmann::json;

constexpr std::int64_t kTracedImages = 2;  // "images" of the file
constexpr int kSchema = 1;

ModelCall call_of(const json& entry) {
  ModelCall call;
  call.calls = entry.at("calls").get<std::int64_t>();
  call.text = entry.at("problem").get<std::string>();
  call.each_image = entry.value("each_image", false);
  call.unsupported = entry.value("unsupported", "");
  if (call.unsupported.empty()) call.traced = AttentionProblem::parse(call.text);
  const bool whole =
      call.each_image || !call.unsupported.empty() || call.traced.batch % kTracedImages == 0;
  if (call.calls < 1 || !whole) {
    throw Error(ErrorCode::kUsage,
                formatted("'{}' is not a call of {} images", call.text, kTracedImages));
  }
  return call;
}

Model model_of(const json& entry) {
  Model model;
  model.name = entry.at("name").get<std::string>();
  for (const json& call : entry.at("attention")) model.calls.push_back(call_of(call));
  if (model.calls.empty()) throw Error(ErrorCode::kUsage, model.name + " has no call");
  return model;
}

json read_document(const std::filesystem::path& path) {
  constexpr char kExpected[] =
      "a JSON object with \"schema\", \"images\", \"source\" and \"models\" is expected";
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::kUsage, "there is no such file");
  std::ostringstream content;
  content << file.rdbuf();
  const std::string text = content.str();
  if (is_blank(text)) {
    throw Error(ErrorCode::kUsage, formatted("it is empty, and {}", kExpected));
  }
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(error.byte, text.size()));
    throw Error(ErrorCode::kUsage, formatted("line {} is not valid JSON ({}), and {}",
                                             1 + std::count(text.begin(), end, '\n'),
                                             json_fault(error.what()), kExpected));
  }
}

std::vector<Model> read_models(const json& document) {
  if (document.at("schema") != kSchema || document.at("images") != kTracedImages) {
    throw Error(ErrorCode::kUsage, formatted("schema {} and calls of {} images are understood",
                                             kSchema, kTracedImages));
  }
  std::vector<Model> models;
  for (const json& entry : document.at("models")) models.push_back(model_of(entry));
  std::ranges::sort(models, {}, &Model::name);
  return models;
}

// "timm/vit_base_patch16_224.augreg_in21k" is what hubs call vit_base_patch16_224.
std::string_view architecture_name(std::string_view name) {
  constexpr std::string_view kHub = "hf-hub:", kOwner = "timm/";
  if (name.starts_with(kHub)) name.remove_prefix(kHub.size());
  if (name.starts_with(kOwner)) name.remove_prefix(kOwner.size());
  return name.substr(0, name.find('.'));
}

ScoreOperand scaled_operand(ScoreOperand operand, const AttentionProblem& traced,
                            std::int64_t batch, ElementType dtype) {
  // One entry for all or for each window stays; one for each of the batch grows with it.
  if (operand.batches == traced.batch) operand.batches = batch;
  if (operand.type != ElementType::kBool) operand.type = dtype;
  return operand;
}

std::int64_t times_images(std::int64_t count, std::int64_t images) {
  if (const auto product = checked_mul(count, images)) return *product;
  throw Error(ErrorCode::kUnsupported,
              formatted("{} images are too many: use a smaller batch", images));
}

AttentionProblem scaled(const ModelCall& call, std::int64_t images, ElementType dtype) {
  AttentionProblem problem = call.traced;
  problem.dtype = dtype;
  if (!call.each_image) problem.batch = times_images(call.traced.batch / kTracedImages, images);
  for (auto* operand : {&problem.bias, &problem.mask}) {
    if (*operand) *operand = scaled_operand(**operand, call.traced, problem.batch, dtype);
  }
  problem.validate();
  return problem.canonical();
}

}  // namespace

std::int64_t Model::layers() const {
  std::int64_t sum = 0;
  for (const ModelCall& call : calls) sum += call.calls;
  return sum;
}

ModelCatalogue ModelCatalogue::load(const std::filesystem::path& data_dir) {
  const std::filesystem::path path = data_dir / "timm_models.json";
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorCode::kFailure,
                formatted("the shipped models cannot be read from {}: {}; is the installation "
                          "complete?",
                          path.string(), why));
  };
  ModelCatalogue catalogue;
  try {
    const json document = read_document(path);
    catalogue.models_ = read_models(document);
    catalogue.source_ = document.at("source").get<std::string>();
  } catch (const json::exception& error) {
    fail("it is not as this version reads it: " + json_fault(error.what()));
  } catch (const Error& error) {
    fail(error.what());
  }
  return catalogue;
}

std::vector<std::string> ModelCatalogue::names() const {
  std::vector<std::string> names;
  for (const Model& model : models_) names.push_back(model.name);
  return names;
}

const Model& ModelCatalogue::find(std::string_view name) const {
  const std::string_view wanted = architecture_name(name);
  const auto it = std::ranges::find(models_, wanted, &Model::name);
  if (it != models_.end()) return *it;
  const auto nearest = nearest_name(wanted, names());
  throw Error(
      ErrorCode::kUsage,
      formatted("there is no model {} among the {} of the catalogue; {}'vitune models' lists "
                "them, and what others ask is given as text (docs/problems.md)",
                in_quotes(name), models_.size(),
                nearest ? formatted("did you mean {}? ", *nearest) : ""));
}

std::vector<const Model*> ModelCatalogue::matching(const std::string& pattern) const {
  const std::string glob = is_glob(pattern) ? pattern : "*" + pattern + "*";
  std::vector<const Model*> found;
  for (const Model& model : models_) {
    if (fnmatch(glob.c_str(), model.name.c_str(), 0) == 0) found.push_back(&model);
  }
  return found;
}

bool is_glob(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

std::vector<ModelProblem> model_problems(const Model& model, std::int64_t images,
                                         ElementType dtype) {
  std::vector<ModelProblem> problems;
  for (const ModelCall& call : model.calls) {
    if (!call.unsupported.empty()) continue;
    ModelProblem added{scaled(call, images, dtype),
                       times_images(call.calls, call.each_image ? images : 1)};
    // Calls that differ for two images may be the same for one: their strides of b do not matter.
    const auto same = std::ranges::find(problems, added.problem, &ModelProblem::problem);
    if (same == problems.end()) {
      problems.push_back(std::move(added));
    } else {
      same->calls += added.calls;
    }
  }
  return problems;
}

std::vector<NamedProblem> named_model_problems(const Model& model, std::int64_t images,
                                               ElementType dtype) {
  const std::vector<ModelProblem> problems = model_problems(model, images, dtype);
  std::vector<NamedProblem> named;
  for (const ModelProblem& problem : problems) {
    const std::string number = problems.size() == 1 ? "" : formatted(" #{}", named.size() + 1);
    named.push_back({formatted("{}{} b{} ({}x)", model.name, number, images, problem.calls),
                     model.name,
                     problem.problem,
                     {},
                     {}});
  }
  return named;
}

std::string unsupported_calls(const Model& model) {
  std::vector<std::string> reasons;
  std::int64_t count = 0;
  for (const ModelCall& call : model.calls) {
    if (call.unsupported.empty()) continue;
    count += call.calls;
    reasons.push_back(formatted("{} ({}x)", call.unsupported, call.calls));
  }
  if (reasons.empty()) return "";
  return formatted("{} of the {} attention calls of {} are outside what the kernels do: {}", count,
                   model.layers(), model.name, fmt::join(reasons, "; "));
}

}  // namespace vitune
