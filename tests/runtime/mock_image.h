// tests/runtime/mock_image.h -- What the mock driver reads of a cubin: length, architecture, entry.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "tests/runtime/mock_libcuda.h"

namespace vitune::test {

struct MockImage {
  std::uint64_t id = 0;  // mock_image_id() of the whole image
  int sm = 0;            // 90 for sm_90; 0: the image does not say
  std::string entry;     // of its first ".text.<entry>" section with an architecture; else empty
};

namespace mock_image_internal {

template <typename T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// CUDA's ELF holds the architecture in bits 8 to 15 of the flags from ABI version 8 on (cubins of
// CUDA 13.0 have it), in the low bits before that.
inline int architecture_of(const Elf64_Ehdr& header) {
  if (header.e_flags == 0) return 0;
  const unsigned shift = header.e_ident[EI_ABIVERSION] >= 8 ? 8 : 0;
  return static_cast<int>((header.e_flags >> shift) & 0xff);
}

}  // namespace mock_image_internal

// Nothing if the image is not a CUDA ELF. The caller, like the driver's, vouches for its bounds.
inline std::optional<MockImage> mock_image(const std::byte* data) {
  using mock_image_internal::get;
  const auto header = get<Elf64_Ehdr>(data);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != 190) {
    return std::nullopt;
  }
  const auto section = [&](std::size_t i) {
    return get<Elf64_Shdr>(data + header.e_shoff + i * sizeof(Elf64_Shdr));
  };
  std::size_t size = header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr);
  if (header.e_phnum != 0) {
    size = std::max<std::size_t>(size, header.e_phoff + header.e_phnum * sizeof(Elf64_Phdr));
  }
  MockImage image;
  image.sm = mock_image_internal::architecture_of(header);
  const std::byte* const names = data + section(header.e_shstrndx).sh_offset;
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr s = section(i);
    if (s.sh_type == SHT_NULL) continue;  // its other fields mean nothing
    if (s.sh_type != SHT_NOBITS) size = std::max<std::size_t>(size, s.sh_offset + s.sh_size);
    const std::string name = reinterpret_cast<const char*>(names + s.sh_name);
    if (image.sm != 0 && image.entry.empty() && name.starts_with(".text.")) {
      image.entry = name.substr(6);
    }
  }
  image.id = mock_image_id(data, size);
  return image;
}

}  // namespace vitune::test
