// catalogue/model_catalogue.h -- What known models call, by model name.
//
// Read from timm_models.json (calls of attention) and timm_calls.json (what vitune is asked for, by
// who asks) of the data folder, which docs/problems.md describes. Immutable after load(); any
// thread.
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

// For which layers a call is asked, by the rows of its text (m).
enum class Rows { kAny, kFew, kMany };

// A call that a pass makes to vitune.
struct AskedCall {
  std::int64_t calls = 0;   // in one forward pass; per image if each_image
  std::string text;         // for any images and type: "linear dtype m=197*images n=768 k=768 bias"
  bool each_image = false;  // the problem is that of one image, however many there are
  // It is asked for beside another one of the list, for the same layers: where that is not tuned,
  // is not faster, or has no kernel on a GPU.
  bool is_second = false;
  Rows rows = Rows::kAny;     // kFew: for at most few_rows rows alone; kMany: for more
  std::int64_t few_rows = 0;  // meaningless if kAny

  // The first word of the text.
  std::string operator_name() const { return text.substr(0, text.find(' ')); }
};

// Calls that vitune does not take.
struct OutsideCall {
  std::int64_t calls = 0;
  std::string operator_name;
  std::string reason;  // why the kernels of that operator do not; empty: vitune has none such
};

struct Model {
  std::string name;
  std::vector<ModelCall> calls;      // different problems, in the order of the file; may be none
  std::vector<AskedCall> compiled;   // what vitune.compile() asks, in the order of a forward pass
  std::vector<AskedCall> trained;    // what a step of it asks in training; empty: not known
  std::vector<AskedCall> norms;      // what vitune.torch.install() asks beside `calls`
  std::vector<OutsideCall> outside;  // what vitune.compile() leaves to PyTorch

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

  // The models whose name matches a glob ("vit_base*") or contains a word, which as a whole name is
  // that model alone; may be empty.
  std::vector<const Model*> matching(const std::string& pattern) const;

 private:
  // The part of a message that suggests similar names; ends in a space, or is empty.
  std::string near_names(std::string_view name) const;

  std::vector<Model> models_;  // sorted by name
  std::string source_;
};

// True if `text` is a glob: has one of * ? [.
bool is_glob(std::string_view text);

}  // namespace vitune
