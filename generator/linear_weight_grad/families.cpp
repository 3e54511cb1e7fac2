// generator/linear_weight_grad/families.cpp -- The list of families of weight gradients.
// SPDX-License-Identifier: Apache-2.0
#include "generator/linear_weight_grad/family.h"

namespace vitune {

// By their number in kFamily, which is in stored configs: new ones come last.
GemmFamilies weight_grad_families() {
  static const GemmFamily* const all[] = {&weight_grad_sm80(), &weight_grad_sm90(),
                                          &weight_grad_cublaslt(), &weight_grad_chain(),
                                          &weight_grad_sm90_split_m()};
  return all;
}

}  // namespace vitune
