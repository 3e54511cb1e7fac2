// cli/verbs/cmd_models.cpp -- vitune models: models whose problems are known, and model files.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "catalogue/model_catalogue.h"
#include "catalogue/model_problems.h"
#include "cli/arguments/data_files.h"
#include "cli/arguments/model_inputs.h"
#include "cli/arguments/options.h"
#include "cli/arguments/session.h"
#include "cli/output/results.h"
#include "cli/verbs/show_model_file.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

namespace po = boost::program_options;
using nlohmann::ordered_json;

void describe_models(po::options_description& options) {
  add_switch(options, "problems", "the problems of each model, with how often a pass asks them");
  add_switch(options, "names", "the names alone, one per line");
  add_model_input_options(options);
}

// The models that any of the words or globs matches, all without one; in the catalogue's order.
std::vector<const Model*> chosen_models(const ModelCatalogue& catalogue,
                                        const std::vector<std::string>& patterns) {
  if (patterns.empty()) return catalogue.matching("*");
  std::vector<const Model*> chosen;
  for (const std::string& pattern : patterns) {
    const std::vector<const Model*> found = catalogue.matching(pattern);
    // A name with its hub's prefix or tag, or an error that says which name is near.
    if (found.empty()) chosen.push_back(&catalogue.find(pattern));
    for (const Model* model : found) {
      if (std::ranges::find(chosen, model) == chosen.end()) chosen.push_back(model);
    }
  }
  std::ranges::sort(chosen, {}, &Model::name);
  return chosen;
}

struct Summary {
  std::set<std::int64_t> tokens, head_sizes;  // query rows and d of the calls within reach
  int problems = 0;
};

Summary summary_of(const Model& model) {
  Summary summary;
  for (const ModelCall& call : model.calls) {
    if (!call.unsupported.empty()) continue;
    ++summary.problems;
    summary.tokens.insert(call.traced.nq);
    summary.head_sizes.insert(call.traced.d);
  }
  return summary;
}

// "197", "49,196", or "16..3136" for more than three.
std::string short_text(const std::set<std::int64_t>& values) {
  if (values.empty()) return "-";
  if (values.size() <= 3) return joined(values, ",");
  return formatted("{}..{}", *values.begin(), *values.rbegin());
}

std::int64_t unsupported_count(const Model& model) {
  std::int64_t count = 0;
  for (const ModelCall& call : model.calls) count += call.unsupported.empty() ? 0 : call.calls;
  return count;
}

ordered_json model_json(const Model& model) {
  const Summary summary = summary_of(model);
  ordered_json entry = {{"name", model.name},
                        {"problems", summary.problems},
                        {"layers", model.layers()},
                        {"tokens", summary.tokens},
                        {"head_sizes", summary.head_sizes},
                        {"unsupported_calls", unsupported_count(model)}};
  entry[kModelOperator] = ordered_json::array();
  for (const ModelCall& call : model.calls) {
    entry[kModelOperator].push_back(
        {{"calls", call.calls}, {"problem", call.text}, {"each_image", call.each_image}});
    if (!call.unsupported.empty()) entry[kModelOperator].back()["unsupported"] = call.unsupported;
  }
  return entry;
}

int show_models(const Session& session, const std::vector<const Model*>& models,
                ordered_json document) {
  Table table;
  table.column("model").column("problems", Align::kRight).column("layers", Align::kRight);
  table.column("tokens", Align::kRight).column("head size", Align::kRight);
  table.column("outside", Align::kRight).if_room();
  document["models"] = ordered_json::array();
  for (const Model* model : models) {
    const Summary summary = summary_of(*model);
    const std::int64_t outside = unsupported_count(*model);
    table.row({model->name, formatted("{}", summary.problems), formatted("{}", model->layers()),
               short_text(summary.tokens), short_text(summary.head_sizes),
               outside == 0 ? "" : formatted("{}", outside)});
    document["models"].push_back(model_json(*model));
  }
  session.console.show(table, document, "no model is known");
  return 0;
}

// The problems of a pass that the options ask for, as sort_by_share() orders them.
std::vector<ModelProblem> asked_problems(const Model& model, std::int64_t images,
                                         const ModelInput& input) {
  std::vector<ModelProblem> problems = model_problems(model, images, input.dtype, input.asked_by);
  std::erase_if(problems, [&](const ModelProblem& problem) {
    return !is_asked(input, problem.problem->operator_name());
  });
  sort_by_share(problems);
  return problems;
}

// "12.3 %", and "< 0.1 %" rather than none.
std::string share_text(const ModelProblem& problem) {
  if (problem.is_second) return "second";
  const double share = problem.share;
  return share > 0 && share < 0.0005 ? "< 0.1 %" : formatted("{:.1f} %", 100 * share);
}

int show_problems(const Session& session, const std::vector<const Model*>& models,
                  ordered_json document) {
  const ModelInput input = model_input(session);
  Table table;
  table.column("model").heading().column("batch", Align::kRight).column("calls", Align::kRight);
  table.column("share", Align::kRight).column("problem");
  document["problems"] = ordered_json::array();
  for (const Model* model : models) {
    for (const std::int64_t images : input.images) {
      for (const ModelProblem& problem : asked_problems(*model, images, input)) {
        const std::string& text = problem.problem->text();
        table.row({model->name,
                   formatted("{}", images),
                   formatted("{}", problem.calls),
                   {share_text(problem), {formatted("{:.6f}", problem.share)}},
                   text});
        document["problems"].push_back({{"model", model->name},
                                        {"batch", images},
                                        {"operator", problem.problem->operator_name()},
                                        {"calls", problem.calls},
                                        {"floor_us", problem.floor_us},
                                        {"share", problem.share},
                                        {"second", problem.is_second},
                                        {"problem", text}});
      }
    }
    const std::string missing = unsupported_calls(*model, input);
    if (!missing.empty()) session.console.log(LogLevel::kInfo, missing);
  }
  const std::string left_out = calls_without_operator(models, input.asked_by);
  if (!left_out.empty() && input.operators.empty()) {
    session.console.log(LogLevel::kInfo, left_out);
  }
  session.console.show(table, document, "the kernels take none of these calls");
  return 0;
}

// A file alone: its nodes are of one model.
int run_of_file(Session& session) {
  session.refuse({"names", "problems", "dtype", "operator", "as"},
                 "does not go with a model file, which says all of that itself");
  if (session.operands.size() != 1) {
    throw Error(ErrorCode::kUsage, "name one model file, and no model beside it");
  }
  return show_model_file(session, session.operands.front());
}

int run_models(Session& session) {
  if (std::ranges::any_of(session.operands, names_model_file)) return run_of_file(session);
  if (session.has("names") && session.has("problems")) {
    throw Error(ErrorCode::kUsage, "choose one of --names and --problems");
  }
  if (!session.has("problems")) {
    session.refuse({"batch", "dtype", "operator", "as"},
                   "belongs to --problems: models are listed for any batch");
  }
  if (session.has("names")) {
    session.refuse({"json", "csv", "md"}, "does not go with --names, which prints plain lines");
  }
  const ModelCatalogue catalogue = ModelCatalogue::load(require_data_dir(session));
  const std::vector<const Model*> models = chosen_models(catalogue, session.operands);
  if (session.has("names")) {
    for (const Model* model : models) session.console.print(model->name + "\n");
    return 0;
  }
  ordered_json document = new_document("models");
  document["source"] = catalogue.source();
  return session.has("problems") ? show_problems(session, models, std::move(document))
                                 : show_models(session, models, std::move(document));
}

}  // namespace

Verb models_verb() {
  return {
      "models",
      "List the models whose problems are known by name",
      "[MODEL... | FILE]",
      "MODEL is a word of the name or a glob. Layers are the places that attend in one pass\n"
      "over one image; tokens are rows of queries (of one window, where a model has windows);\n"
      "those of them outside what the kernels do are counted under 'outside'. --problems has\n"
      "every operator's, with the share of what their floors on an H200 add up to; 'second' is\n"
      "asked for where another one of the same layers is not tuned or not faster.\n"
      "FILE is what vitune.export() wrote (.safetensors, .vitune, or any path): its nodes,\n"
      "the problems that they ask for --batch (1), what serves each here, licence, digest.\n"
      "Examples:\n"
      "  vitune models 'vit_base*'\n"
      "  vitune models --problems swin_tiny_patch4_window7_224 --batch 32\n"
      "  vitune models vit_b.safetensors --batch 32\n"
      "  vitune tune --model vit_base_patch16_224 --batch 1,32",
      describe_models,
      run_models};
}

}  // namespace vitune
