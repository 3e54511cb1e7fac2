// generator/attention_backward/families.cpp -- The list of families of attention's gradients.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention_backward/family.h"

namespace vitune {

// By their number in kFamily, which is in stored configs: new ones come last.
GemmFamilies attention_backward_families() {
  static const GemmFamily* const all[] = {
      &attention_backward_sm80(), &attention_backward_sm90(), &attention_backward_sm90_bias(),
      &attention_backward_short(), &attention_backward_sm90_one_pass()};
  return all;
}

}  // namespace vitune
