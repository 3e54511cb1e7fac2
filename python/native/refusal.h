// python/native/refusal.h -- The one exception of the operators: a status of the C interface and
// its sentence.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_PYTHON_NATIVE_REFUSAL_H_
#define VITUNE_PYTHON_NATIVE_REFUSAL_H_

#include <stdexcept>
#include <string>

#include "vitune/vitune.h"

namespace vitune::torch_ops {

class Refusal : public std::runtime_error {
 public:
  Refusal(vitune_status status, const std::string& sentence)
      : std::runtime_error(sentence), status_(status) {}
  vitune_status status() const { return status_; }

 private:
  vitune_status status_;
};

[[noreturn]] inline void refuse_argument(const std::string& sentence) {
  throw Refusal(VITUNE_INVALID_ARGUMENT, sentence);
}
[[noreturn]] inline void refuse_unsupported(const std::string& sentence) {
  throw Refusal(VITUNE_UNSUPPORTED, sentence);
}

}  // namespace vitune::torch_ops

#endif  // VITUNE_PYTHON_NATIVE_REFUSAL_H_
