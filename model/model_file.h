// model/model_file.h -- A model file: its tensors, its metadata, and where in it they are.
//
// A safetensors file is anyone's: it chooses numbers and names, never code. What is read of it is
// bounded by its own size before anything is allocated. No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/digest.h"
#include "core/unique_fd.h"

namespace vitune {

inline constexpr int kModelFormat = 1;
inline constexpr std::int64_t kMaxHeaderBytes = std::int64_t{16} << 20;
inline constexpr std::int64_t kMaxGraphBytes = std::int64_t{4} << 20;
inline constexpr std::size_t kMaxMetadataText = std::size_t{1} << 20;  // bytes; but the graph's
inline constexpr std::size_t kMaxModelTensors = 20'000;
inline constexpr std::size_t kMaxTensorDims = 8;
inline constexpr std::size_t kMaxTensorName = 200;  // bytes

// A tensor of the file. `type` is one of "bf16", "fp16", "fp32", "bool", "u8".
struct StoredTensor {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;  // of positive extents
  std::int64_t begin = 0;           // its bytes, counted from the first tensor's
  std::int64_t end = 0;
};

struct ModelContainer {
  std::filesystem::path path;
  std::int64_t bytes = 0;             // of the whole file
  std::int64_t header_bytes = 0;      // of the header's text, behind its length
  std::vector<StoredTensor> tensors;  // in the order in which they lie
  std::map<std::string, std::string> metadata;
  std::shared_ptr<const UniqueFd> handle;  // the opened file, whatever has its path by now

  // The text of that key; empty if the file has none.
  const std::string& text(const std::string& key) const;
};

// Reads the header of a file and holds every claim in it against the file's size. Throws
// Error(kUsage) for what is no sound model file, Error(kUnsupported) for a newer format; each
// message begins with the path and says what to do.
ModelContainer load_model_file(const std::filesystem::path& path);

// Reads bytes of the file's tensors, from `begin` on, counted as StoredTensor::begin is, which with
// `size` must be inside of them. It reads what load_model_file() opened, also where another file
// has the path by now. Throws Error(kUsage) where that was cut short meanwhile, or cannot be read.
void read_model_bytes(const ModelContainer& file, std::int64_t begin, void* to, std::size_t size);

// The bytes of an element of one of StoredTensor's types; 0 for any other.
std::int64_t model_type_bytes(const std::string& type);

enum class DigestCheck {
  kSame,
  kAbsent,   // the file has none, or it was written again by another program
  kDiffers,  // a byte is another one than when the file was made
};

// Reads the whole file, as read_model_bytes() does, in pieces of bounded size, and compares it with
// its digest. That takes time in proportion to the file. Throws Error(kUsage) where it has another
// size by now.
DigestCheck check_model_digest(const ModelContainer& file);

}  // namespace vitune
