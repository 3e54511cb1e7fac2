// cli/images/batch_source.h -- A model's inputs in batches, of image files or an NPY file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace vitune {

// The input of one pass: rows of float32, as many as names.
struct InputBatch {
  std::vector<std::string> names;
  std::vector<float> values;
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual std::int64_t count() const = 0;
  // At most `most` inputs; none at the end. Throws Error(kUsage) for a damaged file that was named;
  // one that was found in a folder is left out, and told of by skipped().
  virtual InputBatch next(std::int64_t most) = 0;
  // Sentences about what was left out.
  virtual const std::vector<std::string>& skipped() const = 0;
};

// `operands`: image files and folders of them, or one NPY file of rows. `shape`: of one input;
// `preprocess`: the model file's text, `place` its path. Throws Error(kUsage) for inputs that do
// not fit the model.
std::unique_ptr<BatchSource> open_inputs(const std::vector<std::string>& operands,
                                         const std::vector<std::int64_t>& shape,
                                         const std::string& preprocess, const std::string& place);

}  // namespace vitune
