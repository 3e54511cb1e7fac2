// generator/cubin_check.cpp -- Bounds check of a cubin: every table and section inside the image.
//
// Written against the ELF-64 object file format; trusts no number that it has not compared with the
// image's length.
// SPDX-License-Identifier: Apache-2.0
#include <elf.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "generator/compiler.h"

namespace vitune {
namespace {

constexpr std::uint16_t kMachineCuda = 190;

class Image {
 public:
  explicit Image(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t size() const { return bytes_.size(); }
  bool holds(std::uint64_t offset, std::uint64_t size) const {
    return size <= bytes_.size() && offset <= bytes_.size() - size;
  }
  // True if `count` entries of `size` bytes lie in the image; `count` is far below 2^32.
  bool holds_table(std::uint64_t offset, std::uint64_t count, std::uint64_t size) const {
    return holds(offset, count * size);
  }
  // Copies, since nothing promises that a table is aligned. The range must be held.
  template <typename T>
  T get(std::uint64_t offset) const {
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
};

class Checker {
 public:
  explicit Checker(std::span<const std::byte> bytes) : image_(bytes) {}

  bool check() {
    if (!image_.holds(0, sizeof(Elf64_Ehdr))) return false;
    header_ = image_.get<Elf64_Ehdr>(0);
    if (!header_is_sound() || !segments_are_inside() || !sections_fit()) return false;
    for (std::uint32_t i = 0; i < header_.e_shnum; ++i) {
      if (!section_is_sound(section(i))) return false;
    }
    return true;
  }

 private:
  bool header_is_sound() const {
    // Any version but 0: toolkits have used several.
    return std::memcmp(header_.e_ident, ELFMAG, SELFMAG) == 0 &&
           header_.e_ident[EI_CLASS] == ELFCLASS64 && header_.e_ident[EI_DATA] == ELFDATA2LSB &&
           header_.e_ident[EI_VERSION] != 0 && header_.e_version != 0 &&
           header_.e_machine == kMachineCuda && header_.e_ehsize >= sizeof(Elf64_Ehdr) &&
           image_.holds(0, header_.e_ehsize) && header_.e_shentsize == sizeof(Elf64_Shdr) &&
           header_.e_shnum > 0 &&
           image_.holds_table(header_.e_shoff, header_.e_shnum, sizeof(Elf64_Shdr)) &&
           header_.e_shstrndx < header_.e_shnum &&
           section(header_.e_shstrndx).sh_type == SHT_STRTAB;
  }

  bool segments_are_inside() const {
    if (header_.e_phnum == 0) return true;
    if (header_.e_phentsize != sizeof(Elf64_Phdr) ||
        !image_.holds_table(header_.e_phoff, header_.e_phnum, sizeof(Elf64_Phdr))) {
      return false;
    }
    for (std::uint64_t i = 0; i < header_.e_phnum; ++i) {
      const auto segment = image_.get<Elf64_Phdr>(header_.e_phoff + i * sizeof(Elf64_Phdr));
      if (!image_.holds(segment.p_offset, segment.p_filesz)) return false;
    }
    return true;
  }

  Elf64_Shdr section(std::uint64_t index) const {
    return image_.get<Elf64_Shdr>(header_.e_shoff + index * sizeof(Elf64_Shdr));
  }

  // Together, so that what follows ends soon: thousands of sections may not each be all of the
  // image.
  bool sections_fit() const {
    std::uint64_t left = image_.size();
    for (std::uint32_t i = 0; i < header_.e_shnum; ++i) {
      const Elf64_Shdr s = section(i);
      if (s.sh_type == SHT_NULL || s.sh_type == SHT_NOBITS) continue;
      if (s.sh_size > left) return false;
      left -= s.sh_size;
    }
    return true;
  }

  bool section_is_sound(const Elf64_Shdr& s) const {
    if (s.sh_type == SHT_NULL) return true;
    if (s.sh_type != SHT_NOBITS && !image_.holds(s.sh_offset, s.sh_size)) return false;
    // Range of the names first: that table itself is checked when its turn comes.
    if (s.sh_name >= section(header_.e_shstrndx).sh_size) return false;
    switch (s.sh_type) {
      case SHT_STRTAB:
        return is_terminated(s);
      case SHT_SYMTAB:
        return symbols_are_sound(s);
      case SHT_REL:
        return is_table_of(s, sizeof(Elf64_Rel)) && links_are_inside(s);
      case SHT_RELA:
        return is_table_of(s, sizeof(Elf64_Rela)) && links_are_inside(s);
      default:
        return true;
    }
  }

  bool is_terminated(const Elf64_Shdr& s) const {
    return s.sh_size > 0 && image_.get<char>(s.sh_offset + s.sh_size - 1) == '\0';
  }

  static bool is_table_of(const Elf64_Shdr& s, std::uint64_t entry) {
    return s.sh_entsize == entry && s.sh_size % entry == 0;
  }

  bool links_are_inside(const Elf64_Shdr& s) const {
    return s.sh_link < header_.e_shnum && s.sh_info < header_.e_shnum;
  }

  bool symbols_are_sound(const Elf64_Shdr& s) const {
    if (!is_table_of(s, sizeof(Elf64_Sym)) || s.sh_link >= header_.e_shnum) return false;
    const Elf64_Shdr names = section(s.sh_link);
    if (names.sh_type != SHT_STRTAB) return false;
    for (std::uint64_t at = 0; at < s.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = image_.get<Elf64_Sym>(s.sh_offset + at);
      if (symbol.st_name >= names.sh_size) return false;
      if (symbol.st_shndx < SHN_LORESERVE && symbol.st_shndx >= header_.e_shnum) return false;
    }
    return true;
  }

  Image image_;
  Elf64_Ehdr header_{};
};

}  // namespace

bool cubin_is_well_formed(std::span<const std::byte> image) { return Checker(image).check(); }

}  // namespace vitune
