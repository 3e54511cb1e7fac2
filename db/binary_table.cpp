// db/binary_table.cpp -- Binaries as rows.
// SPDX-License-Identifier: Apache-2.0
#include "db/binary_table.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <memory>
#include <new>

#include "db/image_dictionary.h"
#include "db/row_codec.h"

namespace vitune {
namespace {

constexpr std::int64_t kMaxImage = std::int64_t{64} << 20;
constexpr int kCompressionLevel = 19;

// It says nothing of the image.
void refuse_lack_of_memory(std::size_t zstd_result) {
  if (ZSTD_getErrorCode(zstd_result) == ZSTD_error_memory_allocation) throw std::bad_alloc();
}

// A context of Zstandard's; std::bad_alloc without one.
template <typename Context>
auto owned(Context* context, std::size_t (*release)(Context*)) {
  if (context == nullptr) throw std::bad_alloc();
  return std::unique_ptr<Context, std::size_t (*)(Context*)>(context, release);
}

Blob pack(std::span<const std::byte> image) {
  const auto context = owned(ZSTD_createCCtx(), &ZSTD_freeCCtx);
  const auto dictionary = image_dictionary();
  Blob packed(ZSTD_compressBound(image.size()));
  const std::size_t size = ZSTD_compress_usingDict(context.get(), packed.data(), packed.size(),
                                                   image.data(), image.size(), dictionary.data(),
                                                   dictionary.size(), kCompressionLevel);
  if (ZSTD_isError(size) != 0U) {
    refuse_lack_of_memory(size);
    throw Error(ErrorCode::kFailure,
                std::string("compressing a kernel image: ") + ZSTD_getErrorName(size));
  }
  packed.resize(size);
  return packed;
}

// No bytes where there is no image.
Blob unpack(const std::optional<Blob>& stored, std::size_t size) {
  if (!stored) {
    if (size == 0) return {};
    throw Error(ErrorCode::kDatabase, "a kernel without the image that its row says it has");
  }
  const Blob& packed = *stored;
  // The frame's own claim is compared first, so that a bomb allocates nothing.
  if (ZSTD_getFrameContentSize(packed.data(), packed.size()) != size) {
    throw Error(ErrorCode::kDatabase, "a kernel image of another size than its row says");
  }
  Blob image(size);
  const auto context = owned(ZSTD_createDCtx(), &ZSTD_freeDCtx);
  // A frame of before 2026-11-29 names no dictionary.
  const bool plain = ZSTD_getDictID_fromFrame(packed.data(), packed.size()) == 0;
  const auto dictionary = plain ? std::span<const unsigned char>() : image_dictionary();
  const std::size_t written =
      ZSTD_decompress_usingDict(context.get(), image.data(), image.size(), packed.data(),
                                packed.size(), dictionary.data(), dictionary.size());
  if (ZSTD_isError(written) != 0U || written != size) {
    refuse_lack_of_memory(written);
    throw Error(ErrorCode::kDatabase, "a kernel image that does not unpack");
  }
  return image;
}

}  // namespace

Digest image_digest(std::span<const std::byte> image) {
  return sha256(std::string_view(reinterpret_cast<const char*>(image.data()), image.size()));
}

Row binary_row(const Binary& binary) {
  constexpr std::size_t kMaxVersion = 256;
  if (binary.image.size() > static_cast<std::size_t>(kMaxImage)) {
    throw Error(ErrorCode::kFailure, "storing kernel " + binary.kernel_key.hex() +
                                         ": its image has " + std::to_string(binary.image.size()) +
                                         " bytes, at most 64 MiB are stored");
  }
  Row row{to_blob(binary.kernel_key), to_blob(image_digest(binary.image)), binary.arch,
          clipped(binary.compiler_version, kMaxVersion), binary.entry};
  append(row, binary.compile);
  row.emplace_back(static_cast<std::int64_t>(binary.image.size()));
  if (binary.image.empty()) {
    row.emplace_back(std::monostate{});
  } else {
    row.emplace_back(pack(binary.image));
  }
  return row;
}

Row binary_key(const Digest& kernel_key, const std::optional<Digest>& image) {
  Row key{to_blob(kernel_key)};
  if (image) key.emplace_back(to_blob(*image));
  return key;
}

std::optional<Binary> binary_from_row(const Row& row) {
  return decode_row(row, [](RowReader& reader) {
    Binary binary;
    binary.kernel_key = reader.digest();
    const Digest expected = reader.digest();
    binary.arch = reader.text();
    binary.compiler_version = reader.text();
    binary.entry = reader.text();
    binary.compile = reader.compile_facts();
    const auto size = static_cast<std::size_t>(reader.integer(0, kMaxImage));
    binary.image = unpack(reader.optional_blob(), size);
    if (image_digest(binary.image) != expected) {
      throw Error(ErrorCode::kDatabase, "a kernel image that is not the one of its row's key");
    }
    return binary;
  });
}

std::optional<Digest> packed_image_digest(const Row& row) {
  return decode_row(Row(row.end() - 2, row.end()), [](RowReader& reader) {
    const auto size = static_cast<std::size_t>(reader.integer(0, kMaxImage));
    return image_digest(unpack(reader.optional_blob(), size));
  });
}

}  // namespace vitune
