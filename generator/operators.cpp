// generator/operators.cpp -- The list of operators.
#include <array>

#include "generator/attention/operator.h"

namespace vitune {

std::span<const Operator* const> operators() {
  static const std::array all = {
      &attention(),
  };
  return all;
}

}  // namespace vitune
