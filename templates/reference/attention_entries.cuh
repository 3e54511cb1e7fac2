// templates/reference/attention_entries.cuh -- Entry points of attention's judge and yardstick.
#pragma once

#include "reference/attention_reference.cuh"

// Two CTAs per SM hide the barriers of the judge.
extern "C" __global__ void __launch_bounds__(256, 2)
    vitune_attention_reference(const __grid_constant__ vitune::ReferenceParams params) {
  vitune::attention_reference<double>(params);
}

extern "C" __global__ void __launch_bounds__(256, 2)
    vitune_attention_plain16(const __grid_constant__ vitune::ReferenceParams params) {
  vitune::attention_reference<float>(params);
}
