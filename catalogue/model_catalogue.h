// catalogue/model_catalogue.h -- What known models call, by model name.
//
// Read from timm_models.json (attention) and timm_calls.json (everything else) of the data folder,
// which docs/problems.md describes. Immutable after load(); any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "generator/attention/problem.h"

namespace vitune {

// The operator of ModelCall.
inline constexpr char kModelOperator[] = "attention";

// One call of it in a model.
struct ModelCall {
  std::int64_t calls = 0;   // in one forward pass; per image if each_image
  bool each_image = false;  // the problem is that of one image, however many there are
  std::string text;         // as in the file: bf16, two images (one if each_image)
  std::string unsupported;  // why the kernels do not take it; empty if they do
  AttentionProblem traced;  // of `text`; meaningless if unsupported
};

// One call of another operator, which vitune may have or not.
struct OtherCall {
  std::int64_t calls = 0;  // in one forward pass
  // For any images and type: "norm dtype m=197*images d=768 weight bias".
  std::string text;

  // The first word of the text.
  std::string operator_name() const { return text.substr(0, text.find(' ')); }
};

struct Model {
  std::string name;
  std::vector<ModelCall> calls;   // at least one; different problems, in the order of the file
  std::vector<OtherCall> others;  // different texts, in the order of a forward pass

  // Attention calls of one forward pass over one image.
  std::int64_t layers() const;
};

class ModelCatalogue {
 public:
  // Reads both files of `data_dir`. Throws Error(kFailure), with the file and the place in it, if
  // one is missing or not the shipped one.
  static ModelCatalogue load(const std::filesystem::path& data_dir);

  const std::vector<Model>& models() const { return models_; }
  std::vector<std::string> names() const;  // sorted
  // Where the attention calls come from, for people: "timm 1.0.20", for example.
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

}  // namespace vitune
