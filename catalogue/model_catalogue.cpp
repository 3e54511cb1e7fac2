// catalogue/model_catalogue.cpp -- Finds models by name.
// SPDX-License-Identifier: Apache-2.0
#include "catalogue/model_catalogue.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "catalogue/hub_names.h"
#include "catalogue/model_files.h"
#include "core/error.h"
#include "core/format.h"
#include "core/nearest_name.h"
#include "generator/problem_words.h"

namespace vitune {
namespace {

// "timm/vit_base_patch16_224.augreg_in21k" is what hubs call vit_base_patch16_224.
std::string_view architecture_name(std::string_view name) {
  constexpr std::string_view kHub = "hf-hub:", kOwner = "timm/";
  if (name.starts_with(kHub)) name.remove_prefix(kHub.size());
  if (name.starts_with(kOwner)) name.remove_prefix(kOwner.size());
  return name.substr(0, name.find('.'));
}

}  // namespace

std::int64_t Model::layers() const {
  std::int64_t sum = 0;
  for (const ModelCall& call : calls) sum += call.calls;
  return sum;
}

ModelCatalogue ModelCatalogue::load(const std::filesystem::path& data_dir) {
  ModelCatalogue catalogue;
  try {
    ModelFile file = read_model_file(data_dir / "timm_models.json");
    read_asked_calls(data_dir / "timm_calls.json", file.models);
    catalogue.models_ = std::move(file.models);
    catalogue.source_ = std::move(file.source);
  } catch (const Error& error) {
    throw Error(ErrorCode::kFailure,
                formatted("the shipped models cannot be read: {}; is the installation complete?",
                          error.what()));
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
  throw Error(
      ErrorCode::kUsage,
      formatted("there is no model {} among the {} of the catalogue; {}'vitune models' lists "
                "them, and what others ask is given as text (docs/problems.md)",
                in_quotes(name), models_.size(), near_names(name)));
}

std::string ModelCatalogue::near_names(std::string_view name) const {
  if (const std::string_view known = timm_name_of(name); !known.empty()) {
    return formatted("it is timm's {}: say that; ", known);
  }
  const std::string wanted(architecture_name(name));
  const bool is_part = !wanted.empty() && !is_glob(wanted);
  const std::vector<const Model*> having = is_part ? matching(wanted) : std::vector<const Model*>();
  if (having.size() > 1) {
    const auto begins = std::ranges::find_if(
        having, [&](const Model* model) { return model->name.starts_with(wanted); });
    return formatted("{} have it in the name, as {}; ", having.size(),
                     begins == having.end() ? having.front()->name : (*begins)->name);
  }
  // Others' names of the same models: "google/vit-base-patch16-224".
  std::string word(wanted.substr(wanted.rfind('/') + 1));
  std::ranges::replace(word, '-', '_');
  const std::optional<std::string> nearest =
      having.empty() ? nearest_name(word, names()) : having.front()->name;
  return nearest ? formatted("did you mean {}? ", *nearest) : "";
}

std::vector<const Model*> ModelCatalogue::matching(const std::string& pattern) const {
  const std::string glob = is_glob(pattern) ? pattern : "*" + pattern + "*";
  const auto whole = std::ranges::find(models_, pattern, &Model::name);
  if (whole != models_.end()) return {&*whole};
  std::vector<const Model*> found;
  for (const Model& model : models_) {
    if (fnmatch(glob.c_str(), model.name.c_str(), 0) == 0) found.push_back(&model);
  }
  return found;
}

bool is_glob(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

}  // namespace vitune
