// cli/arguments/model_inputs.cpp -- From names of models to the problems of a batch.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/model_inputs.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "catalogue/model_catalogue.h"
#include "catalogue/model_problems.h"
#include "cli/arguments/data_files.h"
#include "cli/arguments/options.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/operator.h"
#include "model/asked_problems.h"
#include "model/check.h"

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

std::vector<std::string> parse_operators(const std::string& text) {
  std::vector<std::string> names;
  for (const std::string& part : split_commas(text)) {
    if (find_operator(part) == nullptr) {
      throw Error(ErrorCode::kUsage, formatted("--operator '{}' is not one of {}", part,
                                               joined(operator_names(), ", ")));
    }
    names.push_back(part);
  }
  if (names.empty()) {
    throw Error(ErrorCode::kUsage,
                formatted("--operator names none; give some of {}", joined(operator_names(), ",")));
  }
  return names;
}

// True if an operand can be the name of a model, or a glob of some: a problem has sizes ("b=32"),
// and whoever begins one may have forgotten them.
bool is_model_name(const std::string& operand) {
  const bool begins_problem =
      operand == "bf16" || operand == "fp16" || find_operator(operand) != nullptr;
  return !operand.empty() && !begins_problem && operand.find_first_of(" =\t\n") == operand.npos;
}

// A problem's words behind the name of a model: its images and its type are options.
void check_no_words_beside_a_model(const Session& session) {
  const std::string& name = session.operands.front();
  const auto data_dir = find_data_dir(session);
  if (!is_model_name(name) || !data_dir) return;
  if (ModelCatalogue::load(*data_dir).matching(name).empty()) return;
  throw Error(ErrorCode::kUsage,
              formatted("'{}' stands behind the model {}: a model's images and type are options, "
                        "for example: {} --batch 32 --dtype bf16",
                        session.operands[1], name, name));
}

// Those of --model, then those among the operands.
std::vector<std::string> model_names(const Session& session) {
  std::vector<std::string> names = session.texts("model");
  std::ranges::move(named_operands(session).models, std::back_inserter(names));
  return names;
}

// An option that chooses the batch must not be dropped silently.
void check_input_is_used(const Session& session) {
  if (names_models(session)) return;
  session.refuse({"batch", "dtype", "operator", "as"},
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
  for (const std::int64_t images : input.images) {
    std::ranges::move(named_model_problems(model, images, input), std::back_inserter(problems));
  }
  const std::string missing = unsupported_calls(model, input);
  if (!missing.empty()) console.log(LogLevel::kInfo, missing);
}

std::vector<ModelProblem> problems_of_file(const ModelContainer& file, const ModelGraph& graph,
                                           std::int64_t images) {
  std::vector<ModelProblem> problems;
  for (const AskedProblem& asked : session_problems(file, graph, images)) {
    problems.push_back({asked.problem, asked.calls, 0, 0, asked.is_second});
  }
  add_shares(problems);
  return problems;
}

void add_file(const std::string& path, const ModelInput& input,
              std::vector<NamedProblem>& problems) {
  const ModelContainer file = load_model_file(path);
  const ModelGraph graph = read_model_graph(file.text("vitune.graph"), path);
  require_sound(file, graph, 1);
  const std::string name = std::filesystem::path(path).filename().string();
  for (const std::int64_t images : input.images) {
    std::ranges::move(named_problems(name, problems_of_file(file, graph, images), images, input),
                      std::back_inserter(problems));
  }
}

// Why models gave no problem.
std::string nothing_to_take(const std::vector<std::string>& models, const ModelInput& input) {
  const std::string whose =
      models.size() == 1 ? models.front() : formatted("any of {} models", models.size());
  if (input.asked_by == AskedBy::kTrain && input.operators.empty()) {
    return formatted(
        "what {} asks in training is not in the catalogue: vitune.tune(model, images, train=True) "
        "tunes what a step of it asks",
        whose);
  }
  return formatted(
      "no call of {} is one that the kernels{} take", whose,
      input.operators.empty() ? "" : formatted(" of {}", joined(input.operators, " or ")));
}

// Who asked for some operators knows that there are others.
void tell_of_left_out(const Session& session, const ModelInput& input, const std::string& what) {
  if (!what.empty() && input.operators.empty()) session.console.log(LogLevel::kInfo, what);
}

}  // namespace

void add_model_input_options(po::options_description& options) {
  add_value(options, "batch", "LIST", "images per forward pass of a model, commas between", "1,32");
  add_value(options, "dtype", "NAME", "type of a model: bf16 or fp16", "bf16");
  add_value(options, "as", "WAY",
            formatted("who asks for a model's problems: {} (vitune.compile, its steps of "
                      "training, or vitune.torch.install)",
                      joined(asked_by_names(), ", ")),
            "compile");
  add_value(options, "operator", "LIST",
            formatted("the calls of these operators of a model alone, commas between: {}; default: "
                      "all",
                      joined(operator_names(), ", ")));
}

void add_model_options(po::options_description& options) {
  add_list(options, "model,m", "MODEL",
           "the problems of a model of timm, for example vit_base_patch16_224, or of all that "
           "match a glob ('vitune models' lists them), or of a model file; may be repeated");
  add_model_input_options(options);
}

ModelInput model_input(const Session& session) {
  ModelInput input{parse_batches(session.text("batch")),
                   parse_dtype(session.text("dtype")),
                   {},
                   asked_by_from_name(session.text("as"))};
  if (session.has("operator")) input.operators = parse_operators(session.text("operator"));
  return input;
}

Operands named_operands(const Session& session) {
  const std::vector<std::string>& given = session.operands;
  // vitune tune bf16 b=32 h=12 n=197 d=64: the shell has cut one problem into words.
  const auto has_space = [](const std::string& text) { return text.find(' ') != text.npos; };
  if (given.size() > 1 && std::ranges::none_of(given, has_space) &&
      !std::ranges::all_of(given, is_model_name)) {
    check_no_words_beside_a_model(session);
    return {{}, {joined(given, " ")}};
  }
  Operands operands;
  for (const std::string& text : given) {
    (is_model_name(text) ? operands.models : operands.texts).push_back(text);
  }
  return operands;
}

bool names_models(const Session& session) {
  const std::vector<std::string> presets = session.texts("preset");
  return !model_names(session).empty() || std::ranges::any_of(presets, is_preset_of_models);
}

bool names_model_file(const std::string& name) {
  if (name.ends_with(".safetensors") || name.ends_with(".vitune")) return true;
  std::error_code ignored;  // models have a hub's prefix: "timm/vit_base_patch16_224"
  return name.find('/') != std::string::npos && std::filesystem::is_regular_file(name, ignored);
}

std::vector<std::string> named_model_files(const Session& session) {
  std::vector<std::string> names = model_names(session);
  std::erase_if(names, [](const std::string& name) { return !names_model_file(name); });
  return names;
}

std::vector<NamedProblem> model_inputs(const Session& session) {
  check_input_is_used(session);
  std::vector<NamedProblem> problems;
  std::vector<std::string> names = model_names(session);
  if (names.empty()) return problems;
  const std::vector<std::string> files = named_model_files(session);
  if (files.size() == names.size()) {
    session.refuse({"dtype", "as"}, "does not go with a model file, which says that itself");
  }
  const ModelInput input = model_input(session);
  for (const std::string& file : files) add_file(file, input, problems);
  std::erase_if(names, names_model_file);
  std::optional<ModelCatalogue> catalogue;
  if (!names.empty()) catalogue = ModelCatalogue::load(require_data_dir(session));
  std::vector<const Model*> models;
  for (const std::string& name : names) {
    std::ranges::move(chosen_models(*catalogue, name), std::back_inserter(models));
  }
  for (const Model* model : models) add_model(*model, input, session.console, problems);
  if (problems.empty()) {
    std::vector<std::string> all = files;
    for (const Model* model : models) all.push_back(model->name);
    throw Error(ErrorCode::kUnsupported, nothing_to_take(all, input));
  }
  if (!models.empty()) {
    tell_of_left_out(session, input, calls_without_operator(models, input.asked_by));
  }
  return problems;
}

std::vector<NamedProblem> preset_inputs(const Session& session, const std::string& name) {
  const std::filesystem::path data_dir = require_data_dir(session);
  const ModelInput input = model_input(session);
  std::vector<NamedProblem> problems = preset(name, data_dir, input);
  if (!is_preset_of_models(name)) return problems;
  if (problems.empty()) {
    throw Error(ErrorCode::kUnsupported, formatted("no call of preset {} is one of {}", name,
                                                   joined(input.operators, " or ")));
  }
  tell_of_left_out(session, input, left_out_of_preset(name, data_dir, input));
  return problems;
}

}  // namespace vitune
