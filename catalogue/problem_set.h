// catalogue/problem_set.h -- Sets of problems: files given by the user, shipped presets.
//
// The formats are described in docs/problems.md. Files are foreign input: size, depth and count are
// bounded, and every error names the file and the line or entry. No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "generator/element_type.h"
#include "generator/named_problem.h"

namespace vitune {

// The problems of a file, in its order. Its name decides how it is read: .json (an object with
// "schema" 1 and "problems"), .jsonl and .txt (one problem text or JSON object per line); "-" is
// standard input, such lines. Throws
// Error(kUsage) if it cannot be read or is malformed, Error(kUnsupported) if a problem of it is
// outside the kernels' reach; each names file and place.
std::vector<NamedProblem> load_problem_file(const std::filesystem::path& path);

// Names of the shipped presets, in the order to list them.
std::vector<std::string> preset_names();

// One line on what the preset holds; throws Error(kUsage) naming the presets if there is none such.
std::string preset_description(std::string_view name);

// Who asks vitune for a model's problems: a way to be served has a word here and calls in the
// catalogue.
enum class AskedBy : std::uint8_t {
  kCompile,  // vitune.compile(model)
  kTrain,    // steps of training of such a model, forward and backward
  kDropIn,   // vitune.torch.install()
};

// "compile", "train", "drop-in"; in the order to list them.
std::vector<std::string> asked_by_names();
// Throws Error(kUsage) naming the ways if there is none such.
AskedBy asked_by_from_name(std::string_view name);

// For how many images, in which type, by whom and of which operators models are asked.
struct ModelInput {
  std::vector<std::int64_t> images = {1, 32};  // each >= 1
  ElementType dtype = ElementType::kBf16;      // kBf16 or kFp16
  std::vector<std::string> operators = {};     // whose problems; all if empty
  AskedBy asked_by = AskedBy::kCompile;
};

// True if the problems of this operator are asked for.
bool is_asked(const ModelInput& input, std::string_view operator_name);

// True if a preset names models, so that ModelInput counts; throws as preset_description().
bool is_preset_of_models(std::string_view name);

// The problems of a preset, read from `data_dir`/bench_problems.json, or from the catalogue of
// models for `input` if it names models. Throws Error(kUsage) naming the presets if there is none
// such, Error(kFailure) if the data file is missing or not the shipped one, Error(kUnsupported) if
// so many images are beyond the kernels' reach.
std::vector<NamedProblem> preset(std::string_view name, const std::filesystem::path& data_dir,
                                 const ModelInput& input = {});

// One line on the calls of a preset's models that are of no operator of vitune; empty if there is
// none.
std::string left_out_of_preset(std::string_view name, const std::filesystem::path& data_dir,
                               const ModelInput& input = {});

}  // namespace vitune
