// model/constants.cpp -- Gathers a view of a tensor of the file, and widens its numbers.
// SPDX-License-Identifier: Apache-2.0
#include "model/constants.h"

#include <algorithm>
#include <cstring>
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
  Writer(const ModelBuffer& buffer, const std::vector<std::byte>& from)
      : from_(from),
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
  const std::vector<std::byte>& from_;
  std::size_t size_;
  bool is_same_, is_bf16_;
  std::vector<std::byte> to_;
  std::size_t at_ = 0;
};

bool can_convert(const std::string& from, const std::string& to) {
  return from == to || (to == "fp32" && (from == "bf16" || from == "fp16"));
}

}  // namespace

std::vector<std::byte> weight_bytes(const ModelContainer& file, const ModelBuffer& buffer) {
  const std::vector<std::byte> all = read(file, tensor_of(file, buffer.name));
  if (buffer.kind == BufferKind::kWeights) return all;
  const BatchView& view = buffer.from;
  if (!can_convert(view.type, buffer.type)) {
    throw Error(ErrorCode::kUnsupported,
                formatted("{}: '{}' is {} where a kernel reads {}", file.path.string(), buffer.name,
                          view.type, buffer.type));
  }
  Writer writer(buffer, all);
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

}  // namespace vitune
