// model/image_mixing.h -- Whether the results of an image depend on that image alone.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "model/graph.h"

namespace vitune {

// Why a pass cannot be of fewer images than its batch, the rest of whose rows hold anything; empty:
// the results of each image are made of its own rows. Holds of every tensor that grows with the
// batch that its first extent alone does, and of every operand that each image's share lies within
// the image's rows; what it cannot tell is a reason. `graph`: a sound one.
std::string why_images_mix(const ModelGraph& graph);

}  // namespace vitune
