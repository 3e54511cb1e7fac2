// cli/arguments/model_inputs.cpp -- From names of models to the problems of a batch.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/model_inputs.h"

#include <algorithm>

#include "catalogue/model_catalogue.h"
#include "cli/arguments/data_files.h"
#include "cli/arguments/options.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

namespace po = boost::program_options;

constexpr std::int64_t kMostImages = 1 << 20;

std::vector<std::int64_t> parse_batches(const std::string& text) {
  std::vector<std::int64_t> batches;
  for (const std::string& part : split_commas(text)) {
    const std::int64_t images = parse_integer(part, 1, kMostImages, "--batch");
    if (std::ranges::find(batches, images) == batches.end()) batches.push_back(images);
  }
  if (batches.empty()) {
    throw Error(ErrorCode::kUsage, "--batch names no number of images; give for example 1,32");
  }
  return batches;
}

ElementType parse_dtype(const std::string& text) {
  if (text == "bf16") return ElementType::kBf16;
  if (text == "fp16") return ElementType::kFp16;
  throw Error(ErrorCode::kUsage, formatted("--dtype '{}' is not one of bf16, fp16", text));
}

// What was typed to choose the batch must not be dropped silently.
void check_input_is_used(const Session& session) {
  const std::vector<std::string> presets = session.texts("preset");
  if (session.has("model") || std::ranges::any_of(presets, is_preset_of_models)) return;
  session.refuse({"batch", "dtype"},
                 "belongs to --model and to presets of models; other problems say it themselves "
                 "(\"bf16 b=32 ...\")");
}

std::vector<const Model*> chosen_models(const ModelCatalogue& catalogue, const std::string& name) {
  if (!is_glob(name)) return {&catalogue.find(name)};
  std::vector<const Model*> models = catalogue.matching(name);
  if (models.empty()) {
    throw Error(ErrorCode::kUsage, formatted("no model matches '{}'; see 'vitune models'", name));
  }
  return models;
}

void add_model(const Model& model, const ModelInput& input, Console& console,
               std::vector<NamedProblem>& problems) {
  const std::size_t before = problems.size();
  for (const std::int64_t images : input.images) {
    std::ranges::move(named_model_problems(model, images, input.dtype),
                      std::back_inserter(problems));
  }
  const std::string missing = unsupported_calls(model);
  if (missing.empty()) return;
  if (problems.size() == before) throw Error(ErrorCode::kUnsupported, missing);
  console.log(LogLevel::kInfo, missing);
}

}  // namespace

void add_model_input_options(po::options_description& options) {
  add_value(options, "batch", "LIST", "images per forward pass of a model, commas between", "1,32");
  add_value(options, "dtype", "NAME", "type of a model: bf16 or fp16", "bf16");
}

void add_model_options(po::options_description& options) {
  add_list(options, "model,m", "MODEL",
           "the problems of a model of timm, for example vit_base_patch16_224, or of all that "
           "match a glob ('vitune models' lists them); may be repeated");
  add_model_input_options(options);
}

ModelInput model_input(const Session& session) {
  return {parse_batches(session.text("batch")), parse_dtype(session.text("dtype"))};
}

std::vector<NamedProblem> model_inputs(const Session& session) {
  check_input_is_used(session);
  std::vector<NamedProblem> problems;
  if (!session.has("model")) return problems;
  const ModelInput input = model_input(session);
  const ModelCatalogue catalogue = ModelCatalogue::load(require_data_dir(session));
  for (const std::string& name : session.texts("model")) {
    for (const Model* model : chosen_models(catalogue, name)) {
      add_model(*model, input, session.console, problems);
    }
  }
  return problems;
}

std::vector<NamedProblem> preset_inputs(const Session& session, const std::string& name) {
  return preset(name, require_data_dir(session), model_input(session));
}

}  // namespace vitune
