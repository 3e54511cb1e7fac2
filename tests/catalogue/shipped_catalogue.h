// tests/catalogue/shipped_catalogue.h -- The models of data/, and the error that an action throws.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "catalogue/model_catalogue.h"
#include "core/error.h"

namespace vitune::test {

inline const std::filesystem::path kSource = VITUNE_SOURCE_DIR;
inline const std::filesystem::path kData = kSource / "data";

// Read once.
inline const ModelCatalogue& catalogue() {
  static const ModelCatalogue kCatalogue = ModelCatalogue::load(kData);
  return kCatalogue;
}

// The message of the error that `action` throws, whose code must be `code`.
inline std::string failure(const std::function<void()>& action, ErrorCode code) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace vitune::test
