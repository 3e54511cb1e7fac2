// generator/linear/families.cpp -- The list of families of linear layers.
// SPDX-License-Identifier: Apache-2.0
#include "generator/linear/family.h"

namespace vitune {

// By their number in kFamily, which is in stored configs: new ones come last.
GemmFamilies linear_families() {
  static const GemmFamily* const all[] = {&linear_sm80(), &linear_sm90(), &linear_cublaslt(),
                                          &linear_chain(), &linear_sm90_split_k()};
  return all;
}

}  // namespace vitune
