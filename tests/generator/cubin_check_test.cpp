// tests/generator/cubin_check_test.cpp -- Damaged cubins are noticed before a driver sees them.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "generator/compiler.h"
#include "tests/generator/compile_support.h"
#include "tests/generator/elf_image.h"

namespace vitune {
namespace {

using test::append;
using test::elf_image;

using Bytes = std::vector<std::byte>;

constexpr int kMutations = 20000;

template <typename T>
Bytes with(Bytes image, std::size_t offset, T value) {
  std::memcpy(image.data() + offset, &value, sizeof(value));
  return image;
}

// One random change: bits, a run of bytes, an integer of the header, or a cut.
Bytes mutate(Bytes image, std::mt19937_64& random) {
  const std::size_t at = random() % image.size();
  switch (random() % 4) {
    case 0:
      image[at] ^= static_cast<std::byte>(1u << (random() % 8));
      break;
    case 1:
      for (std::size_t i = at; i < std::min(image.size(), at + 1 + random() % 16); ++i) {
        image[i] = static_cast<std::byte>(random());
      }
      break;
    case 2: {
      const std::uint64_t extremes[] = {0, 1, 0xffff, 0xffffffff, ~std::uint64_t{0}, random()};
      const std::uint64_t value = extremes[random() % 6];
      const std::size_t size =
          std::min<std::size_t>(std::size_t{1} << (random() % 4), image.size() - at);
      std::memcpy(image.data() + at, &value, size);
      break;
    }
    default:
      image.resize(at);
  }
  image.shrink_to_fit();  // so that AddressSanitizer sees the first byte behind it
  return image;
}

// Mutates `image` kMutations times. The check must return, whatever the answer; cuts it must
// refuse.
void expect_survives_mutations(const Bytes& image, std::uint64_t seed) {
  ASSERT_TRUE(cubin_is_well_formed(image));
  std::mt19937_64 random(seed);
  int refused = 0;
  for (int i = 0; i < kMutations; ++i) {
    Bytes mutant = mutate(image, random);
    if (random() % 4 == 0 && !mutant.empty()) mutant = mutate(std::move(mutant), random);
    const bool accepted = cubin_is_well_formed(mutant);
    if (mutant.size() < image.size()) {
      EXPECT_FALSE(accepted) << mutant.size();
    }
    refused += accepted ? 0 : 1;
  }
  EXPECT_GT(refused, kMutations / 4);
  EXPECT_LT(refused, kMutations);
}

void expect_every_truncation_refused(const Bytes& image) {
  for (std::size_t size = 0; size < image.size(); ++size) {
    const Bytes cut(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_FALSE(cubin_is_well_formed(cut)) << size << " of " << image.size() << " bytes";
  }
}

TEST(CubinCheck, AWholeImageIsAcceptedAndEveryTruncationRefused) {
  ASSERT_TRUE(cubin_is_well_formed(elf_image()));
  expect_every_truncation_refused(elf_image());
}

TEST(CubinCheck, EachDamagedFieldIsRefused) {
  const Bytes good = elf_image();
  const auto header = [](std::size_t offset) { return offset; };
  const std::size_t table = 64 + 40 + 48 + 16, segment = table + 5 * 64;
  const struct {
    const char* what;
    Bytes image;
  } cases[] = {
      {"magic", with<char>(good, 0, 'x')},
      {"32 bits", with<char>(good, EI_CLASS, ELFCLASS32)},
      {"big endian", with<char>(good, EI_DATA, ELFDATA2MSB)},
      {"x86-64", with<std::uint16_t>(good, header(18), EM_X86_64)},
      {"version 0", with<std::uint32_t>(good, header(20), 0)},
      {"header size", with<std::uint16_t>(good, header(52), 40)},
      {"section entry size", with<std::uint16_t>(good, header(58), 40)},
      {"no sections", with<std::uint16_t>(good, header(60), 0)},
      {"too many sections", with<std::uint16_t>(good, header(60), 60000)},
      {"names outside", with<std::uint16_t>(good, header(62), 5)},
      {"names not a string table", with<std::uint16_t>(good, header(62), 3)},
      {"section table outside", with<std::uint64_t>(good, header(40), good.size() - 8)},
      {"section table wraps", with<std::uint64_t>(good, header(40), ~std::uint64_t{7})},
      {"segment table outside", with<std::uint64_t>(good, header(32), good.size() - 8)},
      {"segment entry size", with<std::uint16_t>(good, header(54), 32)},
      {"segment outside", with<std::uint64_t>(good, segment + 32, good.size())},
      {"code outside", with<std::uint64_t>(good, table + 3 * 64 + 24, good.size() - 8)},
      {"code wraps", with<std::uint64_t>(good, table + 3 * 64 + 32, ~std::uint64_t{0})},
      {"section name outside", with<std::uint32_t>(good, table + 3 * 64, 40)},
      {"names not terminated", with<std::uint64_t>(good, table + 64 + 32, 38)},
      {"symbol name outside", with<std::uint32_t>(good, 64 + 40 + 24, 40)},
      {"symbol section outside", with<std::uint16_t>(good, 64 + 40 + 24 + 6, 5)},
      {"symbol entry size", with<std::uint64_t>(good, table + 2 * 64 + 56, 16)},
      {"symbol names outside", with<std::uint32_t>(good, table + 2 * 64 + 40, 9)},
  };
  for (const auto& [what, image] : cases) EXPECT_FALSE(cubin_is_well_formed(image)) << what;
}

TEST(CubinCheck, ANoBitsSectionMayBeLargerThanTheImage) {
  const std::size_t shared = 64 + 40 + 48 + 16 + 4 * 64;
  EXPECT_TRUE(cubin_is_well_formed(with<std::uint64_t>(elf_image(), shared + 32, 1u << 30)));
}

// Each of them would be gone through from end to end.
TEST(CubinCheck, SectionsThatAreLargerTogetherThanTheImageAreRefused) {
  Bytes image = elf_image();
  Elf64_Ehdr header;
  std::memcpy(&header, image.data(), sizeof header);
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), image.data() + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  Elf64_Shdr code = sections[3];
  code.sh_size = image.size() / 2;
  code.sh_offset = 0;
  const auto with_more = [&](std::size_t more) {
    auto all = sections;
    all.insert(all.end(), more, code);
    header.e_shoff = image.size();
    header.e_shnum = static_cast<Elf64_Half>(all.size());
    Bytes larger = image;
    std::memcpy(larger.data(), &header, sizeof header);
    append(larger, all.data(), all.size() * sizeof(Elf64_Shdr));
    return larger;
  };
  EXPECT_TRUE(cubin_is_well_formed(with_more(1)));
  EXPECT_FALSE(cubin_is_well_formed(with_more(40)));
}

TEST(CubinCheck, NoMutationOfAHandMadeImageIsReadOutOfBounds) {
  expect_survives_mutations(elf_image(), 1);
}

TEST(CubinCheck, NoMutationOfARealCubinIsReadOutOfBounds) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const CompileResult result = compiler->compile(test::request_for(test::kSmallKernel));
  ASSERT_EQ(result.status, CompileStatus::kOk) << result.log;
  expect_every_truncation_refused(result.cubin);
  expect_survives_mutations(result.cubin, 2);
}

}  // namespace
}  // namespace vitune
