// tuner/recording/recording_format.h -- Names and limits that the writer and the reader of
// recordings share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace vitune::recording_format {

inline constexpr const char* kName = "vitune recording";
inline constexpr int kVersion = 1;

inline constexpr std::size_t kMaxFileBytes = std::size_t{32} << 20;
inline constexpr std::size_t kMaxTextBytes = std::size_t{192} << 20;  // after decompression
inline constexpr std::size_t kMaxDepth = 8;
// Memory that a reader makes of the text: 16 bytes for a value, a hundred more for a text, array or
// object.
inline constexpr std::size_t kMaxValues = std::size_t{1} << 24;
inline constexpr std::size_t kMaxParts = std::size_t{1} << 19;
inline constexpr std::size_t kMaxProblems = 1000;
inline constexpr std::size_t kMaxCandidates = 200000;  // of one problem
inline constexpr std::size_t kMaxParameters = 64;
inline constexpr std::size_t kMaxText = 2048;  // characters of any one text

const std::vector<std::string>& column_names();

}  // namespace vitune::recording_format
