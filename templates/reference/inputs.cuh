// templates/reference/inputs.cuh -- Random inputs, the same on every run: value i depends on (seed,
// i).
#pragma once

#include "reference/numbers.cuh"

namespace vitune {

// A normal value by the method of Box and Muller.
__device__ inline float normal_value(RefU64 hash) {
  const float radius = sqrtf(-2.f * logf(unit_interval(RefU32(hash))));
  return radius * cosf(6.28318531f * unit_interval(RefU32(hash >> 32)));
}

__device__ inline void store_element(void* data, RefU64 index, float value, int type) {
  if (type == kSupportFp32) {
    static_cast<float*>(data)[index] = value;
  } else if (type == kSupportU8) {
    static_cast<unsigned char*>(data)[index] = (unsigned char)(rintf(fminf(fmaxf(value, 0), 255)));
  } else {
    static_cast<RefU16*>(data)[index] = bits16(value, type);
  }
}

// Offsets in elements of one element of a view and of the row it is in.
struct FillPlace {
  long long row, element;
};

__device__ inline RefU64 fill_count(const FillView& target) {
  RefU64 count = 1;
  for (int i = 0; i < 4; ++i) count *= RefU64(target.extents[i]);
  return count;
}

__device__ inline FillPlace fill_place(const FillView& target, RefU64 index) {
  const RefU64 columns = RefU64(target.extents[3]), rows = RefU64(target.extents[2]);
  const RefU64 heads = RefU64(target.extents[1]);
  const RefU64 row = index / columns, head = row / rows, batch = head / heads;
  FillPlace place;
  place.row = (long long)(batch)*target.strides[0] + (long long)(head % heads) * target.strides[1] +
              (long long)(row % rows) * target.strides[2];
  place.element = place.row + (long long)(index % columns) * target.strides[3];
  return place;
}

// A value depends on its offset only, so that views whose rows overlap agree.
__device__ inline void fill_normal(const FillNormalParams& p) {
  const RefU64 count = fill_count(p.target);
  for (RefU64 i = global_thread(); i < count; i += global_threads()) {
    const long long offset = fill_place(p.target, i).element;
    const RefU64 hash = hash_of(p.seed, RefU64(offset));
    float value = p.mean + p.deviation * normal_value(hash);
    if (p.unit > 0) value = rintf(value / p.unit) * p.unit;
    if (unit_interval(RefU32(mix64(hash))) < p.infinite_share) value = reference_minus_infinity();
    const RefU64 run = hash_of(~p.seed, RefU64(offset) / 64);
    if (unit_interval(RefU32(run)) < p.masked_share)
      value = masked_value(RefU32(run >> 32), p.type);
    store_element(p.target.data, RefU64(offset), value, p.type);
  }
}

// The row at offset 0 always has keys: it may be the only one.
__device__ inline bool mask_value(const FillMaskParams& p, const FillPlace& place) {
  const bool empty = place.row != 0 && hash_of(~p.seed, RefU64(place.row)) % 8 == 0;
  return !empty && unit_interval(RefU32(hash_of(p.seed, RefU64(place.element)))) < p.share;
}

__device__ inline void fill_mask(const FillMaskParams& p) {
  const RefU64 count = fill_count(p.target);
  for (RefU64 i = global_thread(); i < count; i += global_threads()) {
    const FillPlace place = fill_place(p.target, i);
    static_cast<unsigned char*>(p.target.data)[place.element] = mask_value(p, place) ? 1 : 0;
  }
}

}  // namespace vitune
