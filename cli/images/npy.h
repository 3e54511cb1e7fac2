// cli/images/npy.h -- NumPy's files of numbers: read by pieces, and written.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace vitune {

// A file of float32 in C order ("<f4"), of one dimension or more, the first of which counts rows.
// One thread.
class NpyReader {
 public:
  // Throws Error(kUsage) for what is no such file, or shorter than its shape says.
  explicit NpyReader(const std::filesystem::path& path);

  const std::vector<std::int64_t>& shape() const { return shape_; }
  // The next `rows` rows, of which as many must be left.
  std::vector<float> read(std::int64_t rows);

 private:
  std::filesystem::path path_;
  std::ifstream file_;
  std::vector<std::int64_t> shape_;
  std::int64_t row_values_ = 1;
};

// Writes rows of float32; the number of rows is put in at the end. One thread.
class NpyWriter {
 public:
  // Throws Error(kFailure) where the file cannot be made.
  explicit NpyWriter(const std::filesystem::path& path, std::vector<std::int64_t> row_shape);

  void add(const std::vector<float>& rows);
  // Completes the file. Throws Error(kFailure) where the disk is full.
  void finish();

 private:
  std::string header() const;
  void require() const;

  std::filesystem::path path_;
  std::ofstream file_;
  std::vector<std::int64_t> shape_;  // with the number of rows so far
};

}  // namespace vitune
