// model/write_cover.cpp -- Takes a view apart into runs of a tensor's dimensions.
// SPDX-License-Identifier: Apache-2.0
#include "model/write_cover.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace vitune {

std::vector<WriteCover::Dim> WriteCover::taken_apart(
    const std::vector<std::int64_t>& extents, const std::vector<std::int64_t>& strides) const {
  std::vector<Dim> dims;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    Dim dim{strides[i], extents[i]};
    for (std::size_t own = shape_.size(); own-- > 1 && dim.extent > 1 && dim.stride > 0;) {
      // A dimension that goes through the whole of one of the tensor's goes on in the one around
      // it.
      const std::int64_t span = shape_[own] * strides_[own];
      const std::int64_t inside = dim.stride < strides_[own] ? 0 : span / dim.stride;
      if (inside < 1 || span % dim.stride != 0 || dim.extent % inside != 0) continue;
      if (inside > 1 && dim.extent > inside) {
        dims.push_back({dim.stride, inside});
        dim = {span, dim.extent / inside};
      }
    }
    if (dim.extent > 1) dims.push_back(dim);
  }
  std::ranges::sort(dims, std::greater<>(),
                    [](const Dim& dim) { return std::pair(dim.stride, dim.extent); });
  return dims;
}

WriteCover::WriteCover(std::vector<std::int64_t> shape)
    : shape_(std::move(shape)), strides_(shape_.size(), 1) {
  for (std::size_t i = shape_.size(); i-- > 1;) strides_[i - 1] = strides_[i] * shape_[i];
  for (const std::int64_t extent : shape_) elements_ *= extent;
}

bool WriteCover::are_apart(const Run& a, const Run& b) {
  const std::int64_t last_a = a.start + (a.count - 1) * a.step;
  const std::int64_t last_b = b.start + (b.count - 1) * b.step;
  if (last_a < b.start || last_b < a.start) return true;
  const std::int64_t common = std::gcd(a.step, b.step);
  return (a.start - b.start) % common != 0;
}

std::string WriteCover::add(std::int64_t offset, const std::vector<std::int64_t>& extents,
                            const std::vector<std::int64_t>& strides, std::int64_t& comparisons) {
  const std::vector<Dim> dims = taken_apart(extents, strides);
  Box box(shape_.size());
  std::size_t next = 0;
  std::int64_t count = 1;
  for (std::size_t dim = 0; dim < shape_.size(); ++dim) {
    Run& run = box[dim];
    run.start = offset / strides_[dim];
    offset %= strides_[dim];
    // The view's dimensions that step through this one: the outer of two goes on where the inner
    // one ends.
    for (; next < dims.size() && dims[next].stride >= strides_[dim]; ++next) {
      const auto [stride, extent] = dims[next];
      if (stride % strides_[dim] != 0) return "in steps across its rows";
      const std::int64_t step = stride / strides_[dim];
      if (run.count > 1 && run.step != step * extent) return "in gaps that cannot be told apart";
      run.step = step;
      run.count *= extent;
      count *= extent;
    }
    if (run.start + (run.count - 1) * run.step >= shape_[dim]) return "across the end of its rows";
  }
  if (next != dims.size()) return "an element more than once";
  comparisons -= static_cast<std::int64_t>(boxes_.size());
  if (comparisons < 0) return "in more pieces than a graph may have: join them";
  for (const Box& other : boxes_) {
    const auto meets = [&](std::size_t dim) { return !are_apart(box[dim], other[dim]); };
    bool all = true;
    for (std::size_t dim = 0; all && dim < box.size(); ++dim) all = meets(dim);
    if (all) return "where something is written already";
  }
  boxes_.push_back(std::move(box));
  written_ += count;
  return "";
}

}  // namespace vitune
