// catalogue/model_catalogue.h -- The attention problems of known models, by model name.
//
// Read from data/timm_models.json, which docs/problems.md describes. Immutable after load(); any
// thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "catalogue/problem_set.h"
#include "generator/attention/problem.h"

namespace vitune {

// The operator whose calls the catalogue lists.
inline constexpr char kModelOperator[] = "attention";

// One call of it in a model.
struct ModelCall {
  std::int64_t calls = 0;   // in one forward pass; per image if each_image
  bool each_image = false;  // the problem is that of one image, however many there are
  std::string text;         // as in the file: bf16, two images (one if each_image)
  std::string unsupported;  // why the kernels do not take it; empty if they do
  AttentionProblem traced;  // of `text`; meaningless if unsupported
};

struct Model {
  std::string name;
  std::vector<ModelCall> calls;  // at least one; different problems, in the order of the file

  // Attention calls of one forward pass over one image.
  std::int64_t layers() const;
};

// What a model asks for some number of images.
struct ModelProblem {
  AttentionProblem problem;
  std::int64_t calls = 0;  // in one forward pass
};

class ModelCatalogue {
 public:
  // Reads `data_dir`/timm_models.json. Throws Error(kFailure) if it is missing or not the shipped
  // one.
  static ModelCatalogue load(const std::filesystem::path& data_dir);

  const std::vector<Model>& models() const { return models_; }
  std::vector<std::string> names() const;  // sorted
  // Where the calls come from, for people: "timm 1.0.20", for example.
  const std::string& source() const { return source_; }

  // The model of this name; "timm/" before it and the tag behind a dot are left out. Throws
  // Error(kUsage) with the nearest name if there is none such.
  const Model& find(std::string_view name) const;

  // The models whose name matches a glob ("vit_base*") or contains a word; may be empty.
  std::vector<const Model*> matching(const std::string& pattern) const;

 private:
  std::vector<Model> models_;  // sorted by name
  std::string source_;
};

// Whether `text` is a glob: has one of * ? [.
bool is_glob(std::string_view text);

// The different problems of a forward pass over `images` >= 1 images in `dtype` (kBf16 or kFp16),
// without calls that the kernels do not take. Throws Error(kUnsupported) where so many images are
// beyond their reach.
std::vector<ModelProblem> model_problems(const Model& model, std::int64_t images,
                                         ElementType dtype);

// The same with names: "vit_base_patch16_224 b32 (12x)", and "... #2 b32 (1x)" where a model has
// several. `group` is the model's name.
std::vector<NamedProblem> named_model_problems(const Model& model, std::int64_t images,
                                               ElementType dtype);

// One sentence on the calls of `model` that the kernels do not take; empty if they take all.
std::string unsupported_calls(const Model& model);

}  // namespace vitune
