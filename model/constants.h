// model/constants.h -- Computes what a session keeps of a file's tensors beside them as they lie.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "model/bind.h"
#include "model/model_file.h"

namespace vitune {

// The bytes of a buffer of kind kWeights or kConstant, but no part of folded weights, of a model
// that was bound to the file. 16-bit numbers may become fp32; other changes of type are not asked
// for. Throws Error(kUsage) where the
// file was cut short meanwhile.
std::vector<std::byte> weight_bytes(const ModelContainer& file, const ModelBuffer& buffer);

// A layer's weights with those of the norm before it in them: rows of w times the norm's weight, in
// fp32 and rounded once, to the type of w; the bias and the products of w's rows with the norm's
// bias, fp32; the sums of the rounded rows, fp32.
struct FoldedWeights {
  std::vector<std::byte> weight, bias, sums;
  bool fits = true;  // all are finite, and rounding leaves of each row of the matrix what it should
  const std::vector<std::byte>& part(FoldedPart part) const;
};

// Reads the file. Throws as weight_bytes() does, and Error(kUnsupported) for a w that has no 16
// bits a number.
FoldedWeights fold_weights(const ModelContainer& file, const LayerFold& fold);

}  // namespace vitune
