// generator/cubin_code.cpp -- Reads the sections of a cubin that a launch can tell.
//
// Where it does not know what bytes mean they count as they are: two images may then be told apart
// without need, and never taken for one another.
// SPDX-License-Identifier: Apache-2.0
#include "generator/cubin_code.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <string_view>
#include <vector>

#include "generator/compiler.h"

namespace vitune {
namespace {

// Names, lines, and which compiler was called how.
constexpr std::array<std::string_view, 6> kTold = {".shstrtab", ".strtab",      ".symtab",
                                                   ".debug_",   ".rela.debug_", ".rel.debug_"};
// Variables in global memory, and the bank of constants with their addresses.
constexpr std::array<std::string_view, 4> kVariables = {".nv.global", ".nv.constant4",
                                                        ".rela.nv.constant4", ".rel.nv.constant4"};
constexpr unsigned kAddressBank = 4;
constexpr std::size_t kInstructionBytes = 16;  // from 7.0 on
constexpr unsigned kBarrierOpcode = 0xb1d;     // BAR with a number in the instruction
// Longer names than any compiler makes of ours: names that overlap would take for ever to read.
constexpr std::size_t kLongestName = 4096;

// Attributes of .nv.info that begin with the number of a symbol, of those whose size is stated.
constexpr std::uint8_t kSizedFormat = 4;
constexpr std::array<std::uint8_t, 5> kNamesSymbol = {0x0a, 0x11, 0x12, 0x23, 0x2f};
constexpr std::uint8_t kExterns = 0x0f;  // all of it is numbers of symbols

template <std::size_t N>
bool begins_with_one_of(std::string_view name, const std::array<std::string_view, N>& starts) {
  return std::ranges::any_of(starts, [&](std::string_view s) { return name.starts_with(s); });
}

template <typename T>
T read(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// Reads an image that is well formed.
class Cubin {
 public:
  explicit Cubin(std::span<const std::byte> image) : image_(image) {
    const auto header = read<Elf64_Ehdr>(image_, 0);
    for (std::size_t i = 0; i < header.e_shnum; ++i) {
      sections_.push_back(read<Elf64_Shdr>(image_, header.e_shoff + i * sizeof(Elf64_Shdr)));
    }
    names_ = sections_[header.e_shstrndx];
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_SYMTAB) continue;
      symbols_ = section;
      ++symbol_tables_;
    }
  }

  // True if it is plain what each symbol means, and its names can be read in little time.
  bool is_readable() const {
    const auto is_short = [&](const Elf64_Shdr& table, std::size_t offset) {
      const char* const name = text_at(table, offset);
      return ::strnlen(name, kLongestName + 1) <= kLongestName;
    };
    if (symbol_tables_ > 1) return false;
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_NULL && !is_short(names_, section.sh_name)) return false;
    }
    for (std::size_t i = 0; i < symbol_count(); ++i) {
      if (!is_short(sections_[symbols_.sh_link], symbol(i).st_name)) return false;
    }
    return true;
  }

  Digest digest() const {
    // In the order of their names: a section more or less must not move the others.
    std::multimap<std::string_view, const Elf64_Shdr*> sections;
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_NULL) sections.emplace(name_of(section), &section);
    }
    const bool variables_count = reads_variables();
    Sha256 hash;
    hash.add(std::string_view("vitune code 1")).add(read<Elf64_Ehdr>(image_, 0).e_flags);
    for (const auto& [name, section] : sections) {
      const bool is_told = begins_with_one_of(name, kTold) || section->sh_type == SHT_NOTE;
      if (is_told && !is_code(*section)) continue;
      if (!variables_count && begins_with_one_of(name, kVariables)) continue;
      if (is_relocations(*section) && section->sh_size == 0) continue;
      add_section(hash, name, *section);
    }
    add_functions(hash);
    return hash.finish();
  }

 private:
  const char* text_at(const Elf64_Shdr& table, std::size_t offset) const {
    return reinterpret_cast<const char*>(image_.data() + table.sh_offset + offset);
  }

  // Nobody has checked what a section of no type says.
  std::string_view name_of(const Elf64_Shdr& section) const {
    if (section.sh_type == SHT_NULL) return {};
    return text_at(names_, section.sh_name);
  }

  std::span<const std::byte> content(const Elf64_Shdr& section) const {
    if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL) return {};
    return image_.subspan(section.sh_offset, section.sh_size);
  }

  static bool is_code(const Elf64_Shdr& section) { return (section.sh_flags & SHF_EXECINSTR) != 0; }

  static bool is_relocations(const Elf64_Shdr& section) {
    return section.sh_type == SHT_RELA || section.sh_type == SHT_REL;
  }

  std::size_t symbol_count() const { return symbols_.sh_size / sizeof(Elf64_Sym); }

  Elf64_Sym symbol(std::size_t number) const {
    return read<Elf64_Sym>(image_, symbols_.sh_offset + number * sizeof(Elf64_Sym));
  }

  // True if code may read an address of a variable: from the bank of addresses, or by a relocation.
  bool reads_variables() const {
    return std::ranges::any_of(sections_, [&](const Elf64_Shdr& section) {
      if (is_code(section)) return may_read_bank(content(section), kAddressBank);
      return is_relocations(section) && section.sh_size > 0 && is_code(sections_[section.sh_info]);
    });
  }

  // An operand in a bank is named by bits 9 to 11 of an instruction (3 or 5), and the bank by bits
  // 54 to 58. Some instructions without such an operand look like it; BAR, which has a barrier's
  // number there, is told apart.
  static bool may_read_bank(std::span<const std::byte> code, unsigned bank) {
    for (std::size_t at = 0; at + kInstructionBytes <= code.size(); at += kInstructionBytes) {
      const auto word = read<std::uint64_t>(code, at);
      if ((word & 0xfff) == kBarrierOpcode) continue;
      const unsigned form = word >> 9 & 7;
      if ((form == 3 || form == 5) && (word >> 54 & 31) == bank) return true;
    }
    return code.size() % kInstructionBytes != 0;
  }

  void add_section(Sha256& hash, std::string_view name, const Elf64_Shdr& section) const {
    hash.add(name).add(std::int64_t{section.sh_type});
    hash.add(static_cast<std::int64_t>(section.sh_flags));
    hash.add(static_cast<std::int64_t>(section.sh_size));
    hash.add(static_cast<std::int64_t>(section.sh_addralign));
    // A code section says how many registers it has; below it stands the number of a symbol.
    if (is_code(section)) hash.add(std::int64_t{section.sh_info >> 24});
    if (is_relocations(section)) {
      add_relocations(hash, section);
    } else if (name.starts_with(".nv.info")) {
      add_info(hash, content(section));
    } else if (name == ".nv.callgraph") {
      add_symbols(hash, content(section));
    } else {
      hash.append(content(section));
    }
  }

  // Attributes: a format, a kind and a number of bytes, or a value in its place.
  void add_info(Sha256& hash, std::span<const std::byte> info) const {
    std::size_t at = 0;
    while (at + 4 <= info.size()) {
      const auto format = read<std::uint8_t>(info, at), kind = read<std::uint8_t>(info, at + 1);
      const std::size_t bytes = format == kSizedFormat ? read<std::uint16_t>(info, at + 2) : 0;
      if (at + 4 + bytes > info.size()) break;
      hash.append(info.subspan(at, 4));
      at += 4;
      const std::span value = info.subspan(at, bytes);
      if (format == kSizedFormat && kind == kExterns) {
        add_symbols(hash, value);
      } else if (bytes >= 4 && std::ranges::find(kNamesSymbol, kind) != kNamesSymbol.end()) {
        add_symbols(hash, value.first(4));
        hash.append(value.subspan(4));
      } else {
        hash.append(value);
      }
      at += bytes;
    }
    hash.append(info.subspan(at));
  }

  // Where a value is written into which section, and which.
  void add_relocations(Sha256& hash, const Elf64_Shdr& section) const {
    const bool with_addend = section.sh_type == SHT_RELA;
    const std::size_t step = with_addend ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
    const std::span entries = content(section);
    hash.add(name_of(sections_[section.sh_info]));
    hash.add(std::int64_t{sections_[section.sh_link].sh_type});  // the table of symbols
    for (std::size_t at = 0; at + step <= entries.size(); at += step) {
      const auto entry = read<Elf64_Rel>(entries, at);
      hash.append(entries.subspan(at, sizeof entry.r_offset));
      hash.add(std::int64_t{ELF64_R_TYPE(entry.r_info)});
      add_symbol(hash, ELF64_R_SYM(entry.r_info));
      hash.append(entries.subspan(at + sizeof entry, step - sizeof entry));
    }
  }

  // Where each kernel begins, by its name: a launch asks for that.
  void add_functions(Sha256& hash) const {
    std::multimap<std::string_view, std::size_t> functions;
    for (std::size_t i = 0; i < symbol_count(); ++i) {
      const Elf64_Sym found = symbol(i);
      if (ELF64_ST_TYPE(found.st_info) != STT_FUNC || found.st_shndx == SHN_UNDEF) continue;
      functions.emplace(text_at(sections_[symbols_.sh_link], found.st_name), i);
    }
    for (const auto& [name, number] : functions) {
      const Elf64_Sym found = symbol(number);
      hash.add(name).add(std::int64_t{ELF64_ST_BIND(found.st_info)});
      hash.add(std::int64_t{found.st_other});
      add_symbol(hash, number);
    }
  }

  // Bytes that are numbers of symbols.
  void add_symbols(Sha256& hash, std::span<const std::byte> numbers) const {
    std::size_t at = 0;
    for (; at + 4 <= numbers.size(); at += 4) add_symbol(hash, read<std::uint32_t>(numbers, at));
    hash.append(numbers.subspan(at));
  }

  // Adds the target of a symbol: a place in a section, or the name of something elsewhere.
  void add_symbol(Sha256& hash, std::uint64_t number) const {
    if (number >= symbol_count()) {
      hash.add(std::string_view("number")).add(static_cast<std::int64_t>(number));
      return;
    }
    const Elf64_Sym found = symbol(number);
    if (found.st_shndx == SHN_UNDEF) {
      hash.add(std::string_view("undefined"));
      hash.add(std::string_view(text_at(sections_[symbols_.sh_link], found.st_name)));
      return;
    }
    hash.add(std::string_view("defined")).add(std::int64_t{ELF64_ST_TYPE(found.st_info)});
    if (found.st_shndx < sections_.size()) {
      hash.add(name_of(sections_[found.st_shndx]));
    } else {
      hash.add(std::int64_t{found.st_shndx});
    }
    hash.add(static_cast<std::int64_t>(found.st_value));
    hash.add(static_cast<std::int64_t>(found.st_size));
  }

  const std::span<const std::byte> image_;
  std::vector<Elf64_Shdr> sections_;
  Elf64_Shdr names_{}, symbols_{};
  int symbol_tables_ = 0;
};

}  // namespace

std::optional<Digest> code_digest(std::span<const std::byte> image) {
  if (!cubin_is_well_formed(image)) return std::nullopt;
  const Cubin cubin(image);
  if (!cubin.is_readable()) return std::nullopt;
  return cubin.digest();
}

}  // namespace vitune
