// catalogue/problem_presets.cpp -- The shipped presets: parts of
// data/bench_problems.json, and models of the catalogue.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <unordered_map>
#include <utility>

#include "catalogue/model_catalogue.h"
#include "catalogue/model_problems.h"
#include "catalogue/problem_set.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/problem_words.h"

namespace vitune {
namespace {

// A preset is a part of the benchmark problems (a group, a list of names, or, neither given, all),
// or the models whose names match a glob.
struct Preset {
  std::string_view name, description, group;
  std::span<const std::string_view> members;
  std::span<const char* const> models = {};
};

constexpr std::string_view kVitB16[] = {"ViT-B/16@224 b1", "ViT-B/16@224 b32", "ViT-B/16@224 b128"};

constexpr std::string_view kRecorded[] = {
    "ViT-B/16@224 b1",     "ViT-B/16@224 b32",       "ViT-B/16@224 b128",   "ViT-B/16@384 b32",
    "ViT-B/16@512 b32",    "ViT-H/14@224 b32",       "Swin-T st1 b32 bias", "BEiT-B b32 bias",
    "MAP pool So400m b64", "CLIP text causal77 b256"};

constexpr const char* kSwin[] = {"swin*"};
constexpr const char* kSam[] = {"sam*", "hieradet*"};
constexpr const char* kSiglip[] = {"*siglip*"};
constexpr const char* kAllModels[] = {"*"};

constexpr Preset kPresets[] = {
    {"vit-b16", "ViT-B/16 at 224 pixels, batch 1, 32 and 128", "", kVitB16},
    {"recorded", "ten problems of which full sweeps are recorded for replay", "", kRecorded},
    {"vit", "plain, windowed, causal and pooling attention without a bias", "vit", {}},
    {"bias", "Swin, BEiT, SAM and PixArt: attention with a bias", "bias", {}},
    {"long", "4,096 and 16,384 tokens", "long", {}},
    {"bench", "all 40 problems that have other implementations' times", "", {}},
    {"swin", "the Swin models of the catalogue", "", {}, kSwin},
    {"sam", "the image encoders of SAM and SAM 2 of the catalogue", "", {}, kSam},
    {"siglip", "the SigLIP models of the catalogue", "", {}, kSiglip},
    {"all", "every model of the catalogue", "", {}, kAllModels},
};

using NamedWay = std::pair<std::string_view, AskedBy>;
constexpr NamedWay kAskedBy[] = {
    {"compile", AskedBy::kCompile}, {"train", AskedBy::kTrain}, {"drop-in", AskedBy::kDropIn}};

const Preset& find_preset(std::string_view name) {
  const auto it = std::ranges::find(kPresets, name, &Preset::name);
  if (it != std::end(kPresets)) return *it;
  throw Error(ErrorCode::kUsage, formatted("there is no preset {}: use one of {}", in_quotes(name),
                                           joined(preset_names(), ", ")));
}

std::vector<NamedProblem> load_shipped(const std::filesystem::path& path) {
  try {
    return load_problem_file(path);
  } catch (const Error& error) {
    throw Error(ErrorCode::kFailure,
                formatted("the shipped problems cannot be read: {}; is the installation complete?",
                          error.what()));
  }
}

std::vector<const Model*> models_of(const Preset& wanted, const ModelCatalogue& catalogue) {
  std::vector<const Model*> models;
  for (const char* glob : wanted.models) {
    std::ranges::move(catalogue.matching(glob), std::back_inserter(models));
  }
  return models;
}

// The models' problems, each once: under the name of the first model that has it.
std::vector<NamedProblem> model_preset(const Preset& wanted, const std::filesystem::path& data_dir,
                                       const ModelInput& input) {
  const ModelCatalogue catalogue = ModelCatalogue::load(data_dir);
  const std::vector<const Model*> models = models_of(wanted, catalogue);
  std::vector<NamedProblem> chosen;
  std::unordered_map<std::string, std::size_t> known;
  for (const std::int64_t images : input.images) {
    for (const Model* model : models) {
      for (NamedProblem& problem : named_model_problems(*model, images, input)) {
        const auto [it, is_new] = known.emplace(problem.problem->text(), chosen.size());
        if (is_new) {
          chosen.push_back(std::move(problem));
        } else {
          chosen[it->second].share += problem.share;
        }
      }
    }
  }
  return chosen;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

std::string preset_description(std::string_view name) {
  return std::string(find_preset(name).description);
}

std::string left_out_of_preset(std::string_view name, const std::filesystem::path& data_dir,
                               const ModelInput& input) {
  const Preset& wanted = find_preset(name);
  if (wanted.models.empty()) return "";
  const ModelCatalogue catalogue = ModelCatalogue::load(data_dir);
  return calls_without_operator(models_of(wanted, catalogue), input.asked_by);
}

std::vector<std::string> asked_by_names() {
  std::vector<std::string> names;
  for (const auto& [name, asked_by] : kAskedBy) names.emplace_back(name);
  return names;
}

AskedBy asked_by_from_name(std::string_view name) {
  const auto it = std::ranges::find(kAskedBy, name, &NamedWay::first);
  if (it != std::end(kAskedBy)) return it->second;
  throw Error(ErrorCode::kUsage, formatted("nobody asks as {}: use one of {}", in_quotes(name),
                                           joined(asked_by_names(), ", ")));
}

bool is_asked(const ModelInput& input, std::string_view operator_name) {
  return input.operators.empty() ||
         std::ranges::find(input.operators, operator_name) != input.operators.end();
}

bool is_preset_of_models(std::string_view name) { return !find_preset(name).models.empty(); }

std::vector<NamedProblem> preset(std::string_view name, const std::filesystem::path& data_dir,
                                 const ModelInput& input) {
  const Preset& wanted = find_preset(name);
  if (!wanted.models.empty()) return model_preset(wanted, data_dir, input);
  const std::filesystem::path path = data_dir / "bench_problems.json";
  std::vector<NamedProblem> all = load_shipped(path);
  if (!wanted.group.empty()) {
    std::erase_if(all, [&](const NamedProblem& p) { return p.group != wanted.group; });
  }
  std::vector<NamedProblem> chosen;
  for (const std::string_view member : wanted.members) {
    const auto it = std::ranges::find(all, member, &NamedProblem::name);
    if (it == all.end()) {
      throw Error(ErrorCode::kFailure,
                  formatted("{} has no problem '{}', which preset {} needs: it is not the file "
                            "that this version ships",
                            path.string(), member, name));
    }
    chosen.push_back(*it);
  }
  if (wanted.members.empty()) chosen = std::move(all);
  if (chosen.empty()) {
    throw Error(ErrorCode::kFailure,
                formatted("{} has no problem of group '{}': it is not the file that this version "
                          "ships",
                          path.string(), wanted.group));
  }
  return chosen;
}

}  // namespace vitune
