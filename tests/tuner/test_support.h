// tests/tuner/test_support.h -- Worker commands and process counts for the tuner's tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/temporary_directory.h"

namespace vitune::test {

inline std::vector<std::string> fake_bench_command(const std::vector<std::string>& options = {}) {
  std::vector<std::string> command = {VITUNE_FAKE_WORKER, "bench"};
  command.insert(command.end(), options.begin(), options.end());
  return command;
}

inline std::vector<std::string> fake_compile_command() { return {VITUNE_FAKE_WORKER, "compile"}; }

inline std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

inline std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// Children of this process, running or waiting to be reaped.
inline int children() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    std::string text((std::istreambuf_iterator<char>(file)), {});
    const std::size_t at = text.rfind(')');
    if (at == std::string::npos || at + 4 >= text.size()) continue;
    count += std::stoi(text.substr(at + 4)) == getpid();
  }
  return count;
}

// The message that `action` throws, or an empty text with kFailure if it throws nothing.
template <typename Action>
Error error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kFailure, "");
}

}  // namespace vitune::test
