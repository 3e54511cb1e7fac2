// model/constants.cpp -- Gathers views of tensors of the file, widens their numbers, folds norms.
// SPDX-License-Identifier: Apache-2.0
#include "model/constants.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "core/half.h"

namespace vitune {
namespace {

const StoredTensor& tensor_of(const ModelContainer& file, const std::string& name) {
  const auto found = std::find_if(file.tensors.begin(), file.tensors.end(),
                                  [&](const StoredTensor& each) { return each.name == name; });
  if (found == file.tensors.end()) {
    throw Error(ErrorCode::kFailure, formatted("{}: no tensor '{}'", file.path.string(), name));
  }
  return *found;
}

std::vector<std::byte> read(const ModelContainer& file, const StoredTensor& tensor) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.end - tensor.begin));
  read_model_bytes(file, tensor.begin, bytes.data(), bytes.size());
  return bytes;
}

// Writes one element, of the view's type as the buffer's.
class Writer {
 public:
  Writer(const ModelBuffer& buffer, std::vector<std::byte> from)
      : from_(std::move(from)),
        size_(static_cast<std::size_t>(model_type_bytes(buffer.from.type))),
        is_same_(buffer.type == buffer.from.type),
        is_bf16_(buffer.from.type == "bf16"),
        to_(static_cast<std::size_t>(buffer.bytes())) {}

  void put(std::int64_t element) {
    const std::byte* const source = from_.data() + static_cast<std::size_t>(element) * size_;
    if (is_same_) {
      std::memcpy(to_.data() + at_, source, size_);
      at_ += size_;
      return;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, source, sizeof(bits));
    const float value = is_bf16_ ? widened_bf16(bits) : widened_fp16(bits);
    std::memcpy(to_.data() + at_, &value, sizeof(value));
    at_ += sizeof(value);
  }
  std::vector<std::byte> take() { return std::move(to_); }

 private:
  const std::vector<std::byte> from_;
  std::size_t size_;
  bool is_same_, is_bf16_;
  std::vector<std::byte> to_;
  std::size_t at_ = 0;
};

bool can_convert(const std::string& from, const std::string& to) {
  return from == to || (to == "fp32" && (from == "bf16" || from == "fp16"));
}

// The buffer's view of its tensor, row after row.
std::vector<std::byte> gathered(const ModelContainer& file, const ModelBuffer& buffer) {
  const BatchView& view = buffer.from;
  if (!can_convert(view.type, buffer.type)) {
    throw Error(ErrorCode::kUnsupported,
                formatted("{}: '{}' is {} where a kernel reads {}", file.path.string(), buffer.name,
                          view.type, buffer.type));
  }
  Writer writer(buffer, read(file, tensor_of(file, view.of)));
  std::vector<std::int64_t> index(view.extents.size(), 0);
  std::int64_t element = view.offset;
  for (std::int64_t left = view.elements(); left > 0; --left) {
    writer.put(element);
    for (std::size_t d = index.size(); d-- > 0;) {
      element += view.strides[d];
      if (++index[d] < view.extents[d]) break;
      element -= view.strides[d] * view.extents[d];
      index[d] = 0;
    }
  }
  return writer.take();
}

using Floats = std::vector<float>;

Floats floats_of(const ModelContainer& file, const BatchView& view) {
  ModelBuffer buffer{BufferKind::kConstant, view.of, "fp32", view.elements(), view};
  const std::vector<std::byte> bytes = gathered(file, buffer);
  Floats values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::optional<Floats> floats_of(const ModelContainer& file, const std::optional<BatchView>& view) {
  return view ? std::optional(floats_of(file, *view)) : std::nullopt;
}

template <typename Number>
std::vector<std::byte> bytes_of(const std::vector<Number>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(Number));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

// Squares of what rounding to 16 bits changed in a row may be so many of its own squares: 2^-9 of
// the numbers, which numbers of fp16 that are no longer normal exceed.
constexpr double kMostRounded = 0x1p-18;

bool are_finite(const Floats& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); });
}

}  // namespace

std::vector<std::byte> weight_bytes(const ModelContainer& file, const ModelBuffer& buffer) {
  if (buffer.kind == BufferKind::kWeights) return read(file, tensor_of(file, buffer.name));
  return gathered(file, buffer);
}

const std::vector<std::byte>& FoldedWeights::part(FoldedPart part) const {
  return part == FoldedPart::kWeight ? weight : part == FoldedPart::kBias ? bias : sums;
}

FoldedWeights fold_weights(const ModelContainer& file, const LayerFold& fold) {
  const bool is_bf16 = fold.w.type == "bf16";
  if (!is_bf16 && fold.w.type != "fp16") {
    throw Error(ErrorCode::kUnsupported, formatted("{}: '{}' is {}: a norm is folded into 16 bits",
                                                   file.path.string(), fold.w.of, fold.w.type));
  }
  const Floats w = floats_of(file, fold.w);
  const auto bias = floats_of(file, fold.bias);
  const auto gain = floats_of(file, fold.norm_weight), shift = floats_of(file, fold.norm_bias);
  const auto rows = static_cast<std::size_t>(fold.w.extents[0]);
  const std::size_t columns = w.size() / rows;
  std::vector<std::uint16_t> folded(w.size());
  Floats totals(rows), sums(rows);
  bool is_exact = true;
  for (std::size_t row = 0; row < rows; ++row) {
    double total = bias ? (*bias)[row] : 0.0, sum = 0, lost = 0, squares = 0;
    for (std::size_t column = 0, at = row * columns; column < columns; ++column, ++at) {
      const float product = gain ? w[at] * (*gain)[column] : w[at];
      folded[at] = is_bf16 ? rounded_bf16(product) : rounded_fp16(product);
      const double kept = is_bf16 ? widened_bf16(folded[at]) : widened_fp16(folded[at]);
      // The kernel takes the mean times these sums away: only of what it multiplies by they are
      // exact.
      sum += kept;
      lost += (kept - product) * (kept - product);
      squares += static_cast<double>(product) * product;
      if (shift) total += static_cast<double>(w[at]) * (*shift)[column];
    }
    is_exact = is_exact && lost <= kMostRounded * squares;
    totals[row] = static_cast<float>(total);
    sums[row] = static_cast<float>(sum);
  }
  // A sum with a number that is not finite is not finite.
  return {bytes_of(folded), bytes_of(totals), bytes_of(sums),
          is_exact && are_finite(totals) && are_finite(sums)};
}

}  // namespace vitune
