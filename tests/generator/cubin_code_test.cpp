// tests/generator/cubin_code_test.cpp -- Which changes of a cubin change what runs.
// SPDX-License-Identifier: Apache-2.0
#include "generator/cubin_code.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "generator/compiler.h"
#include "tests/generator/compile_support.h"
#include "tests/generator/elf_image.h"

namespace vitune {
namespace {

using Bytes = std::vector<std::byte>;

// Positions in elf_image(): its sections are null, names, symbols, code, shared memory.
std::size_t header_of(const Bytes& image, std::size_t section) {
  Elf64_Ehdr header;
  std::memcpy(&header, image.data(), sizeof header);
  return header.e_shoff + section * sizeof(Elf64_Shdr);
}

Elf64_Shdr section_of(const Bytes& image, std::size_t section) {
  Elf64_Shdr found;
  std::memcpy(&found, image.data() + header_of(image, section), sizeof found);
  return found;
}

Bytes with_section(Bytes image, std::size_t number, const Elf64_Shdr& section) {
  std::memcpy(image.data() + header_of(image, number), &section, sizeof section);
  return image;
}

constexpr std::size_t kSymbols = 2, kCode = 3, kShared = 4;

Bytes image_with_code() {
  const Bytes image = test::elf_image();
  Elf64_Shdr code = section_of(image, kCode);
  code.sh_flags = SHF_ALLOC | SHF_EXECINSTR;
  code.sh_info = 40u << 24 | 7;
  return with_section(image, kCode, code);
}

TEST(CubinCode, SeesWhatALaunchCanTell) {
  const Bytes image = image_with_code();
  const auto before = code_digest(image);
  ASSERT_TRUE(before);
  Bytes other = image;
  other[section_of(image, kCode).sh_offset + 3] ^= std::byte{1};
  EXPECT_NE(code_digest(other), before) << "an instruction";
  const auto changed = [&](std::size_t number, auto change) {
    Elf64_Shdr section = section_of(image, number);
    change(section);
    return code_digest(with_section(image, number, section));
  };
  EXPECT_NE(changed(kCode, [](Elf64_Shdr& s) { s.sh_info += 1u << 24; }), before) << "registers";
  EXPECT_NE(changed(kCode, [](Elf64_Shdr& s) { s.sh_flags |= 1u << 20; }), before) << "barriers";
  EXPECT_NE(changed(kCode, [](Elf64_Shdr& s) { s.sh_addralign = 64; }), before) << "alignment";
  EXPECT_NE(changed(kShared, [](Elf64_Shdr& s) { s.sh_size += 16; }), before) << "shared memory";
  EXPECT_EQ(changed(kCode, [](Elf64_Shdr& s) { s.sh_info += 1; }), before) << "a symbol's number";
}

TEST(CubinCode, DoesNotSeeTheNamesOfSymbols) {
  const Bytes image = image_with_code();
  Bytes other = image;
  other[section_of(image, kSymbols).sh_offset + sizeof(Elf64_Sym)] = std::byte{20};
  ASSERT_NE(other, image);
  EXPECT_EQ(code_digest(other), code_digest(image));
}

struct Part {
  std::string name;
  Elf64_Word type;
  Bytes content;
  Elf64_Word link = 0, info = 0;
  Elf64_Xword flags = 0, entry = 0;
};

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// A cubin of these sections, which begin with number 2: before them are the null section and names.
Bytes cubin_of(const std::vector<Part>& parts) {
  std::string names("\0.shstrtab\0", 11);
  std::vector<Elf64_Shdr> sections = {{}, test::section(1, SHT_STRTAB, 0, 0)};
  Bytes content;
  for (const Part& part : parts) {
    Elf64_Shdr section = test::section(static_cast<unsigned>(names.size()), part.type,
                                       sizeof(Elf64_Ehdr) + content.size(), part.content.size());
    section.sh_link = part.link;
    section.sh_info = part.info;
    section.sh_flags = part.flags;
    section.sh_entsize = part.entry;
    sections.push_back(section);
    names += part.name + '\0';
    content.insert(content.end(), part.content.begin(), part.content.end());
  }
  sections[1].sh_offset = sizeof(Elf64_Ehdr) + content.size();
  sections[1].sh_size = names.size();
  Bytes image = test::elf_image();
  image.resize(sizeof(Elf64_Ehdr));
  Elf64_Ehdr header;
  std::memcpy(&header, image.data(), sizeof header);
  header.e_shoff = sizeof header + content.size() + names.size();
  header.e_shnum = static_cast<Elf64_Half>(sections.size());
  header.e_phnum = 0;
  std::memcpy(image.data(), &header, sizeof header);
  image.insert(image.end(), content.begin(), content.end());
  test::append(image, names.data(), names.size());
  test::append(image, sections.data(), sections.size() * sizeof(Elf64_Shdr));
  return image;
}

// Code that an address of a variable is put into, the variables, and attributes that name symbols.
struct Linked {
  // The null symbol, the kernel, two variables and a function of elsewhere.
  std::vector<Elf64_Sym> symbols = {symbol(0, 0, 0), symbol(1, kText, 0), symbol(3, kGlobal, 0),
                                    symbol(5, kGlobal, 8), symbol(7, SHN_UNDEF, 0)};
  std::string names = std::string("\0k\0a\0b\0f\0g\0", 11);
  Elf64_Word variable = 2, function = 4;  // that are named
  Elf64_Word changed = kText;             // the section that an address is put into
  Elf64_Word bytes_of_externs = 8;
  bool with_addends = true;
  Elf64_Xword kind = 0x38;
  Elf64_Sxword addend = 0;
  std::vector<std::int64_t> values = {1, 2};  // of the variables
  std::uint64_t instruction = 0;              // lower half of the first one

  static constexpr Elf64_Half kText = 4, kGlobal = 5;
  static Elf64_Sym symbol(Elf64_Word name, Elf64_Half section, Elf64_Addr value) {
    Elf64_Sym symbol{};
    symbol.st_name = name;
    symbol.st_shndx = section;
    symbol.st_value = value;
    symbol.st_size = 8;
    if (section == kText) symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    return symbol;
  }

  Bytes image() const {
    const Elf64_Rela with{32, ELF64_R_INFO(variable, kind), addend};
    const Elf64_Rel without{with.r_offset, with.r_info};
    Part moves = {".rela.text.k", SHT_RELA, bytes_of<Elf64_Rela>({with}), 3, changed, 0,
                  sizeof with};
    if (!with_addends) {
      moves = {".rel.text.k", SHT_REL, bytes_of<Elf64_Rel>({without}), 3, changed, 0,
               sizeof without};
    }
    // Externs, which are numbers of symbols all, and the size of a symbol's frame.
    const std::vector<Elf64_Word> info = {
        bytes_of_externs << 16 | 0x0f04u, function, variable, 8u << 16 | 0x1104u, variable, 16};
    const std::vector<Elf64_Word> calls = {1, function, 0, 0xffffffff};
    Bytes code = bytes_of<std::uint64_t>({instruction});
    code.resize(64);
    return cubin_of(
        {{".strtab", SHT_STRTAB, bytes_of(std::vector<char>(names.begin(), names.end()))},
         {".symtab", SHT_SYMTAB, bytes_of(symbols), 2, 0, 0, sizeof(Elf64_Sym)},
         {".text.k", SHT_PROGBITS, code, 0, 40u << 24, SHF_ALLOC | SHF_EXECINSTR},
         {".nv.global.init", SHT_PROGBITS, bytes_of(values)},
         moves,
         {".nv.info.k", SHT_LOPROC, bytes_of(info), 3},
         {".nv.callgraph", SHT_LOPROC + 1, bytes_of(calls), 3}});
  }
  std::optional<Digest> code() const { return code_digest(image()); }
};

TEST(CubinCode, SeesWhatRelocationsAndExternsNameAndNotTheNumbersOfSymbols) {
  for (const bool with_addends : {true, false}) {
    Linked linked;
    linked.with_addends = with_addends;
    const auto before = linked.code();
    ASSERT_TRUE(before);
    const auto changed = [&](auto change) {
      Linked other = linked;
      change(other);
      return other.code();
    };
    EXPECT_EQ(changed([](Linked& l) {
                std::swap(l.symbols[2], l.symbols[4]);
                l.variable = 4;
                l.function = 2;
              }),
              before)
        << "other numbers";
    EXPECT_EQ(changed([](Linked& l) { l.symbols[2].st_name = 5; }), before) << "a variable's name";
    EXPECT_NE(changed([](Linked& l) { l.variable = 3; }), before) << "another variable";
    EXPECT_NE(changed([](Linked& l) { std::swap(l.symbols[2], l.symbols[3]); }), before)
        << "another variable by the number of before";
    EXPECT_NE(changed([](Linked& l) { l.symbols[2].st_value = 8; }), before) << "its address";
    EXPECT_NE(changed([](Linked& l) { l.symbols[2].st_size = 16; }), before) << "its size";
    EXPECT_NE(changed([](Linked& l) { l.symbols[2].st_shndx = Linked::kText; }), before)
        << "its section";
    EXPECT_NE(changed([](Linked& l) { l.symbols[4].st_name = 9; }), before)
        << "a function of elsewhere";
    EXPECT_NE(changed([](Linked& l) { l.symbols[1].st_value = 16; }), before)
        << "the first instruction";
    EXPECT_NE(changed([](Linked& l) { l.symbols[1].st_name = 9; }), before) << "a kernel's name";
    EXPECT_NE(changed([](Linked& l) { l.kind = 0x39; }), before) << "the kind of a relocation";
    EXPECT_NE(changed([](Linked& l) { l.values[0] = 7; }), before) << "a variable that is read";
    const auto added = changed([](Linked& l) { l.addend = 4; });
    EXPECT_EQ(added != before, with_addends) << "an addend";
  }
}

// BAR.SYNC 4 has the barrier's number where others have that of a bank.
TEST(CubinCode, VariablesCountWhereAnInstructionMayReadTheirBankAndABarrierReadsNone) {
  const struct {
    std::uint64_t instruction;
    bool reads;
  } cases[] = {{0x010200000000bb1d, false},
               {0x0100000000007b1d, false},
               {0x010200000000bb82, true},
               {0x0100000000007a10, true}};
  for (const auto& [instruction, reads] : cases) {
    Linked linked;
    linked.changed = Linked::kGlobal;  // no relocation of code
    linked.instruction = instruction;
    Linked other = linked;
    other.values[0] = 7;
    EXPECT_EQ(linked.code() != other.code(), reads) << instruction;
  }
}

TEST(CubinCode, OfSectionsThatAreNoneNothingIsRead) {
  Linked linked;
  linked.symbols[2].st_info = ELF64_ST_INFO(STB_LOCAL, STT_SECTION);
  linked.symbols[2].st_shndx = 9;  // behind those of image()
  for (const Elf64_Off offset : {Elf64_Off{0}, Elf64_Off{1} << 40, ~Elf64_Off{15}}) {
    Bytes image = linked.image();
    Elf64_Shdr none{};
    none.sh_type = SHT_NULL;
    none.sh_name = 0x7ffffff0;
    none.sh_flags = SHF_EXECINSTR;
    none.sh_offset = offset;
    none.sh_size = 1 << 20;
    image = with_section(image, 0, none);
    test::append(image, &none, sizeof none);
    Elf64_Ehdr header;
    std::memcpy(&header, image.data(), sizeof header);
    ++header.e_shnum;
    std::memcpy(image.data(), &header, sizeof header);
    image.shrink_to_fit();
    ASSERT_TRUE(cubin_is_well_formed(image));
    EXPECT_TRUE(code_digest(image));
  }
}

TEST(CubinCode, NumbersThatLieAreNotFollowed) {
  Linked absolute, long_attribute, elsewhere;
  absolute.symbols[2].st_shndx = SHN_ABS;  // a number, but of no section
  long_attribute.bytes_of_externs = 0xfffc;
  elsewhere.changed = 40'000;
  EXPECT_TRUE(absolute.code());
  EXPECT_TRUE(long_attribute.code());
  for (const bool with_addends : {true, false}) {
    elsewhere.with_addends = with_addends;
    EXPECT_FALSE(elsewhere.code());
  }
}

TEST(CubinCode, AnImageWithTwoTablesOfSymbolsHasNone) {
  const Part names = {".strtab", SHT_STRTAB, Bytes(1)};
  const Part table = {".symtab", SHT_SYMTAB, Bytes(sizeof(Elf64_Sym)), 2, 0, 0, sizeof(Elf64_Sym)};
  EXPECT_TRUE(code_digest(cubin_of({names, table})));
  EXPECT_FALSE(code_digest(cubin_of({names, table, table})));
}

TEST(CubinCode, AnImageWithANameOfManyPagesHasNone) {
  const auto named = [](std::size_t length) {
    return code_digest(cubin_of({{std::string(length, 'x'), SHT_PROGBITS, Bytes(16)}}));
  };
  EXPECT_TRUE(named(4096));
  EXPECT_FALSE(named(4097));
  Linked linked;
  linked.names += std::string(5000, 'x') + '\0';
  linked.symbols[4].st_name = 11;
  EXPECT_FALSE(linked.code());
}

TEST(CubinCode, ADamagedImageHasNone) {
  Bytes image = image_with_code();
  image.resize(image.size() / 2);
  EXPECT_FALSE(code_digest(image));
  EXPECT_FALSE(code_digest({}));
}

TEST(CubinCode, OfAnyBytesThatPassForACubinIsFoundInsideThem) {
  std::mt19937_64 random(11);
  for (const Bytes& sound : {image_with_code(), Linked().image()}) {
    for (int round = 0; round < 20000; ++round) {
      Bytes image = sound;
      for (int change = 0; change < 2; ++change) {
        image[random() % image.size()] = static_cast<std::byte>(random());
      }
      image.shrink_to_fit();  // so that AddressSanitizer sees the first byte behind it
      EXPECT_TRUE(!code_digest(image) || cubin_is_well_formed(image));
    }
  }
}

class CompiledCubinCode : public test::RealCompilerTest {
 protected:
  std::optional<Digest> code(const std::string& main) const {
    const CompileResult result = compiler_->compile(test::request_for(main, "sm_90"));
    EXPECT_EQ(result.status, CompileStatus::kOk) << result.log;
    return code_digest(result.cubin);
  }
};

constexpr const char* kScale =
    "struct Config { static constexpr int kFirst = 3, kSecond = 5; };\n"
    "__constant__ float table[4] = {1, 2, 3, 4};\n"
    "extern \"C\" __global__ void k(float* p) {\n"
    "  __shared__ float s[64];\n"
    "  s[threadIdx.x] = p[threadIdx.x] * table[threadIdx.x & 3];\n"
    "  __syncthreads();\n"
    "  p[threadIdx.x] = s[63 - threadIdx.x] + Config::kSecond;\n"
    "}\n";

std::string with(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

TEST_F(CompiledCubinCode, IsTheSameUnderOtherNamesAndWithOtherUnreadConstants) {
  const auto before = code(kScale);
  ASSERT_TRUE(before);
  EXPECT_EQ(code(with(kScale, "kSecond", "kAdded")), before);
  EXPECT_EQ(code(with(kScale, "Config", "Tunables")), before);
  EXPECT_EQ(code(with(kScale, "kFirst = 3, ", "")), before);
  EXPECT_EQ(code(with(kScale, "kFirst = 3", "kFirst = 4, kMore = 9")), before);
}

TEST_F(CompiledCubinCode, DiffersWhereTheKernelDoes) {
  const auto before = code(kScale);
  ASSERT_TRUE(before);
  const std::pair<const char*, const char*> changes[] = {
      {"kSecond = 5", "kSecond = 6"},  // an immediate value
      {"3, 4}", "3, 5}"},              // a constant
      {"s[64]", "s[65]"},              // shared memory
      {"void k(", "void k("}};
  for (const auto& [from, to] : changes) {
    const bool same = code(with(kScale, from, to)) == before;
    EXPECT_EQ(same, std::string(from) == to) << to;
  }
  EXPECT_NE(code(with(kScale, "(float* p)", "(float* p, int)")), before) << "a parameter";
}

// A variable in memory that code reads by its address counts, whatever its name.
TEST_F(CompiledCubinCode, SeesTheValuesOfVariablesThatAreRead) {
  const std::string text =
      "struct Config { static constexpr int kTable[4] = {1, 2, 3, 4}; };\n"
      "__device__ int held = 7;\n"
      "extern \"C\" __global__ void k(int* p) { *p = Config::kTable[*p & 3] + held++; }\n";
  const auto before = code(text);
  ASSERT_TRUE(before);
  EXPECT_NE(code(with(text, "4}", "5}")), before);
  EXPECT_NE(code(with(text, "= 7", "= 8")), before);
}

}  // namespace
}  // namespace vitune
