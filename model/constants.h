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

// The bytes of a buffer of kind kWeights or kConstant of a model that was bound to the file. 16-bit
// numbers may become fp32; other changes of type are not asked for. Throws Error(kUsage) where the
// file was cut short meanwhile.
std::vector<std::byte> weight_bytes(const ModelContainer& file, const ModelBuffer& buffer);

}  // namespace vitune
