// catalogue/model_files.h -- The two files of the model catalogue; docs/problems.md describes them.
//
// Read like foreign input: size, depth, counts and lengths are bounded. Both functions throw
// Error(kUsage) or Error(kUnsupported) with the file and the place in it. No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "catalogue/model_catalogue.h"

namespace vitune {

inline constexpr std::int64_t kTracedImages = 2;  // of the problems of timm_models.json

struct ModelFile {
  std::vector<Model> models;  // sorted by name, no name twice
  std::string source;
};

// The models and their attention calls.
ModelFile read_model_file(const std::filesystem::path& path);

// Adds what vitune is asked for. The file must have exactly these models.
void read_asked_calls(const std::filesystem::path& path, std::vector<Model>& models);

}  // namespace vitune
