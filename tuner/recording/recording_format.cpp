// tuner/recording/recording_format.cpp -- Names that the writer and the reader of recordings share.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/recording/recording_format.h"

namespace vitune::recording_format {
const std::vector<std::string>& column_names() {
  static const std::vector<std::string> names = {
      "registers",    "spill_bytes",  "shared_bytes", "compile_ms",     "max_error",
      "rms_error",    "max_bound",    "rms_bound",    "low_confidence", "cold_ns",
      "cold_low_ns",  "cold_high_ns", "cold_samples", "warm_ns",        "warm_low_ns",
      "warm_high_ns", "warm_samples"};
  return names;
}

}  // namespace vitune::recording_format
