// generator/operators.cpp -- The list of operators.
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "generator/attention/operator.h"
#include "generator/attention_backward/operator.h"
#include "generator/group_norm/operator.h"
#include "generator/linear/operator.h"
#include "generator/linear_weight_grad/operator.h"
#include "generator/map/operator.h"
#include "generator/norm/operator.h"
#include "generator/norm_backward/operator.h"
#include "generator/packed_attention/operator.h"
#include "generator/window_attention/operator.h"
#include "generator/window_attention_backward/operator.h"

namespace vitune {

std::span<const Operator* const> operators() {
  static const std::array all = {
      &attention(),
      &norm(),
      &group_norm(),
      &linear(),
      &window_attention(),
      &linear_weight_grad(),
      &norm_backward(),
      &map_operator(),
      &packed_attention(),
      &attention_backward(),
      &window_attention_backward(),
  };
  return all;
}

}  // namespace vitune
