// cli/images/batch_source.cpp -- Lists files, and decodes a batch of them on all cores.
// SPDX-License-Identifier: Apache-2.0
#include "cli/images/batch_source.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "cli/images/npy.h"
#include "cli/images/preprocess.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

struct InputFile {
  fs::path path;
  bool is_named = true;  // else found in a folder
};

bool is_image_name(const fs::path& path) {
  std::string end = path.extension().string();
  std::transform(end.begin(), end.end(), end.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return end == ".jpg" || end == ".jpeg" || end == ".ppm";
}

// Images below a folder by name. Entries that cannot be looked at are passed over by the sentence
// that they leave in `skipped`.
std::vector<fs::path> images_in(const std::string& folder, std::vector<std::string>& skipped) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (!is_image_name(at->path())) continue;
    std::error_code fault;
    if (at->is_regular_file(fault)) {
      found.push_back(at->path());
    } else if (fault) {
      skipped.push_back(formatted("{}: {}", at->path().string(), fault.message()));
    }
  }
  if (error) skipped.push_back(formatted("{}: {}", folder, error.message()));
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<InputFile> files_of(const std::vector<std::string>& operands,
                                std::vector<std::string>& skipped) {
  std::vector<InputFile> files;
  for (const std::string& operand : operands) {
    std::error_code ignored;
    if (!fs::is_directory(operand, ignored)) {
      files.push_back({operand, true});
      continue;
    }
    std::vector<fs::path> found = images_in(operand, skipped);
    if (found.empty()) {
      throw Error(ErrorCode::kUsage, formatted("{}: no .jpg, .jpeg or .ppm file in it", operand));
    }
    for (fs::path& path : found) files.push_back({std::move(path), false});
  }
  return files;
}

class ImageSource : public BatchSource {
 public:
  ImageSource(std::vector<InputFile> files, const Preprocess& how, std::vector<std::string> skipped)
      : files_(std::move(files)), how_(how), skipped_(std::move(skipped)) {}

  std::int64_t count() const override { return static_cast<std::int64_t>(files_.size()); }

  InputBatch next(std::int64_t most) override {
    InputBatch batch;
    while (batch.names.empty() && at_ < files_.size()) {
      const std::size_t count = std::min(static_cast<std::size_t>(most), files_.size() - at_);
      add(batch, decode(count));
      at_ += count;
    }
    return batch;
  }
  const std::vector<std::string>& skipped() const override { return skipped_; }

 private:
  struct Decoded {
    std::vector<float> values;
    std::string fault;
  };

  Decoded decode_one(const InputFile& file) const {
    try {
      return {preprocessed(read_image(file.path), how_), ""};
    } catch (const Error& error) {
      const std::string why = error.what(), path = file.path.string();
      return {{}, why.starts_with(path) ? why : formatted("{}: {}", path, why)};
    } catch (const std::exception& error) {  // too little memory: of no other image a matter
      return {{}, formatted("{}: {}", file.path.string(), error.what())};
    }
  }

  std::vector<Decoded> decode(std::size_t count) const {
    std::vector<Decoded> results(count);
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t i = next++; i < count; i = next++) results[i] = decode_one(files_[at_ + i]);
    };
    const std::size_t threads =
        std::min<std::size_t>({count, 32, std::max(1u, std::thread::hardware_concurrency())});
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back(work);
    work();
    others.clear();
    return results;
  }

  void add(InputBatch& batch, std::vector<Decoded> decoded) {
    for (std::size_t i = 0; i < decoded.size(); ++i) {
      const InputFile& file = files_[at_ + i];
      if (!decoded[i].fault.empty()) {
        if (file.is_named) throw Error(ErrorCode::kUsage, decoded[i].fault);
        skipped_.push_back(decoded[i].fault);
        continue;
      }
      batch.names.push_back(file.path.string());
      batch.values.insert(batch.values.end(), decoded[i].values.begin(), decoded[i].values.end());
    }
  }

  const std::vector<InputFile> files_;
  const Preprocess how_;
  std::size_t at_ = 0;
  std::vector<std::string> skipped_;
};

class NpySource : public BatchSource {
 public:
  explicit NpySource(const std::string& path) : path_(path), reader_(path) {}

  std::int64_t count() const override { return reader_.shape()[0]; }
  InputBatch next(std::int64_t most) override {
    InputBatch batch;
    const std::int64_t rows = std::min(most, count() - at_);
    if (rows > 0) batch.values = reader_.read(rows);
    for (std::int64_t i = 0; i < rows; ++i) {
      batch.names.push_back(formatted("{}[{}]", path_, at_++));
    }
    return batch;
  }
  const std::vector<std::string>& skipped() const override { return none_; }
  const std::vector<std::int64_t>& shape() const { return reader_.shape(); }

 private:
  const std::string path_;
  NpyReader reader_;
  std::int64_t at_ = 0;
  const std::vector<std::string> none_;
};

}  // namespace

std::unique_ptr<BatchSource> open_inputs(const std::vector<std::string>& operands,
                                         const std::vector<std::int64_t>& shape,
                                         const std::string& preprocess, const std::string& place) {
  if (operands.size() == 1 && operands[0].ends_with(".npy")) {
    auto source = std::make_unique<NpySource>(operands[0]);
    const std::vector<std::int64_t>& found = source->shape();
    if (found.size() != shape.size() + 1 ||
        !std::equal(shape.begin(), shape.end(), found.begin() + 1)) {
      throw Error(ErrorCode::kUsage,
                  formatted("{} has the shape {}: the model takes N x {}", operands[0],
                            joined(found, " x "), joined(shape, " x ")));
    }
    return source;
  }
  const Preprocess how = read_preprocess(preprocess, place);
  if (shape != std::vector<std::int64_t>{3, how.height, how.width}) {
    throw Error(ErrorCode::kUsage, formatted("{} takes {}, not images: give them as an NPY file",
                                             place, joined(shape, " x ")));
  }
  std::vector<std::string> skipped;
  std::vector<InputFile> files = files_of(operands, skipped);
  return std::make_unique<ImageSource>(std::move(files), how, std::move(skipped));
}

}  // namespace vitune
