// tests/generator/nvrtc_location_test.cpp -- Where NVRTC is looked for, and what tells builds
// apart.
// SPDX-License-Identifier: Apache-2.0
#include "generator/nvrtc_location.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>

#include "tests/temporary_directory.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;
using test::write_file;

// An ELF file with one note segment: `notes` at offset 200.
std::string elf_with_notes(std::string_view notes) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_phoff = sizeof(header);
  header.e_phnum = 1;
  header.e_phentsize = sizeof(Elf64_Phdr);
  Elf64_Phdr segment{};
  segment.p_type = PT_NOTE;
  segment.p_offset = 200;
  segment.p_filesz = notes.size();
  std::string file(200, '\0');
  std::memcpy(file.data(), &header, sizeof(header));
  std::memcpy(file.data() + sizeof(header), &segment, sizeof(segment));
  return file.append(notes);
}

std::string note(std::uint32_t type, std::string_view value) {
  const Elf64_Nhdr header{4, static_cast<std::uint32_t>(value.size()), type};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append("GNU\0", 4).append(value);
  return bytes.append((4 - value.size() % 4) % 4, '\0');
}

TEST(LibraryIdentity, IsTheBuildIdWhereThereIsOne) {
  const TemporaryDirectory folder;
  write_file(folder / "lib", elf_with_notes(note(1, "abcde") + note(NT_GNU_BUILD_ID, "\x01\xab")));
  EXPECT_EQ(library_identity(folder / "lib"), "01ab");
}

TEST(LibraryIdentity, IsSizeAndDigestOfTheEndsOtherwise) {
  const TemporaryDirectory folder;
  std::string text(3 << 20, 'x');
  const auto identity = [&] {
    write_file(folder / "lib", text);
    return library_identity(folder / "lib");
  };
  std::set<std::string> seen = {identity()};
  text.front() = 'y';
  EXPECT_TRUE(seen.insert(identity()).second);
  text.back() = 'y';
  EXPECT_TRUE(seen.insert(identity()).second);
  text += 'x';
  EXPECT_TRUE(seen.insert(identity()).second);
  EXPECT_EQ(library_identity(folder / "none"), "absent");
  EXPECT_EQ(library_identity(folder.path()), "absent");
}

TEST(LibraryIdentity, ADamagedFileGivesSomeIdentityAndNoCrash) {
  const TemporaryDirectory folder;
  const std::string whole = elf_with_notes(note(1, "abcde") + note(NT_GNU_BUILD_ID, "\x01\xab"));
  std::mt19937_64 random(4);
  for (int i = 0; i < 200; ++i) {
    std::string mutant = whole;
    // Half of the changes hit the notes, which a blind choice would mostly miss.
    const std::size_t at = i % 2 == 0 ? random() % mutant.size() : 200 + random() % 40;
    if (at < mutant.size()) mutant[at] = static_cast<char>(random());
    if (i % 5 == 0) mutant.resize(random() % mutant.size());
    write_file(folder / "lib", mutant);
    EXPECT_FALSE(library_identity(folder / "lib").empty());
  }
}

TEST(NvrtcDirectories, AreTheChosenToolkitThenTheLoaderThenTheRest) {
  const TemporaryDirectory folder;
  const std::string root = folder.path();
  const char* const kPackages = "/lib/python3.11/site-packages/nvidia/";
  for (const char* python : {"/venv", "/pyenv/versions/3.11.7", "/home/.local"}) {
    fs::create_directories(root + python + kPackages + "cu13/lib");
  }
  fs::create_directories(root + "/venv/lib/python3.9/dist-packages/nvidia/cuda_nvrtc/lib");
  fs::create_directories(root + "/relative/lib/python3.11/site-packages/nvidia/cu13/lib");
  for (const char* program : {"/venv/bin", "/pyenv/shims"}) {
    write_file(root + program + "/python3", "");
  }
  Environment environment;
  environment.cuda_home = root + "/toolkit";
  environment.home = root + "/home";
  environment.path = ":relative/bin:" + root + "/none:" + root + "/pyenv/shims:" + root +
                     "/venv/bin:" + root + "/venv/bin";
  const auto found = nvrtc_directories(environment);

  EXPECT_EQ(found.front(), root + "/toolkit/lib64");
  const auto place = [&](const std::string& directory) {
    return std::find(found.begin(), found.end(), directory) - found.begin();
  };
  const auto end = static_cast<std::ptrdiff_t>(found.size());
  const std::ptrdiff_t order[] = {
      place(""),
      place("/usr/local/cuda/lib64"),
      place("/usr/lib/x86_64-linux-gnu"),
      place(root + "/pyenv/versions/3.11.7" + kPackages + "cu13/lib"),
      place(root + "/venv/lib/python3.9/dist-packages/nvidia/cuda_nvrtc/lib"),
      place(root + "/venv" + kPackages + "cu13/lib"),
      place(root + "/home/.local" + kPackages + "cu13/lib")};
  EXPECT_TRUE(std::is_sorted(std::begin(order), std::end(order)))
      << ::testing::PrintToString(found);
  EXPECT_LT(order[6], end) << ::testing::PrintToString(found);
  EXPECT_EQ(std::set(found.begin(), found.end()).size(), found.size()) << "repeated directories";
}

}  // namespace
}  // namespace vitune
