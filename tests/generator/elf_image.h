// tests/generator/elf_image.h -- A small well-formed cubin made by hand, for tests without NVRTC.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace vitune::test {

inline void append(std::vector<std::byte>& image, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  image.insert(image.end(), bytes, bytes + size);
}

inline Elf64_Shdr section(unsigned name, unsigned type, std::size_t offset, std::size_t size) {
  Elf64_Shdr header{};
  header.sh_name = name;
  header.sh_type = type;
  header.sh_offset = offset;
  header.sh_size = size;
  return header;
}

// Null, names, symbols, code and shared-memory sections; the program headers stand last, so that no
// truncated image is whole.
inline std::vector<std::byte> elf_image() {
  static constexpr char kNames[] = "\0.shstrtab\0.symtab\0.text.k\0.nv.shared.k";
  Elf64_Sym symbols[2] = {};
  symbols[1].st_name = 19;
  symbols[1].st_shndx = 3;
  symbols[1].st_size = 16;
  const unsigned char code[16] = {0x4d, 0x79};
  constexpr std::size_t kNamesAt = sizeof(Elf64_Ehdr), kSymbolsAt = kNamesAt + sizeof(kNames),
                        kCodeAt = kSymbolsAt + sizeof(symbols), kTableAt = kCodeAt + sizeof(code);
  Elf64_Shdr sections[5] = {{},
                            section(1, SHT_STRTAB, kNamesAt, sizeof(kNames)),
                            section(11, SHT_SYMTAB, kSymbolsAt, sizeof(symbols)),
                            section(19, SHT_PROGBITS, kCodeAt, sizeof(code)),
                            section(27, SHT_NOBITS, kTableAt, 1 << 20)};
  sections[2].sh_link = 1;
  sections[2].sh_entsize = sizeof(Elf64_Sym);
  Elf64_Phdr segment{};
  segment.p_type = PT_LOAD;
  segment.p_offset = kCodeAt;
  segment.p_filesz = sizeof(code);

  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = 1;
  header.e_machine = 190;
  header.e_version = 1;
  header.e_ehsize = sizeof(Elf64_Ehdr);
  header.e_shoff = kTableAt;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 5;
  header.e_shstrndx = 1;
  header.e_phoff = kTableAt + sizeof(sections);
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;

  std::vector<std::byte> image;
  append(image, &header, sizeof(header));
  append(image, kNames, sizeof(kNames));
  append(image, symbols, sizeof(symbols));
  append(image, code, sizeof(code));
  append(image, sections, sizeof(sections));
  append(image, &segment, sizeof(segment));
  return image;
}

}  // namespace vitune::test
